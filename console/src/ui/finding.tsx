// Findings: severity, counts and coverage.
import type { ComponentChildren } from "preact";
import type { Schema } from "../api/api";
import { pathOf } from "../api/names";
import { useReach } from "../api/reach";
import { Empty } from "./page";
import { advisoryPage } from "./router";
import type { Column } from "./table";
import { count, many, Time, word } from "./time";

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

/** Counts shows the open findings by severity. coverage says whether their absence has a meaning. */
export function SeverityCounts({ of, coverage }: { of?: Counts; coverage?: AnswerCoverage }) {
  const some = severities.filter((s) => Number(of?.[s] ?? 0) > 0);
  const reach = useReach(findingNeeds);
  const unseen = useUnseenAdvisories();
  if (reach?.length === 0) return <span class="hint">not shown to you</span>;
  if (some.length === 0 && coverage?.extent === "EXTENT_NOTHING") return <span class="hint">not known</span>;
  if (some.length === 0) return <span class="hint">{unseen ? "none that you may see" : "none open"}</span>;
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

type AnswerCoverage = Schema<"holdfast.findings.v1.AnswerCoverage">;

export const findingNeeds = ["repo.list", "vuln_report.list", "advisories.list"];

/**
 * useUnseenAdvisories reports whether the caller sees images, but not all advisories of their organizations. Findings
 * through the other advisories are then not shown.
 */
export function useUnseenAdvisories(group = ""): boolean {
  const images = useReach(["repo.list", "vuln_report.list"], group) ?? [];
  const advisories = useReach(["advisories.list"]) ?? [];
  return images.some((uid) => !advisories.includes(pathOf(uid)[0] ?? ""));
}

/** GroupCoverage shows how many images are inspected, without which "none open" means nothing. */
export function GroupCoverage({ of, group }: { of?: AnswerCoverage; group?: string }) {
  const p = of?.packages;
  const reach = useReach(findingNeeds, group);
  if (!reach?.length) return null; // the list says that the caller may not see findings
  const failed = of?.notUnderstood ? `, ${count(of.notUnderstood)} not inspectable` : "";
  return (
    <>
      {of?.images ? (
        <p class="coverage">
          Known: {count(of.indexed)} of {many(of.images, "image")} inspected
          {of.waiting ? `, ${count(of.waiting)} waiting` : ""}
          {of.oldestWaitingTime && (
            <>
              {" "}
              since <Time at={of.oldestWaitingTime} />
              {of.waitingEndTime ? (
                <>
                  , until about <Time at={of.waitingEndTime} />
                </>
              ) : (
                ", until an unknown time"
              )}
            </>
          )}
          {failed}; advisories cover {count(p?.covered)} of {many(p?.packages, "package")}
          {p?.notCovered ? `, nothing is known about ${count(p.notCovered)}` : ""}.
          <FeedVersions of={of} />
        </p>
      ) : (
        <p class="coverage">There is no tagged image that you may see, so nothing is known.</p>
      )}
      <UnseenAdvisories group={group} />
    </>
  );
}

/** UnseenAdvisories says that findings are missing because the caller may not see all advisories. */
export function UnseenAdvisories({ group }: { group?: string }) {
  if (!useUnseenAdvisories(group)) return null;
  return (
    <p class="coverage">
      You may not see all advisories of the organization. Findings through the others are not shown.
    </p>
  );
}

const shownFeeds = 4;

/** FeedVersions shows which versions of the feeds an answer has used. */
export function FeedVersions({ of }: { of?: AnswerCoverage }) {
  const feeds = of?.feeds ?? [];
  const unseen = useUnseenAdvisories();
  if (feeds.length === 0 && unseen) return null; // there may be feeds that the caller may not see
  if (feeds.length === 0) return <span class="line">No feed of advisories is set up here.</span>;
  return (
    <span class="line">
      Feeds:{" "}
      {feeds.slice(0, shownFeeds).map((f, i) => (
        <span key={`${f.uid} ${f.format}`} title={f.error || undefined}>
          {i > 0 && ", "}
          <bdi>{f.name}</bdi> {f.format} {f.time ? <Time at={f.time} /> : "never read"}
          {f.error && " (cannot be read now)"}
        </span>
      ))}
      {feeds.length > shownFeeds && ` and ${many(feeds.length - shownFeeds, "other")}`}.
    </span>
  );
}

/** NoFindings says whether nothing was found, or nothing is known. */
export function NoFindings({
  of,
  title,
  group,
  children,
}: {
  of?: AnswerCoverage;
  title: string;
  group?: string;
  children?: ComponentChildren;
}) {
  const unseen = useUnseenAdvisories(group);
  const needs = { what: "findings", needs: findingNeeds, group };
  if (of?.extent === "EXTENT_NOTHING")
    return (
      <Empty title="Nothing is known" {...needs}>
        {of.images
          ? "No package was compared with an advisory, so the absence of findings has no meaning."
          : "There is no image that you may see."}
      </Empty>
    );
  return (
    <Empty title={unseen ? "No finding that you may see" : title} {...needs}>
      {of?.extent === "EXTENT_PART" ? "Not everything was compared, so findings may be missing." : children}
    </Empty>
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
    name: "Vulnerability",
    cell: (f) => (
      <>
        <a href={advisoryPage(f.advisoryId ?? "")}>{f.advisoryId}</a>
        <small class="line">{f.summary || f.evidence?.map((e) => e.advisoryId).join(", ")}</small>
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
  {
    name: "Update to",
    cell: (f) => f.advisedVersion || f.fixedVersion || f.fixedVersions?.join(", ") || <span class="hint">no fix</span>,
  },
  { name: "Exploited", cell: (f) => <Exploited of={f} />, wide: true },
  {
    name: "State",
    cell: (f) => <span class={`state ${word(f.state, "STATE")}`}>{word(f.state, "STATE")}</span>,
    wide: true,
  },
];
