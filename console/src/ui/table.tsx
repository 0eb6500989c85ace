import type { ComponentChildren } from "preact";
import { canGoBack, param, withParams } from "./router";
import { many } from "./time";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  head?: ComponentChildren; // shown in the head instead of the name
  order?: string; // the field that the server sorts by
  wide?: boolean; // left out on narrow screens
  number?: boolean;
  roomy?: boolean; // the column has long names
  hidden?: boolean; // the name is for screen readers only
}

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
}

export function Table<T>({ label, columns, rows, id }: TableProps<T>) {
  const now = param("order");
  return (
    <div class="table" role="region" aria-label={label} tabIndex={0} onKeyDown={step}>
      <table role="table">
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((c) => {
              const up = now === c.order,
                down = now === `${c.order} desc`;
              return (
                <th
                  key={c.name}
                  scope="col"
                  role="columnheader"
                  class={classes(c)}
                  aria-sort={c.order && (up || down) ? (up ? "ascending" : "descending") : undefined}
                >
                  {c.order ? (
                    <a href={withParams({ order: up ? `${c.order} desc` : c.order })}>
                      {c.name}
                      <span aria-hidden="true">{up ? " ↑" : down ? " ↓" : ""}</span>
                    </a>
                  ) : c.head ? (
                    c.head
                  ) : c.hidden ? (
                    <span class="sr">{c.name}</span>
                  ) : (
                    c.name
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={id(row)} role="row">
              {columns.map((c) => (
                <td key={c.name} role="cell" class={classes(c)} data-name={c.hidden || c.head ? undefined : c.name}>
                  {c.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/**
 * step moves the focus between rows with the arrow keys, Home and End: to the focusable element in
 * the same column, or else in the row.
 */
function step(e: KeyboardEvent) {
  const at = e.target as HTMLElement,
    all = [...(e.currentTarget as HTMLElement).querySelectorAll<HTMLTableRowElement>("tbody tr")];
  const now = all.findIndex((row) => row.contains(at));
  const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: all.length - 1 }[e.key];
  if (to === undefined || e.ctrlKey || e.metaKey || e.altKey || at.matches("select, input:not([type=checkbox])"))
    return;
  const cell = at.closest("td")?.cellIndex ?? 0,
    row = all[to];
  const next = row?.cells[cell]?.querySelector<HTMLElement>(reachable) ?? row?.querySelector<HTMLElement>(reachable);
  if (!next) return;
  e.preventDefault();
  next.focus();
}

const reachable = "a[href], button, input, summary";

const classes = (c: { wide?: boolean; number?: boolean; roomy?: boolean }) =>
  [c.wide && "wide", c.number && "number", c.roomy && "roomy"].filter(Boolean).join(" ") || undefined;

/** Pager links the next page. Tokens only lead forward; the browser's history leads back. */
export function Pager({
  next,
  total,
  one,
  more = `${one}s`,
  at = "page",
}: {
  next?: string;
  total?: string | number;
  one: string;
  more?: string;
  at?: string;
}) {
  const inside = param(at) !== "";
  if (!next && !inside && !Number(total ?? 0)) return null;
  return (
    <nav class="pager" aria-label={`Pages of ${more}`}>
      <span class="hint">{total !== undefined && many(total, one, more)}</span>
      {inside && (
        <a class="button small" href={withParams({ [at]: undefined })}>
          First page
        </a>
      )}
      {inside && canGoBack() && (
        <button type="button" class="small" onClick={() => history.back()}>
          Previous
        </button>
      )}
      {next && (
        <a class="button small" rel="next" href={withParams({ [at]: next })}>
          Next
        </a>
      )}
    </nav>
  );
}
