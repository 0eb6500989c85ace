// The group that a view is about: the group in the address, or the first organization.
import { nameOf } from "../api/names";
import { organizations, useQuery } from "../api/query";
import { Field, Filters } from "./form";
import { param } from "./router";

/** useScope returns the uid of the group, which is "" until it is known, and its path. */
export function useScope(): { group: string; path: string; nothing: boolean } {
  const first = useQuery(organizations);
  const group = param("group") || first.data?.groups?.[0]?.uid || "";
  return { group, path: nameOf(group).value?.path ?? group, nothing: group === "" && first.data !== undefined };
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
