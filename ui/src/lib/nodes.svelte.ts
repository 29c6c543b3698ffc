// The machines that a run uses: the daemon's own, or the nodes of one of its inventories.

import { Answer } from "./asked.svelte";
import type { Inventories } from "./generated";

class Nodes {
  #answer = new Answer<Inventories>();

  /** Empty until the daemon responds. */
  all = $derived(this.#answer.value?.inventories ?? []);
  /** Name of the selected inventory; empty: the daemon's own ports. */
  chosen = $state("");

  inventory = $derived(this.all.find(({ name }) => name === this.chosen));

  load = (): Promise<void> => this.#answer.ask("/inventories");

  /** The nodes of the profile's port; undefined: the inventory has no port of that name. */
  place(port: string): string | undefined {
    return this.inventory?.ports.find(({ name }) => name === port)?.places.join(", ");
  }

  /** The fields of a start request that select nodes. */
  get asked(): { nodes?: string } {
    return this.inventory ? { nodes: this.inventory.name } : {};
  }
}

export const nodes = new Nodes();
