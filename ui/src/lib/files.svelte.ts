// The files that the daemon stores.

import { get, messageOf, remove, upload } from "./api";
import { attempt } from "./asked.svelte";
import type { FileList } from "./generated";
import { session } from "./session.svelte";
import type { StoredFile } from "./types";

class Files {
  all = $state<StoredFile[] | null>(null);

  async load(): Promise<void> {
    try {
      this.all = (await get<FileList>("/files")).files;
    } catch (error) {
      this.all ??= [];
      if (!session.loginNeeded) session.tell("bad", messageOf(error));
    }
  }

  /** Sorted by time, newest first: usually a user looks for the latest file. */
  newest(...kinds: StoredFile["kind"][]): StoredFile[] {
    return this.of(...kinds).sort((a, b) => (a.modified < b.modified ? 1 : -1));
  }

  of(...kinds: StoredFile["kind"][]): StoredFile[] {
    return (this.all ?? []).filter(({ kind }) => kinds.includes(kind));
  }

  /** Uploads a file. Returns its name on the daemon, or null after an error. */
  async put(file: File | undefined): Promise<string | null> {
    if (!file || !(await attempt(() => upload(file.name, file)))) return null;
    await this.load();
    return file.name;
  }

  async remove(name: string): Promise<void> {
    await attempt(() => remove(`/files/${encodeURIComponent(name)}`));
    await this.load();
  }
}

export const files = new Files();
export const downloadOf = (name: string): string => `/files/${encodeURIComponent(name)}`;
