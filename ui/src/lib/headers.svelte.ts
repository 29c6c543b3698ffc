// Which headers there are and what their fields mean: the daemon's own table, asked once.

import { get } from "./api";
import type { Header, HeaderField } from "./types";

class Headers {
  all = $state<Header[]>([]);
  #asked = false;

  async load(): Promise<void> {
    if (this.#asked) return;
    this.#asked = true;
    try {
      this.all = (await get<{ headers: Header[] }>("/headers")).headers;
    } catch {
      this.#asked = false;
    }
  }

  header(name: string): Header | undefined {
    return this.all.find((header) => header.name === name);
  }

  field(header: string, field: string): HeaderField | undefined {
    return this.header(header)?.fields.find(({ name }) => name === field);
  }
}

export const headers = new Headers();
