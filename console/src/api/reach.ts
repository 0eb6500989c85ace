// The groups on which the caller holds capabilities. The answers are about the first 1,000 roles of the caller, because
// the server returns no more.
import type { Schema } from "./api";
import { useQuery, whoami } from "./query";

type Held = Schema<"holdfast.auth.WhoAmI.Capability">;

const covers = (group: string, uid: string) => uid === group || uid.startsWith(`${group}/`);

/** topmost returns the groups that are not below another one of them, sorted. */
export const topmost = (groups: string[]): string[] =>
  [...new Set(groups)].filter((g) => !groups.some((other) => other !== g && covers(other, g))).sort();

/** overlap returns the groups that both sets of subtrees contain. */
export const overlap = (a: string[], b: string[]): string[] =>
  topmost(a.flatMap((x) => b.filter((y) => covers(x, y) || covers(y, x)).map((y) => (covers(x, y) ? y : x))));

/** gives reports whether a role, limited to the capabilities of the token, has a capability. */
const gives = (held: Held, capability: string) =>
  (held.role?.capabilities ?? []).includes(capability) &&
  ((held.capabilities ?? []).length === 0 || (held.capabilities ?? []).includes(capability));

/** reachOf returns the topmost groups on which the roles have all of the capabilities. */
export function reachOf(roles: Held[], ...capabilities: string[]): string[] {
  const on = (capability: string) => topmost(roles.filter((h) => gives(h, capability)).map((h) => h.group?.id ?? "-"));
  return capabilities.map(on).reduce(overlap);
}

/** useHeld returns the roles of the caller, or undefined until they are known. */
export const useHeld = (): Held[] | undefined => {
  const { data } = useQuery(whoami);
  return data && (data.capabilities ?? []);
};

/**
 * useReach returns the topmost groups on which the caller holds all of the capabilities, or undefined until they are
 * known. With a group, it returns only that group or groups below it.
 */
export function useReach(capabilities: string[], group = ""): string[] | undefined {
  const held = useHeld();
  if (!held || capabilities.length === 0) return undefined;
  const reach = reachOf(held, ...capabilities);
  return group ? overlap(reach, [group]) : reach;
}

/** useFolders returns the topmost groups, other than organizations, that the caller may list. */
export function useFolders(): { uid: string; name: string }[] | undefined {
  const held = useHeld();
  if (!held) return undefined;
  const reach = reachOf(held, "groups.list").filter((uid) => uid.includes("/"));
  const names = new Map(held.map((h) => [h.group?.id ?? "", h.group?.name ?? ""]));
  return reach
    .map((uid) => ({ uid, name: names.get(uid) ?? "" }))
    .sort((a, b) => a.name.localeCompare(b.name) || a.uid.localeCompare(b.uid));
}
