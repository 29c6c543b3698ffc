// The machines for a run: the daemon's own, or the nodes of one of its inventories.

import { Answer } from "./asked.svelte";
import type { Inventories } from "./generated";

class Nodes {
  #answer = new Answer<Inventories>();

  /** Empty until the daemon answers. */
  all = $derived(this.#answer.value?.inventories ?? []);
  /** Name of the inventory; empty: the daemon's own ports. */
  chosen = $state("");

  inventory = $derived(this.all.find(({ name }) => name === this.chosen));

  load = (): Promise<void> => this.#answer.ask("/inventories");

  /** The nodes that have a port of the profile; undefined: the inventory has no port with that
   * name. */
  place(port: string): string | undefined {
    return this.inventory?.ports.find(({ name }) => name === port)?.places.join(", ");
  }

  /** The part of a start request that selects nodes. */
  get asked(): { nodes?: string } {
    return this.inventory ? { nodes: this.inventory.name } : {};
  }
}

export const nodes = new Nodes();
