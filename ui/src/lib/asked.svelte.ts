// Requests to the daemon, and the reasons of their errors, for all pages, forms and buttons.

import { get, linesOf, messageOf } from "./api";
import { session } from "./session.svelte";

/** The latest response to a repeated request. */
export class Answer<T> {
  value = $state.raw<T | null>(null);
  /** The reason why there is no response, or no newer one. */
  problem = $state<string>();
  #asked = 0;

  /** Sends a request. Discards a response that arrives after that of a later request. */
  async ask(path: string): Promise<void> {
    const asked = ++this.#asked;
    try {
      const value = await get<T>(path);
      if (asked === this.#asked) [this.value, this.problem] = [value, undefined];
    } catch (error) {
      if (asked === this.#asked) this.problem = messageOf(error);
    }
  }

  /** For constant responses: sends the request only if there is no response yet. */
  async once(path: string): Promise<void> {
    if (this.#asked) return;
    await this.ask(path);
    if (this.problem) this.#asked = 0;
  }

  forget(): void {
    this.#asked++;
    [this.value, this.problem] = [null, undefined];
  }
}

/** The request of a form: whether it is pending, and the reasons of its error. */
export class Request {
  busy = $state(false);
  refused = $state.raw<string[]>([]);

  async send(what: () => Promise<void>): Promise<void> {
    [this.busy, this.refused] = [true, []];
    try {
      await what();
    } catch (error) {
      this.refused = linesOf(error);
    } finally {
      this.busy = false;
    }
  }
}

/** Runs the action of a button. An error that belongs to no field is shown as a toast. Returns
 * whether the action succeeded. */
export async function attempt(what: () => Promise<unknown>): Promise<boolean> {
  try {
    await what();
    return true;
  } catch (error) {
    session.tell("bad", messageOf(error));
    return false;
  }
}
