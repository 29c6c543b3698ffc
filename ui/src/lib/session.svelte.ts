// State of the whole app: login, theme, toasts.

import type { Info } from "./types";

export type Theme = "auto" | "light" | "dark";

export interface Toast {
  id: number;
  kind: "good" | "bad" | "note";
  text: string;
}

function stored(key: string, fallback: string): string {
  try {
    return localStorage.getItem(key) ?? fallback;
  } catch {
    return fallback; // storage is denied: the page works without it
  }
}

export function store(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // as above
  }
}

class Session {
  info = $state<Info | null>(null);
  loginNeeded = $state(false);
  /** Number of logins, used to discard responses to requests sent before the latest one. */
  logins = 0;
  reachable = $state(true);
  theme = $state<Theme>(stored("squall.theme", "auto") as Theme);
  /** Whether single keys are commands; can be turned off for speech input (WCAG 2.1.4). */
  shortcuts = $state(stored("squall.shortcuts", "on") === "on");
  /** Whether the ports page has the first steps; null: while the daemon has no run. */
  firstSteps = $state<boolean | null>(stored("squall.first-steps", "") === "off" ? false : null);
  toasts = $state<Toast[]>([]);
  #dark = matchMedia("(prefers-color-scheme: dark)");
  dark = $state(this.#dark.matches);
  #next = 1;

  constructor() {
    this.#dark.addEventListener("change", () => this.paint());
    this.paint();
  }

  paint(): void {
    this.dark = this.theme === "dark" || (this.theme === "auto" && this.#dark.matches);
    document.documentElement.dataset.theme = this.dark ? "dark" : "light";
  }

  nextTheme(): void {
    this.theme =
      this.theme === "auto"
        ? this.dark
          ? "light"
          : "dark"
        : this.theme === "dark"
          ? "light"
          : "dark";
    store("squall.theme", this.theme);
    this.paint();
  }

  setShortcuts(on: boolean): void {
    this.shortcuts = on;
    store("squall.shortcuts", on ? "on" : "off");
  }

  setFirstSteps(on: boolean): void {
    this.firstSteps = on;
    store("squall.first-steps", on ? "" : "off");
  }

  tell(kind: Toast["kind"], text: string): void {
    const id = this.#next++;
    this.toasts = [...this.toasts.slice(-3), { id, kind, text }];
    // Errors stay until they are dismissed.
    if (kind !== "bad") setTimeout(() => this.dismiss(id), 5000);
  }

  dismiss(id: number): void {
    this.toasts = this.toasts.filter((toast) => toast.id !== id);
  }
}

/** Whether a key is a command: a single key outside of text fields. */
export function isCommand(event: KeyboardEvent): boolean {
  const typing = (event.target as HTMLElement).closest(
    "input, select, textarea, dialog, [contenteditable]",
  );
  return session.shortcuts && !event.ctrlKey && !event.metaKey && !event.altKey && !typing;
}

export const session = new Session();
export const remembered = stored;
