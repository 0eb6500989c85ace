// Findings: severity, counts and coverage.
import type { Schema } from "../api/api";
import { advisoryPage } from "./router";
import type { Column } from "./table";
import { count, many, word } from "./time";

type Finding = Schema<"holdfast.findings.v1.Finding">;
type Counts = Schema<"holdfast.findings.v1.SeverityCounts">;

export const severities = ["critical", "high", "medium", "low", "unknown"] as const;

export function Severity({ of, score }: { of?: string; score?: string }) {
  const name = word(of, "SEVERITY") || "unknown";
  return (
    <span class={`severity ${name}`}>
      {name}
      {score ? ` ${score}` : ""}
    </span>
  );
}

/** Counts shows the open findings by severity. */
export function SeverityCounts({ of }: { of?: Counts }) {
  const some = severities.filter((s) => Number(of?.[s] ?? 0) > 0);
  if (some.length === 0) return <span class="hint">none open</span>;
  return (
    <span class="counts">
      {some.map((s) => (
        <span key={s} class={`severity ${s}`} title={s}>
          <span class="sr">{s} </span>
          {count(of?.[s])}
        </span>
      ))}
    </span>
  );
}

/** SeverityBar draws the counts as shares of a bar. */
export function SeverityBar({ of }: { of?: Counts }) {
  const total = severities.reduce((sum, s) => sum + Number(of?.[s] ?? 0), 0);
  let x = 0;
  return (
    <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
      <rect class="bar-back" width="100" height="4" />
      {total > 0 &&
        severities.map((s) => {
          const width = (Number(of?.[s] ?? 0) / total) * 100;
          const at = x;
          x += width;
          return <rect key={s} class={`bar-${s}`} x={at} width={width} height="4" />;
        })}
    </svg>
  );
}

/** GroupCoverage shows how many images are inspected, without which "none open" means nothing. */
export function GroupCoverage({ of }: { of?: Schema<"holdfast.findings.v1.GroupCoverage"> }) {
  const p = of?.packages;
  if (!of?.images) return <p class="coverage">Nothing was pushed yet, so nothing is known.</p>;
  const failed = of.notUnderstood ? `, ${count(of.notUnderstood)} not inspectable` : "";
  return (
    <p class="coverage">
      Known: {count(of.indexed)} of {many(of.images, "image")} inspected
      {of.waiting ? `, ${count(of.waiting)} waiting` : ""}
      {failed}; advisories cover {count(p?.covered)} of {many(p?.packages, "package")}
      {p?.notCovered ? `, nothing is known about ${count(p.notCovered)}` : ""}.
    </p>
  );
}

export function Exploited({ of }: { of: Finding }) {
  return (
    <span class="exploited">
      {of.kev && (
        <span
          class="severity critical"
          title={of.kevRansomware ? "Known to be exploited, by ransomware too" : "Known to be exploited"}
        >
          KEV
        </span>
      )}
      {of.epss !== undefined && (
        <span
          class="hint"
          title={`More likely to be exploited than ${((of.epssPercentile ?? 0) * 100).toFixed(0)} % of all`}
        >
          {(of.epss * 100).toFixed(1)} %
        </span>
      )}
    </span>
  );
}

/** findingColumns are the columns of every list of findings. */
export const findingColumns: Column<Finding>[] = [
  { name: "Severity", cell: (f) => <Severity of={f.severity} score={f.score} /> },
  {
    name: "Advisory",
    cell: (f) => (
      <>
        <a href={advisoryPage(f.advisoryId ?? "")}>{f.aliases?.find((a) => a.startsWith("CVE-")) ?? f.advisoryId}</a>
        <small class="line">{f.summary}</small>
      </>
    ),
  },
  {
    name: "Package",
    cell: (f) => (
      <>
        <bdi>{f.package?.name}</bdi>
        <small class="line">
          {f.package?.version} · {f.package?.ecosystem}
        </small>
      </>
    ),
  },
  { name: "Fixed in", cell: (f) => f.fixedVersions?.join(", ") || <span class="hint">no fix</span> },
  { name: "Exploited", cell: (f) => <Exploited of={f} />, wide: true },
  {
    name: "State",
    cell: (f) => <span class={`state ${word(f.state, "STATE")}`}>{word(f.state, "STATE")}</span>,
    wide: true,
  },
];
