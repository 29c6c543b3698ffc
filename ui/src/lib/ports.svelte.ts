// The interfaces of the daemon's machine, for pages and forms that offer a choice of them.

import { Answer } from "./asked.svelte";
import type { PortList } from "./generated";

class Ports {
  #answer = new Answer<PortList>();

  /** Null until the daemon responds. */
  all = $derived(this.#answer.value?.ports ?? null);
  problem = $derived(this.#answer.problem);

  load = (): Promise<void> => this.#answer.ask("/ports");
}

export const ports = new Ports();
