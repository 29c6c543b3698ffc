// The headers and the descriptions of their fields: the daemon's table, loaded once.

import { Answer } from "./asked.svelte";
import type { Header, HeaderField } from "./types";

class Headers {
  #answer = new Answer<{ headers: Header[] }>();

  all = $derived(this.#answer.value?.headers ?? []);

  load = (): Promise<void> => this.#answer.once("/headers");

  header(name: string): Header | undefined {
    return this.all.find((header) => header.name === name);
  }

  field(header: string, field: string): HeaderField | undefined {
    return this.header(header)?.fields.find(({ name }) => name === field);
  }
}

export const headers = new Headers();
