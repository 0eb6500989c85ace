// Small charts. Each has the same numbers as a table.
import type { ComponentChildren } from "preact";
import { area, line, nice, runs, shares, stack } from "./shape";
import { Table } from "./table";
import { count } from "./time";

const day = 86_400_000;
const dates = /* @__PURE__ */ new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
/** date is a day in UTC: 19 Nov. */
const date = (time: number) => dates.format(time);

export interface Row {
  time: string; // the start of the day
  values: number[]; // one of each series
}

export interface Series {
  name: string;
  look: string; // the class of its area
}

const height = 40;

/**
 * StackedArea draws the values of days on top of each other. The first series is at the bottom. Days without a row are
 * left empty, because their values are not known.
 */
export function StackedArea({
  label,
  series,
  rows,
  days,
}: {
  label: string;
  series: Series[];
  rows: Row[];
  days: number;
}) {
  const times = rows.map((r) => Date.parse(r.time));
  const end = times.at(-1) ?? 0,
    begin = end - (days - 1) * day;
  const borders = stack(rows.map((r) => r.values));
  const top = nice(Math.max(...borders.map((b) => b.at(-1) ?? 0), 0));
  const x = (i: number) => ((times[i]! - begin) / Math.max(end - begin, 1)) * 100;
  const y = (value: number) => height - (value / top) * height;
  const edge = (first: number, last: number, border: number): [number, number][] => {
    const points = borders.slice(first, last + 1).map((b, i): [number, number] => [x(first + i), y(b[border]!)]);
    // A single day is as wide as its share of the chart.
    return first < last
      ? points
      : [
          [Math.max(x(first) - 50 / days, 0), points[0]![1]],
          [Math.min(x(first) + 50 / days, 100), points[0]![1]],
        ];
  };
  const spans = runs(times, 1.5 * day);
  const total = (i: number) => count(borders.at(i)?.at(-1));
  return (
    <figure class="chart">
      <figcaption class="sr">{label}</figcaption>
      <div class="chart-plot">
        <span class="chart-top" aria-hidden="true">
          {count(top)}
        </span>
        <svg
          viewBox={`0 0 100 ${height}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${label}: ${total(0)} on ${date(times[0] ?? 0)}, ${total(-1)} on ${date(end)}`}
        >
          <path class="chart-grid" d={`M0 0H100M0 ${height / 2}H100M0 ${height}H100`} />
          {series.map((s, i) => (
            <path
              key={s.name}
              class={s.look}
              d={spans.map(([first, last]) => area(edge(first, last, i + 1), edge(first, last, i))).join("")}
            />
          ))}
          {rows.map((r, i) => (
            <rect key={r.time} class="chart-day" x={x(i) - 50 / days} y="0" width={100 / days} height={height}>
              <title>{`${date(times[i]!)}: ${series
                .map((s, n) => `${count(r.values[n])} ${s.name}`)
                .reverse()
                .join(", ")}`}</title>
            </rect>
          ))}
        </svg>
      </div>
      <p class="chart-ends" aria-hidden="true">
        <span>{date(begin)}</span>
        <span>{date(end)}</span>
      </p>
      <details class="chart-numbers">
        <summary>The numbers</summary>
        <Table
          label={label}
          rows={rows.map((r, i) => ({ ...r, at: times[i]!, all: borders[i]?.at(-1) })).reverse()}
          id={(r) => r.time}
          columns={[
            { name: "Day", cell: (r) => date(r.at) },
            ...series.map((s, i) => ({ name: s.name, number: true, cell: (r: Row) => count(r.values[i]) })).reverse(),
            { name: "all", number: true, cell: (r) => count(r.all) },
          ]}
        />
      </details>
    </figure>
  );
}

/** Sparkline is a line without axes next to the number that it ends with. */
export function Sparkline({ label, values }: { label: string; values: number[] }) {
  if (values.length < 2) return null;
  const top = Math.max(...values, 1);
  const points = values.map((v, i): [number, number] => [(i / (values.length - 1)) * 100, 22 - (v / top) * 20]);
  return (
    <svg
      class="sparkline"
      viewBox="0 0 100 24"
      preserveAspectRatio="none"
      role="img"
      aria-label={`${label}: ${values.map((v) => count(v)).join(", ")}`}
    >
      <path d={line(points)} />
    </svg>
  );
}

export interface Bar {
  name: ComponentChildren;
  value: number;
  text?: ComponentChildren; // shown instead of the value
  look?: string; // the class of the bar
}

/** Bars is a table with a bar for each number. */
export function Bars({ label, head, rows }: { label: string; head: [string, string]; rows: Bar[] }) {
  const top = Math.max(...rows.map((r) => r.value), 1);
  return (
    <table class="bars">
      <caption class="sr">{label}</caption>
      <thead class="sr">
        <tr>
          <th scope="col">{head[0]}</th>
          <th scope="col">{head[1]}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((r, i) => (
          <tr key={i}>
            <th scope="row">{r.name}</th>
            <td>
              <Share of={r.value} whole={top} look={r.look} />
              <span>{r.text ?? count(r.value)}</span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Share is a bar that is as long as a value is of the whole. The number is next to it. */
export const Share = ({ of, whole, look = "bar-part" }: { of: number; whole: number; look?: string }) => (
  <svg class="bar share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
    <rect class="bar-back" width="100" height="4" />
    <rect class={look} width={shares([of], whole)[0]?.width} height="4" />
  </svg>
);

/** Stat is a number with its name. */
export const Stat = ({
  name,
  value,
  href,
  look,
  children,
}: {
  name: string;
  value: ComponentChildren;
  href?: string;
  look?: "wrong";
  children?: ComponentChildren;
}) => (
  <div class="stat">
    <dt>{href ? <a href={href}>{name}</a> : name}</dt>
    <dd class={look}>
      <span class="stat-value">{value}</span>
      {children}
    </dd>
  </div>
);
