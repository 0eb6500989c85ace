// People with their roles.
import { get, type Schema } from "./api";
import { useFirstPages } from "./pages";

export type Person = Schema<"holdfast.access.v1.Person">;
export type Binding = Schema<"holdfast.iam.v2beta1.RoleBinding">;

export const people = (query: string, page_size = 200, page_token?: string) =>
  get("/access/v1/people", { query: { query: query || undefined, page_size, page_token } });

export const bindingsBelow = (group: string, page_token?: string) =>
  get("/iam/v2beta1/roleBindings", { query: { "uidp.descendants_of": group, page_size: 200, page_token } });

/** A Member is a person with all roles that they hold in a group and below it. */
export interface Member {
  uid: string;
  name: string;
  emails: string[];
  seen?: string;
  roles: Binding[];
}

/** members puts the roles of each person together, sorted by name. Workloads are left out. */
export function members(bindings: Binding[], known: Person[]): Member[] {
  const persons = new Map(known.map((p) => [p.uid ?? "", p]));
  const all = new Map<string, Member>();
  for (const b of bindings) {
    const uid = b.identity?.uid ?? "";
    if (uid === "" || uid.includes("/")) continue;
    const person = persons.get(uid);
    const emails = person?.emails?.length ? person.emails : [b.identity?.email ?? ""].filter(Boolean);
    const member = all.get(uid) ?? {
      uid,
      name: person?.displayName || person?.name || b.identity?.displayName || b.identity?.name || emails[0] || "",
      emails,
      seen: person?.lastSeenTime,
      roles: [],
    };
    member.roles.push(b);
    all.set(uid, member);
  }
  return [...all.values()].sort((a, b) => a.name.localeCompare(b.name) || a.uid.localeCompare(b.uid));
}

/** initials are the first letters of the first and the last word of a name, or of an e-mail address. */
export function initials(name: string): string {
  const words = name
    .replace(/@.*/, "")
    .split(/[^\p{L}\p{N}]+/u)
    .filter(Boolean);
  const first = words[0] ?? "?",
    last = words.length > 1 ? words.at(-1)! : "";
  return [first, last]
    .map((w) => [...w][0] ?? "")
    .join("")
    .toUpperCase();
}

/** useMembers returns the people among the first 1,000 roles of a group. */
export function useMembers(group: string) {
  const { pages, ...state } = useFirstPages((token) => bindingsBelow(group, token));
  const known = useFirstPages((token) => people("", 200, token));
  const bindings = pages.flatMap((p) => p.roleBindings ?? []);
  return {
    ...state,
    loading: state.loading || known.loading,
    people: members(
      bindings,
      known.pages.flatMap((p) => p.people ?? []),
    ),
  };
}
