// The group that a view is about: the group in the address, the first organization, or the first group with a role.
import { nameOf } from "../api/names";
import { organizations, useQuery } from "../api/query";
import { useFolders, useHeld } from "../api/reach";
import { Field, Filters } from "./form";
import { param } from "./router";

/**
 * useScope returns the uid of the group, which is "" until it is known, and its path. nothing reports that the caller
 * holds no role, so that there is no group.
 */
export function useScope(): { group: string; path: string; nothing: boolean } {
  const first = useQuery(organizations);
  const folders = useFolders();
  const held = useHeld();
  const known = first.data !== undefined && folders !== undefined;
  const own = known ? first.data?.groups?.[0]?.uid || folders[0]?.uid || held?.[0]?.group?.id || "" : "";
  const group = param("group") || own;
  return { group, path: nameOf(group).value?.path ?? group, nothing: group === "" && known };
}

/** Scope is the field that selects the group of a view. */
export function Scope({ path }: { path: string }) {
  return (
    <Filters label="Group" names={{ group: ["groups"] }}>
      <Field
        key={path}
        name="group"
        label="In the group, and below it"
        value={path}
        placeholder="acme/platform"
        first
      />
    </Filters>
  );
}
