// The files in the daemon's folder.

import { get, messageOf, remove, upload } from "./api";
import { session } from "./session.svelte";
import type { StoredFile } from "./types";

class Files {
  all = $state<StoredFile[] | null>(null);

  async load(): Promise<void> {
    try {
      this.all = (await get<{ files: StoredFile[] }>("/files")).files;
    } catch (error) {
      this.all ??= [];
      if (!session.loginNeeded) session.tell("bad", messageOf(error));
    }
  }

  of(...kinds: StoredFile["kind"][]): StoredFile[] {
    return (this.all ?? []).filter(({ kind }) => kinds.includes(kind));
  }

  /** The name under which it is there; null when it is not. */
  async put(file: File | undefined): Promise<string | null> {
    if (!file) return null;
    try {
      await upload(file.name, file);
      await this.load();
      return file.name;
    } catch (error) {
      session.tell("bad", messageOf(error));
      return null;
    }
  }

  async remove(name: string): Promise<void> {
    try {
      await remove(`/files/${encodeURIComponent(name)}`);
    } catch (error) {
      session.tell("bad", messageOf(error));
    }
    await this.load();
  }
}

export const files = new Files();
export const downloadOf = (name: string): string => `/files/${encodeURIComponent(name)}`;
