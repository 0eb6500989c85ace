// The group that a view is about: one of the address, or the first organization.
import { nameOf } from "../api/names";
import { organizations, useQuery } from "../api/query";
import { Field, Filters } from "./form";
import { param } from "./router";

/** useScope returns the uid of the group that is looked at, "" until it is known, and its path. */
export function useScope(): { group: string; path: string; nothing: boolean } {
  const first = useQuery(organizations);
  const group = param("group") || first.data?.groups?.[0]?.uid || "";
  return { group, path: nameOf(group).value?.path ?? group, nothing: group === "" && first.data !== undefined };
}

/** Scope is the field in which a view is given another group. */
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
