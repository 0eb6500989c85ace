import { go, param, params, withParams } from "./router";
import type { Column } from "./table";

const short = (uid: string | undefined) => uid?.split("/").pop() ?? "";

/**
 * useSelection manages the selected rows. The address contains the selection, as the
 * last parts of their uids.
 */
export function useSelection<T extends { uid?: string }>(rows: T[], name: (row: T) => string) {
  const ids = params("selected");
  const chosen = rows.filter((row) => ids.includes(short(row.uid)));
  const set = (now: T[]) =>
    go(withParams({ selected: now.map((row) => short(row.uid)), page: param("page") }), { replace: true });
  const toggle = (row: T) => set(chosen.includes(row) ? chosen.filter((other) => other !== row) : [...chosen, row]);
  const all = rows.length > 0 && chosen.length === rows.length;
  const column: Column<T> = {
    name: "Select",
    head: <input type="checkbox" aria-label="Select all rows" checked={all} onChange={() => set(all ? [] : rows)} />,
    cell: (row) => (
      <input
        type="checkbox"
        aria-label={`Select ${name(row)}`}
        checked={chosen.includes(row)}
        onChange={() => toggle(row)}
      />
    ),
  };
  return { chosen, column, clear: () => set([]) };
}
