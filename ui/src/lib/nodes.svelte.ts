// On which machines a run goes: this daemon's, or the nodes of one of its inventories.

import { get } from "./api";
import type { Inventory } from "./types";

class Nodes {
  all = $state<Inventory[]>([]);
  /** Name of the inventory; empty: the daemon's own ports. */
  chosen = $state("");

  inventory = $derived(this.all.find(({ name }) => name === this.chosen));

  async load(): Promise<void> {
    try {
      this.all = (await get<{ inventories: Inventory[] }>("/inventories")).inventories;
    } catch {
      // Nothing to choose from, then.
      this.all = [];
    }
  }

  /** Where a port of the profile is; undefined: the inventory has none of that name. */
  place(port: string): string | undefined {
    return this.inventory?.ports.find(({ name }) => name === port)?.places.join(", ");
  }

  /** What a request to start a run says of it. */
  get asked(): { nodes?: string } {
    return this.inventory ? { nodes: this.inventory.name } : {};
  }
}

export const nodes = new Nodes();
