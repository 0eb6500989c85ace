// The roles that can be given.
import { get } from "./api";

/** rolesHere are the roles that the caller sees, by name: the built-in ones and those of groups. */
export const rolesHere = get("/iam/v2beta1/roles", { query: { page_size: 200, order_by: "name" } });
