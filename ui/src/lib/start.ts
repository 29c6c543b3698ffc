// Starts a run on the daemon, and opens the page that shows it.

import { post } from "./api";
import { live } from "./live.svelte";
import { route } from "./route.svelte";
import type { Run } from "./types";

/** Name of the ports' holder, as shown to other users. */
const OWNER = "web page";

export async function start(path: "/runs" | "/captures" | "/tests", body: object): Promise<Run> {
  const answer = await post<Run | { run: Run }>(path, { owner: OWNER, ...body });
  const run = "run" in answer ? answer.run : answer;
  live.put(run);
  return run;
}

export async function startAndShow(body: object): Promise<void> {
  const run = await start("/runs", body);
  route.go("run", { id: run.id });
}
