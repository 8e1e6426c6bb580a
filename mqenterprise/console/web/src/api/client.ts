/** Calls of the console's API: JSON over the session's cookie; whatever changes something carries the CSRF token. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    /** The MQ_ERROR code's name, or empty. */
    override readonly name: string,
    /** A sentence that says what to do. */
    readonly detail: string,
  ) {
    super(detail);
  }
}

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

/** Longer than the server waits for a node: it answers first, with the node's silence as a state. */
const PATIENCE = 20_000;
const LARGEST_SENTENCE = 2000;

let token = "";
let signedOut: () => void = () => undefined;

export function setToken(value: string): void {
  token = value;
}

/** What is done when the session has ended, or the person has other rights than it says. */
export function onSignedOut(action: () => void): void {
  signedOut = action;
}

export function address(path: string, query: Query = {}): string {
  const found = new URL(`api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) for (const one of value) found.searchParams.append(name, String(one));
    else found.searchParams.set(name, String(value));
  }
  return found.href;
}

export function part(name: string): string {
  return encodeURIComponent(name);
}

/** An answer as it comes, a part at a time. It ends with an error if it is cut off. */
export async function parts(
  path: string,
  query: Query,
  signal: AbortSignal,
  onPart: (part: Uint8Array<ArrayBuffer>) => void,
): Promise<void> {
  const cut = () => new ApiError(0, "", "The answer was cut off before its end.");
  const response = await fetch(address(path, query), { credentials: "same-origin", cache: "no-store", signal }).catch(
    (error: unknown) => {
      throw signal.aborted ? error : new ApiError(0, "", "The console cannot be reached.");
    },
  );
  if (!response.ok) {
    const problem = (await response.json().catch(() => null)) as { detail?: unknown } | null;
    const detail = typeof problem?.detail === "string" ? problem.detail : `HTTP status ${response.status}`;
    throw new ApiError(response.status, "", detail.slice(0, LARGEST_SENTENCE));
  }
  const reader = response.body?.getReader();
  for (;;) {
    const { done, value } = (await reader?.read().catch((error: unknown) => {
      throw signal.aborted ? error : cut();
    })) ?? { done: true, value: undefined };
    if (done || !value) return;
    onPart(value);
  }
}

async function call<T>(method: string, path: string, query: Query, body: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRF-Token"] = token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(PATIENCE);
  let response: Response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "", limit.aborted ? "The console did not answer in time." : "The console cannot be reached.");
  }
  if (response.status === 204) return undefined as T;
  const content: unknown = await response.json().catch(() => null);
  if (!response.ok) {
    const problem = (content ?? {}) as { name?: unknown; detail?: unknown };
    if ((response.status === 401 || response.status === 403) && path !== "session") signedOut();
    throw new ApiError(
      response.status,
      typeof problem.name === "string" ? problem.name : "",
      typeof problem.detail === "string"
        ? problem.detail.slice(0, LARGEST_SENTENCE)
        : `The console answered with HTTP status ${response.status}.`,
    );
  }
  return content as T;
}

export const get = <T>(path: string, query: Query = {}, signal?: AbortSignal) =>
  call<T>("GET", path, query, undefined, signal);
export const post = <T>(path: string, body: unknown = {}, query: Query = {}) => call<T>("POST", path, query, body);
export const patch = <T>(path: string, body: unknown) => call<T>("PATCH", path, {}, body);
export const remove = <T>(path: string, query: Query = {}) => call<T>("DELETE", path, query, undefined);
