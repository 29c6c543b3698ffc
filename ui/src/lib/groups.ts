// Runs that belong together: a session of Open Traffic Generator is several runs, one of its
// traffic and one for each capture, which are one row of the list.

import type { Run } from "./types";

export interface Group {
  /** The run that names the group: its traffic, or its newest capture. */
  head: Run;
  /** The others, newest first. */
  rest: Run[];
}

const ofSession = ({ kind }: Run): boolean => kind === "otg";

/** Whether a run of a session captures and sends nothing. */
const isCapture = ({ streams }: Run): boolean => streams === 0;

/** Whether a capture began while the traffic of a later run of the list had not ended. */
const during = (capture: Run, traffic: Run): boolean =>
  traffic.ended === null || capture.started <= traffic.ended;

/** Groups runs, newest first. */
export function grouped(runs: Run[]): Group[] {
  const groups: Group[] = [];
  for (const run of runs) {
    const group = groups.at(-1);
    if (!group || !ofSession(run) || !ofSession(group.head) || run.owner !== group.head.owner)
      groups.push({ head: run, rest: [] });
    else if (isCapture(run))
      // A capture before the traffic of its group began, or another one of captures alone.
      group.rest.push(run);
    else if (isCapture(group.head) && during(group.head, run))
      groups.splice(-1, 1, { head: run, rest: [group.head, ...group.rest] });
    else groups.push({ head: run, rest: [] });
  }
  return groups;
}

/** The captures of a group, in words. */
export const restOf = ({ head, rest }: Group): string =>
  `${rest.length} ${isCapture(head) ? "more " : ""}${rest.length === 1 ? "capture" : "captures"}`;
