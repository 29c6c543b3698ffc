// The daemons that this page can show: its own, and others that the user added with their tokens. A
// daemon accepts requests from another daemon's page only if it was started with `squall serve
// --peer`.

import { remembered, store } from "./session.svelte";

export interface Server {
  /** Origin of the daemon; empty for the one that served this page. */
  url: string;
  name: string;
  /** Token for another daemon; the page's own daemon has a cookie. */
  token: string;
}

export const OWN: Server = { url: "", name: "This server", token: "" };
const KEY = "squall.servers";
const CURRENT = "squall.server";

function kept(): Server[] {
  try {
    const all = JSON.parse(remembered(KEY, "[]")) as Server[];
    return all.filter(({ url, token }) => /^https?:\/\/[^/]+$/.test(url) && Boolean(token));
  } catch {
    return [];
  }
}

class Servers {
  others = $state<Server[]>(kept());
  all = $derived([OWN, ...this.others]);
  /** The daemon that the pages show; changes only with a reload. */
  readonly current: Server =
    kept().find(({ url }) => url === remembered(CURRENT, "")) ?? structuredClone(OWN);

  add(server: Server): void {
    this.others = [...this.others.filter(({ url }) => url !== server.url), server];
    this.#keep();
  }

  remove(url: string): void {
    this.others = this.others.filter((server) => server.url !== url);
    this.#keep();
    if (url === this.current.url) this.use(OWN.url);
  }

  /** Switches to another daemon by a reload, because all state of the page belongs to one daemon.
   * */
  use(url: string): void {
    store(CURRENT, url);
    location.reload();
  }

  #keep(): void {
    store(KEY, JSON.stringify(this.others));
  }
}

export const servers = new Servers();

/** The origin as in the daemon's `--peer`; null if the text is not the address of a daemon. */
export function originOf(text: string): string | null {
  const typed = text.trim();
  try {
    const url = new URL(/^https?:\/\//.test(typed) ? typed : `https://${typed}`);
    return url.username || url.search || !typed ? null : url.origin;
  } catch {
    return null;
  }
}

export const authorization = (server: Server): Record<string, string> =>
  server.token ? { authorization: `Bearer ${server.token}` } : {};

/** Opens a WebSocket. The token is passed as a subprotocol, because scripts cannot set headers. */
export function socketTo(server: Server, path: string): WebSocket {
  const base = server.url || location.origin;
  const protocols = server.token ? ["squall.v1", `squall.token.${server.token}`] : ["squall.v1"];
  return new WebSocket(base.replace(/^http/, "ws") + path, protocols);
}
