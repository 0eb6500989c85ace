// Names of resources, by their uids. The names that one rendering needs are requested together.
import { type Signal, signal } from "@preact/signals";
import { Fault, get, post, type Schema } from "./api";
import { ask, whoami } from "./query";

export type NameOf = Schema<"holdfast.access.v1.ResourceName">;

const most = 500; // names in one call
const known = new Map<string, Signal<NameOf | null | undefined>>();
let wanted: string[] = [];

/** nameOf is the name of a uid: undefined until it is known, null if it has none or the caller may not see it. */
export function nameOf(uid: string): Signal<NameOf | null | undefined> {
  let name = known.get(uid);
  if (!name) {
    name = signal<NameOf | null | undefined>(undefined);
    known.set(uid, name);
    if (uid === "")
      name.value = null; // no resource has this uid
    else if (wanted.push(uid) === 1) setTimeout(lookUp, 5);
    if (known.size > 5_000) known.delete(known.keys().next().value!);
  }
  return name;
}

async function lookUp() {
  const all = wanted;
  wanted = [];
  for (let i = 0; i < all.length; i += most) {
    const uids = all.slice(i, i + most);
    const answers = new Map<string, NameOf>();
    try {
      const { names } = await post("/access/v1/names", { body: { uids } }).send();
      for (const n of names ?? []) answers.set(n.uid ?? "", n);
    } catch {
      // a resource without a name is shown as its uid
    }
    for (const uid of uids) {
      const name = known.get(uid);
      if (name) name.value = answers.get(uid) ?? null;
    }
  }
}

/** forgetNames clears the cache, after a resource was renamed. */
export const forgetNames = () => known.clear();

export const isUID = (text: string) => /^[0-9a-f]{40}(\/[0-9a-f]{16})*$/.test(text);

/** resolve returns the uid that a person means by a text: a uid, a path of names, or "me". */
export async function resolve(text: string, ...kinds: string[]): Promise<string> {
  if (text === "" || isUID(text)) return text;
  if (text === "me" && kinds.includes("identities")) return (await ask(whoami)).subject ?? "";
  let failed: unknown;
  for (const kind of kinds) {
    try {
      const { resources = [] } = await ask(get("/access/v1/resolve", { query: { path: text, kind } }));
      if (resources.length > 1) throw await ambiguous(text, resources);
      if (resources[0]?.uid) return resources[0].uid;
    } catch (e) {
      if (e instanceof Fault && e.status === 0) throw e;
      failed ??= e;
    }
  }
  throw failed;
}

/**
 * suggestions maps labels to uids. A label that several resources share is followed by the uid of each, so that nobody
 * chooses one of them for another.
 */
export function suggestions(all: Iterable<readonly [label: string, uid: string]>): Map<string, string> {
  const uids = new Map<string, Set<string>>();
  for (const [label, uid] of all) if (label && uid) uids.set(label, (uids.get(label) ?? new Set()).add(uid));
  return new Map(
    [...uids].flatMap(([label, same]) =>
      [...same].map((uid) => [same.size > 1 ? `${label} (${uid})` : label, uid] as const),
    ),
  );
}

/**
 * identify returns the uid of the person or workload that a text names. The server decides, because suggested contains
 * only some identities. If the server knows none that the caller may list, identify returns the suggested one, but only
 * if suggested contains all.
 */
export async function identify(
  text: string,
  suggested: ReadonlyMap<string, string>,
  all: boolean,
  ask = (text: string) => resolve(text, "identities"),
): Promise<string> {
  const uid = suggested.get(text);
  if (uid && text.endsWith(`(${uid})`)) return uid;
  let found: string;
  try {
    found = await ask(text);
  } catch (e) {
    if (uid && all && e instanceof Fault && e.status === 404) return uid;
    throw e;
  }
  if (!uid || uid === found) return found;
  throw new Fault(0, `Several are called ${text}: ${uid}, ${found}. Enter an e-mail address or a uid.`, "");
}

/** ambiguous is the error for a text that names several people or workloads. It lists them. */
async function ambiguous(text: string, found: Schema<"holdfast.access.v1.ResolvedResource">[]): Promise<Fault> {
  const { people = [] } = await ask(get("/access/v1/people", { query: { query: text, page_size: 200 } }));
  const lines = found.map(({ uid }) => {
    const p = people.find((person) => person.uid === uid);
    return [p?.displayName || p?.name, p?.emails?.join(", "), uid].filter(Boolean).join(" ");
  });
  return new Fault(0, `${found.length} are called ${text}: ${lines.join("; ")}. Enter an e-mail address or a uid.`, "");
}

/** parentOf is the uid of a resource's group, or "". */
export const parentOf = (uid: string) => uid.slice(0, Math.max(0, uid.lastIndexOf("/")));

/** pathOf are the uids of all groups above a resource, the organization first, and its own uid. */
export function pathOf(uid: string): string[] {
  const segments = uid.split("/");
  return segments.map((_, i) => segments.slice(0, i + 1).join("/"));
}
