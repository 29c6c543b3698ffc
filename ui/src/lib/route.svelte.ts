// The current page and its details are in the URL's hash, `#/streams?stream=2&tab=vary`, so they
// survive a reload and can be linked to.

export const PAGES = [
  { id: "ports", title: "Ports", key: "p", icon: "ports" },
  { id: "streams", title: "Streams", key: "s", icon: "streams" },
  { id: "flows", title: "Flows", key: "f", icon: "flows" },
  { id: "run", title: "Run", key: "r", icon: "run" },
  { id: "replay", title: "Replay", key: "y", icon: "replay" },
  { id: "attacks", title: "Attacks", key: "a", icon: "attacks" },
  { id: "capture", title: "Capture", key: "c", icon: "capture" },
  { id: "conversations", title: "Conversations", key: "v", icon: "conversations" },
  { id: "tests", title: "Tests", key: "t", icon: "tests" },
  { id: "runs", title: "Reports", key: "h", icon: "reports" },
  { id: "servers", title: "Servers", key: "d", icon: "servers" },
  { id: "log", title: "Log", key: "l", icon: "log" },
] as const;

export type PageId = (typeof PAGES)[number]["id"];

/** Pages by their titles in the menu, which a reader may enter as an address. */
const ALIASES: Record<string, PageId> = { reports: "runs" };

class Route {
  page = $state<PageId>("ports");
  params = $state<Record<string, string>>({});
  /** The page that the address names, if there is none of that name. */
  unknown = $state("");

  constructor() {
    addEventListener("hashchange", () => this.read());
    this.read();
  }

  read(): void {
    const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const wanted = ALIASES[path] ?? path;
    const page = PAGES.find(({ id }) => id === wanted);
    this.unknown = page || !path ? "" : path;
    this.page = page?.id ?? "ports";
    this.params = Object.fromEntries(new URLSearchParams(query));
  }

  /** The selected index among `count`, 0-based; the URL is 1-based. */
  index(key: string, count: number): number {
    return Math.min(Math.max(Number(this.params[key] ?? 1) - 1, 0), Math.max(count - 1, 0));
  }

  go(page: PageId, params: Record<string, string> = {}): void {
    location.hash = href(page, params);
  }

  /** Stores details of the page in the URL; undefined removes one. Adds no entry to the browser's
   * history. */
  set(changes: Record<string, string | undefined>): void {
    const params: Record<string, string> = { ...this.params };
    for (const [key, value] of Object.entries(changes)) {
      if (value === undefined) delete params[key];
      else params[key] = value;
    }
    this.params = params;
    history.replaceState(null, "", href(this.page, params));
  }
}

export function href(page: PageId, params: Record<string, string> = {}): string {
  const query = new URLSearchParams(params).toString();
  return `#/${page}${query && `?${query}`}`;
}

export const route = new Route();
