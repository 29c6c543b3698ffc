// The daemon's native API. Errors are of type `ApiError`, with the fields of the daemon's error.

import type { Problem } from "./types";
import { authorization, servers, type Server } from "./servers.svelte";
import { session } from "./session.svelte";

export const BASE = "/squall/v1";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Problem[] = [],
  ) {
    super(message);
  }

  /** The message, and all details that it does not contain, one per line. */
  get lines(): string[] {
    const more = this.details.filter(({ message }) => !this.message.includes(message));
    return [this.message, ...more.map((d) => (d.path ? `${d.path}: ${d.message}` : d.message))];
  }
}

async function ask(
  method: string,
  path: string,
  body?: BodyInit,
  type?: string,
  server: Server = servers.current,
): Promise<Response> {
  let answer: Response;
  // Other daemons neither get cookies nor set them.
  const own = !server.url;
  const logins = session.logins;
  try {
    answer = await fetch(server.url + BASE + path, {
      method,
      body: body ?? null,
      headers: { ...(type ? { "content-type": type } : {}), ...authorization(server) },
      cache: "no-store",
      ...(own ? {} : { credentials: "omit" as const }),
    });
  } catch {
    if (server.url === servers.current.url) session.reachable = false;
    throw new ApiError(
      0,
      "unreachable",
      "the daemon does not answer; is `squall serve` still running?",
    );
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && own && !servers.current.url && logins === session.logins)
    session.loginNeeded = true;
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text) as {
      error: { code: string; message: string; details?: Problem[] };
    };
    throw new ApiError(answer.status, error.code, error.message, error.details ?? []);
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(answer.status, "http", text || `${answer.status} ${answer.statusText}`);
  }
}

async function json<T>(answer: Response): Promise<T> {
  const text = await answer.text();
  return (text ? JSON.parse(text) : {}) as T;
}

export const get = async <T>(path: string): Promise<T> => json<T>(await ask("GET", path));
/** Sends a GET request to a daemon other than the page's. */
export const getFrom = async <T>(server: Server, path: string): Promise<T> =>
  json<T>(await ask("GET", path, undefined, undefined, server));
export const blob = async (path: string): Promise<Blob> => (await ask("GET", path)).blob();
export const text = async (path: string): Promise<string> => (await ask("GET", path)).text();
export const post = async <T>(path: string, body: unknown = {}): Promise<T> =>
  json<T>(await ask("POST", path, JSON.stringify(body), "application/json"));
export const patch = async <T>(path: string, body: unknown): Promise<T> =>
  json<T>(await ask("PATCH", path, JSON.stringify(body), "application/json"));
export const remove = async (path: string): Promise<void> =>
  void (await ask("DELETE", path, undefined, "application/json"));
export const upload = async (name: string, octets: Blob): Promise<void> =>
  void (await ask("PUT", `/files/${encodeURIComponent(name)}`, octets, "application/octet-stream"));

/** A problem, the expected value and a hint, one per line. */
export const problemText = (problem: Problem | undefined): string | undefined =>
  problem && [problem.message, ...(problem.details ?? [])].join("\n");

/** The first line of an error. */
export const firstOf = (error: unknown): string =>
  error instanceof ApiError ? (problemText(error.details[0]) ?? error.message) : messageOf(error);

/** All lines of an error. */
export const linesOf = (error: unknown): string[] =>
  error instanceof ApiError ? error.lines : [messageOf(error)];

export const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);
