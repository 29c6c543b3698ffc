// The interfaces of the daemon's machine, for pages and forms that offer a choice of them.

import { post, remove } from "./api";
import { Answer, attempt } from "./asked.svelte";
import type { PortList } from "./generated";

class Ports {
  #answer = new Answer<PortList>();

  /** Null until the daemon responds. */
  all = $derived(this.#answer.value?.ports ?? null);
  problem = $derived(this.#answer.problem);
  /** The lab of the daemon's machine: two interfaces, each the other's peer. */
  lab = $derived(this.#answer.value?.lab ?? null);

  load = (): Promise<void> => this.#answer.ask("/ports");

  /** Creates the lab. Returns whether it exists. */
  async makeLab(): Promise<boolean> {
    const made = await attempt(() => post("/lab"));
    await this.load();
    return made;
  }

  async removeLab(): Promise<void> {
    await attempt(() => remove("/lab"));
    await this.load();
  }
}

export const ports = new Ports();
