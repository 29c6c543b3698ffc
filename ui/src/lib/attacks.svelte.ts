// The part of the draft that attacks.

import { assign, draft, type Part } from "./draft.svelte";

export interface Attack extends Part {
  rules?: string | string[];
  template?: string;
  port?: string;
  port2?: string;
  sid?: string | string[];
  rate?: unknown;
  repeat?: unknown;
  engine?: string;
  near_miss?: string;
}

export const attacksOf = (): Attack[] => draft.parts("attack");

export const rulesOf = ({ rules }: Attack): string[] => (rules ? [rules].flat() : []);

export function addAttack(rules?: string): number {
  const port = draft.portNames[0];
  return draft.add("attack", {
    name: "attacks",
    ...(rules ? { rules } : {}),
    ...(port ? { port } : {}),
    rate: 100,
  });
}

/** Attacks of these rules, of all of them or of one; returns their place. */
export function attackWith(rules: string, sid?: string): number {
  const known = attacksOf().findIndex((attack) => rulesOf(attack).join() === rules);
  const index = known >= 0 ? known : addAttack(rules);
  const attack = attacksOf()[index];
  if (attack) assign(attack, "sid", sid);
  return index;
}
