// Attacks in the draft.

import { assign, draft } from "./draft.svelte";
import type { Attack } from "./generated";

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

/** Adds attacks for these rules, or for one of them. Returns their index. */
export function attackWith(rules: string, sid?: string): number {
  const known = attacksOf().findIndex((attack) => rulesOf(attack).join() === rules);
  const index = known >= 0 ? known : addAttack(rules);
  const attack = attacksOf()[index];
  if (attack) assign(attack, "sid", sid);
  return index;
}
