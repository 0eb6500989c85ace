import { clock } from "./defaults";

const steps: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/** ago is the distance of a time from now, in words. */
export function ago(at: Date, now = Date.now()): string {
  const seconds = (at.getTime() - now) / 1_000;
  for (const [unit, size] of steps)
    if (Math.abs(seconds) >= size) return words.format(Math.round(seconds / size), unit);
  return Math.abs(seconds) < 10 ? "just now" : words.format(Math.round(seconds), "second");
}

/** Time shows a relative time, and the exact one as a tooltip; the other way around if a person prefers that. */
export function Time({ at }: { at?: string }) {
  if (!at) return <span class="hint">never</span>;
  const when = new Date(at);
  const both = [ago(when), exact.format(when)];
  if (clock.now.value === "exact") both.reverse();
  return (
    <time dateTime={at} title={both[1]}>
      {both[0]}
    </time>
  );
}

/** End is when a role ends. */
export const End = ({ at }: { at?: string }) => (at ? <Time at={at} /> : <span class="hint">no end</span>);

/** bytes is a size for people. */
export function bytes(of: string | number | undefined): string {
  let n = Number(of ?? 0);
  for (const unit of ["B", "KB", "MB", "GB", "TB"]) {
    if (n < 1_000 || unit === "TB") return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1_000;
  }
  return "";
}

/** count is a number with separators. */
export const count = (n: string | number | undefined) => Number(n ?? 0).toLocaleString("en");

/** many is a number of things: 1 tag, 2 tags. */
export const many = (n: string | number | undefined, one: string, more = `${one}s`) =>
  `${count(n)} ${Number(n ?? 0) === 1 ? one : more}`;

/** word makes a name of the API readable: SEVERITY_CRITICAL with the prefix SEVERITY becomes critical. */
export const word = (name: string | undefined, prefix: string) =>
  (name ?? "")
    .replace(new RegExp(`^${prefix}_`), "")
    .toLowerCase()
    .replaceAll("_", " ");

/** eventName removes the common parts of event types: …api.iam.group.created.v1 becomes iam.group.created. */
export const eventName = (type: string | undefined) =>
  (type ?? "").replace(/^dev\.holdfast\.(api\.)?(platform\.)?/, "").replace(/\.v\d+$/, "");
