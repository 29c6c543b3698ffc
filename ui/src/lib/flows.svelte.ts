// Flows in the draft: common settings, address pools, templates.

import { Answer } from "./asked.svelte";
import { draft, free } from "./draft.svelte";
import type { Applications } from "./generated";
import type { Pool, Template } from "./types";

class Known {
  #answer = new Answer<Applications>();

  all = $derived(this.#answer.value?.applications ?? []);
  layers = $derived(this.#answer.value?.layers ?? []);

  load = (): Promise<void> => this.#answer.once("/applications");
}

export const applications = new Known();

export const templatesOf = (): Template[] => draft.profile.template ?? [];
export const poolsOf = (): Pool[] => draft.profile.pool ?? [];

/** Assigns clients to the first port and servers to the second, unless ports are already chosen. */
function stand(): void {
  const [first, second] = draft.portNames;
  const chosen = draft.profile.flows ?? {};
  draft.profile.flows = {
    ...(first && !chosen.clients && !chosen.servers ? { clients: first } : {}),
    ...(second && !chosen.clients && !chosen.servers ? { servers: second } : {}),
    ...chosen,
  };
}

export function addTemplate(template: Template): number {
  stand();
  return draft.add("template", template);
}

export function addPool(): void {
  const names = poolsOf().map(({ name }) => name);
  const name = free("pool 1", names);
  draft.profile.pool = [...poolsOf(), { name, addresses: ["16.0.0.1-16.0.0.254"] }];
}

export function renamePool(index: number, to: string): void {
  const pool = poolsOf()[index];
  if (!pool || !to || poolsOf().some(({ name }, i) => i !== index && name === to)) return;
  for (const template of templatesOf())
    for (const side of ["clients", "servers"] as const)
      if (template[side] === pool.name) template[side] = to;
  pool.name = to;
}

export function removePool(index: number): void {
  const rest = poolsOf().filter((_, i) => i !== index);
  if (rest.length) draft.profile.pool = rest;
  else delete draft.profile.pool;
}

export const EXAMPLE_TEMPLATES: Template[] = [
  {
    name: "web",
    clients: "office",
    servers: "48.0.0.1-48.0.0.16",
    app: "http",
    options: { body: "4 KiB", requests: 2 },
    cps: 100,
  },
  { name: "names", clients: "office", servers: "48.0.1.1", app: "dns", cps: 50 },
];

export function addExample(): void {
  if (!poolsOf().some(({ name }) => name === "office"))
    draft.profile.pool = [
      ...poolsOf(),
      { name: "office", addresses: ["16.0.0.1-16.0.3.254"], order: "random" },
    ];
  for (const template of structuredClone(EXAMPLE_TEMPLATES)) addTemplate(template);
}

/** Ways to define the load, with their titles. */
export const LOADS = {
  cps: "flows per second (CPS)",
  users: "users, each with one flow at a time",
  weight: "share of the total load",
  called: "as many as flows of other templates begin",
} as const;
export type LoadKind = keyof typeof LOADS;

export const loadOf = (template: Template): LoadKind =>
  template.called === true
    ? "called"
    : template.users !== undefined
      ? "users"
      : template.weight !== undefined
        ? "weight"
        : "cps";

/** Addresses in the notation of the text field. */
export const listed = (value: unknown): string =>
  Array.isArray(value) ? value.join(", ") : String(value ?? "");

export const addresses = (text: string): string | string[] | undefined => {
  const parts = text
    .split(/[,\n]+/)
    .map((part) => part.trim())
    .filter(Boolean);
  return parts.length > 1 ? parts : parts[0];
};
