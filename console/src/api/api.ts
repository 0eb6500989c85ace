// The client of the public JSON API, with types generated from its description. The console uses no other source of
// data. A cookie identifies the session; scripts never see a token.
import createClient, { createFinalURL, createQuerySerializer, defaultPathSerializer } from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schema<N extends keyof components["schemas"]> = components["schemas"][N];

type Method = "get" | "post" | "put" | "patch" | "delete";
type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never;
}[keyof paths];
type Answer<O> = O extends { responses: { 200: { content: { "application/json": infer T } } } } ? T : unknown;
type Query<O> = O extends { parameters: { query?: infer Q } } ? { query?: Q } : unknown;
type Path<O> = O extends { parameters: { path: infer A } } ? { path: A } : unknown;
type Body<O> = O extends { requestBody?: { content: { "application/json": infer B } } } ? { body?: B } : unknown;
// A version is the updateTime of the resource to change.
type Parts<O> = Query<O> & Path<O> & Body<O> & { version?: string };

/** A Request can be sent and shown as a command. Its key identifies it. */
export interface Request<T> {
  method: string;
  url: string; // without the origin
  key: string;
  body?: unknown;
  send: (signal?: AbortSignal) => Promise<T>;
}

/** A Fault is an error that the server returned, with the server's message. */
export class Fault extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly requestID: string,
    readonly fields: { field: string; description: string }[] = [],
    readonly signInAgain = false, // the request needs a recent sign-in
    readonly stale?: { uid: string; version: string }, // the resource has changed since this version
    readonly waiting = false, // the image waits to be inspected
  ) {
    super(message);
  }
}

const client = createClient<paths>({
  baseUrl: location.origin,
  credentials: "same-origin",
  headers: { "Holdfast-Console": "1" },
});
const querySerializer = createQuerySerializer();

function request<M extends Method, P extends PathOf<M>>(
  method: M,
  path: P,
  parts: Parts<paths[P][M]>,
): Request<Answer<paths[P][M]>> {
  const {
    path: inPath,
    query,
    body,
    version,
  } = parts as { path?: Record<string, string>; query?: Record<string, unknown>; body?: unknown; version?: string };
  const headers = version ? { "If-Match": `"${version}"` } : undefined;
  const url = createFinalURL(path as string, {
    baseUrl: "",
    params: { path: inPath ?? {}, query: query ?? {} },
    querySerializer,
    pathSerializer: defaultPathSerializer,
  });
  const send = async (signal?: AbortSignal) => {
    const answer = await client
      .request(method as never, path as never, { params: { path: inPath, query }, body, headers, signal } as never)
      .catch((e: unknown) => {
        if (signal?.aborted) throw e;
        throw new Fault(0, "The server cannot be reached. Check the connection, and try again.", "");
      });
    const { data, error, response } = answer as { data?: unknown; error?: unknown; response: Response };
    if (response.ok) return data as Answer<paths[P][M]>;
    throw faultOf(response, error, version && { uid: inPath?.uid ?? "", version });
  };
  return { method: method.toUpperCase(), url, key: `${method} ${url} ${body ? JSON.stringify(body) : ""}`, body, send };
}

/** get, post, put, patch and del describe a call; nothing is sent before send is called. */
export const get = <P extends PathOf<"get">>(path: P, parts: Parts<paths[P]["get"]>) => request("get", path, parts);
export const post = <P extends PathOf<"post">>(path: P, parts: Parts<paths[P]["post"]>) => request("post", path, parts);
export const put = <P extends PathOf<"put">>(path: P, parts: Parts<paths[P]["put"]>) => request("put", path, parts);
export const patch = <P extends PathOf<"patch">>(path: P, parts: Parts<paths[P]["patch"]>) =>
  request("patch", path, parts);
export const del = <P extends PathOf<"delete">>(path: P, parts: Parts<paths[P]["delete"]>) =>
  request("delete", path, parts);

interface Status {
  message?: string;
  details?: {
    "@type"?: string;
    fieldViolations?: { field: string; description: string }[];
    violations?: { type?: string }[];
  }[];
}

function faultOf(response: Response, error: unknown, changing?: Fault["stale"] | ""): Fault {
  if (response.status === 401) signIn();
  const status = (typeof error === "object" && error ? error : {}) as Status;
  const fields = status.details?.flatMap((d) => d.fieldViolations ?? []) ?? [];
  const violates = (type: string) => status.details?.some((d) => d.violations?.some((v) => v.type === type)) ?? false;
  const message = status.message || `The server answered with status ${response.status}.`;
  return new Fault(
    response.status,
    message,
    response.headers.get("X-Request-Id") ?? "",
    fields,
    violates("SIGN_IN_AGAIN"),
    (response.status === 409 && changing) || undefined,
    violates("IMAGE_NOT_INDEXED"),
  );
}

type WatchPath = {
  [P in keyof paths]: paths[P]["get"] extends { responses: { 200: { content: { "text/event-stream": unknown } } } }
    ? P
    : never;
}[keyof paths];
type Told<P extends WatchPath> = paths[P]["get"] extends {
  responses: { 200: { content: { "text/event-stream": infer T } } };
}
  ? T
  : never;

/**
 * watch opens a stream once and calls back for each message until it ends. It returns when the
 * server ends the stream, and throws a Fault if the stream was refused or interrupted.
 */
export async function watch<P extends WatchPath>(
  path: P,
  parts: Query<paths[P]["get"]>,
  tell: (told: Told<P>) => void,
  signal: AbortSignal,
): Promise<void> {
  const { query } = parts as { query?: Record<string, unknown> };
  const url = createFinalURL(path as string, {
    baseUrl: "",
    params: { path: {}, query: query ?? {} },
    querySerializer,
    pathSerializer: defaultPathSerializer,
  });
  const cutOff = () => new Fault(0, "The server cannot be reached.", "");
  const response = await fetch(url, { credentials: "same-origin", headers: { "Holdfast-Console": "1" }, signal }).catch(
    () => {
      throw cutOff();
    },
  );
  if (!response.ok || !response.body) throw faultOf(response, await response.json().catch(() => undefined));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "",
    kind = "";
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw cutOff();
    });
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") kind = "";
      if (line.startsWith("event: ")) kind = line.slice(7);
      if (!line.startsWith("data: ")) continue;
      const data: unknown = JSON.parse(line.slice(6));
      if (kind === "error") throw streamFault(data, response);
      tell(data as Told<P>);
    }
  }
}

/** streamFault is the error that ended a stream after it had begun. */
function streamFault(data: unknown, response: Response): Fault {
  const { code, message } = data as { code?: number; message?: string };
  const ended = code === 14 || code === 16; // a new request shows whether there is another session
  return new Fault(ended ? 0 : 400, message ?? "", response.headers.get("X-Request-Id") ?? "");
}

const askedAt = "holdfast-asked-to-sign-in";

/**
 * signIn opens the sign-in pages, which lead back to this view. It does so at most once in ten
 * seconds: if the server refuses a new session, the error is shown instead.
 */
function signIn() {
  const last = Number(sessionStorage.getItem(askedAt) ?? 0);
  if (Date.now() - last < 10_000) return;
  sessionStorage.setItem(askedAt, String(Date.now()));
  location.assign(`/signin?return=${encodeURIComponent(location.pathname + location.search)}`);
}
