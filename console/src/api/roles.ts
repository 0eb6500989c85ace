// The roles that can be granted.
import { get } from "./api";

/** rolesHere are the roles that the caller sees, by name: built-in roles and roles of groups. */
export const rolesHere = get("/iam/v2beta1/roles", { query: { page_size: 200, order_by: "name" } });
