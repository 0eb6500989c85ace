import { useState } from "preact/hooks";
import { get, post, type Schema } from "../../api/api";
import { baseScore, severityOf } from "../../api/cvss";
import { nameOf, parentOf } from "../../api/names";
import { useMay, useQuery } from "../../api/query";
import {
  Answer,
  AsCommand,
  Check,
  Choice,
  Confirm,
  count,
  Empty,
  Field,
  Filters,
  findingColumns,
  GroupCoverage,
  many,
  Name,
  NoFindings,
  Page,
  Pager,
  severities,
  sh,
  Table,
  Tabs,
  Time,
  word,
} from "../../ui";
import { advisoryPage, param, withParams } from "../../ui/router";
import { Overview } from "./overview";
import { WeeklyReport } from "./weekly";

const tabs = [
  { id: "", name: "Findings" },
  { id: "advisories", name: "Advisories" },
  { id: "exceptions", name: "Exceptions" },
  { id: "feeds", name: "Feeds" },
];
const page = () => ({ page_size: 50, page_token: param("page") || undefined });

/** tabNow is the tab of the address; links from before findings came first name them. */
const tabNow = () => (param("tab") === "findings" ? "" : param("tab"));

export default function Vulnerabilities() {
  const tab = tabNow();
  return (
    <>
      {tab === "" && <Findings />}
      {tab === "advisories" && <Advisories />}
      {tab === "exceptions" && <Exceptions />}
      {tab === "feeds" && <Feeds />}
    </>
  );
}

const frame = {
  title: "Vulnerabilities",
  lead: "The findings in your images, advisories, exceptions and feeds.",
};
const Views = () => (
  <Tabs
    label="Vulnerabilities"
    items={tabs}
    now={tabNow()}
    href={(id) => withParams(Object.fromEntries([["tab", id], ...filters.map((f) => [f, undefined])]))}
  />
);
const filters = [
  "order",
  "query",
  "id",
  "alias",
  "artifact",
  "type",
  "component",
  "event",
  "latest",
  "review",
  "severity",
  "package",
  "fixable",
  "kev",
  "state",
  "group",
  "days",
];

type EventType = Schema<"holdfast.vulnerabilities.v2beta1.EventTypeFilter">;
const events: [string, string][] = [
  ["", "any"],
  ...[
    "DETECTION",
    "TRUE_POSITIVE_DETERMINATION",
    "FALSE_POSITIVE_DETERMINATION",
    "FIXED",
    "FIX_NOT_PLANNED",
    "ANALYSIS_NOT_PLANNED",
    "PENDING_UPSTREAM_FIX",
    "PATCHED",
  ].map((e): [string, string] => [e, e.toLowerCase().replaceAll("_", " ")]),
];

const newest = "create_time desc";

function Advisories() {
  const one = (name: string) => (param(name) ? [param(name)] : undefined);
  const list = get("/vulnerabilities/v2beta1/advisories", {
    query: {
      ...page(),
      order_by: param("order") || newest,
      query: param("query") || undefined,
      advisory_ids: one("id"),
      aliases: one("alias"),
      artifact_names: one("artifact"),
      artifact_types: one("type"),
      component_names: one("component"),
      event_types: param("event") ? [`EVENT_TYPE_FILTER_${param("event")}` as EventType] : undefined,
      latest_event_type: param("latest") ? (`EVENT_TYPE_FILTER_${param("latest")}` as EventType) : undefined,
      event_review_states: param("review")
        ? [`REVIEW_STATE_${param("review")}` as Schema<"holdfast.vulnerabilities.v2beta1.ReviewState">]
        : undefined,
    },
  });
  const flags: [string, string][] = [
    ["query", "--query"],
    ["id", "--id"],
    ["alias", "--alias"],
    ["artifact", "--artifact"],
    ["component", "--component"],
  ];
  const command = [
    "holdfast advisories list",
    ...flags.filter(([p]) => param(p)).map(([p, f]) => `${f} ${sh(param(p))}`),
    `--order-by ${sh(param("order") || newest)}`,
  ].join(" ");
  return (
    <Page {...frame} actions={<AsCommand command={command} request={list} />}>
      <Views />
      <Filters label="Filter advisories">
        <Field name="query" label="Text in id, name or alias" placeholder="openssl" first />
        <Field name="alias" label="Alias" placeholder="CVE-2026-1000" />
        <Field name="artifact" label="Package" placeholder="left" />
        <details class="more" open={["id", "type", "component", "event", "latest", "review"].some((f) => param(f))}>
          <summary>More filters</summary>
          <div class="filters">
            <Field name="id" label="Id" placeholder="GHSA-…" />
            <Field name="type" label="Type" placeholder="npm" />
            <Field name="component" label="Component" />
            <Choice name="event" label="Has event" options={events} />
            <Choice name="latest" label="Latest event" options={events} />
            <Choice
              name="review"
              label="Review"
              options={[
                ["", "any"],
                ["PENDING", "pending"],
                ["APPROVED", "approved"],
                ["REQUEST_CHANGES", "changes requested"],
                ["REJECTED", "rejected"],
              ]}
            />
          </div>
        </details>
      </Filters>
      <Answer of={useQuery(list)}>
        {({ advisories = [], nextPageToken, totalCount }) => (
          <>
            {advisories.length === 0 ? (
              <Empty
                title="No advisory that you may see matches"
                what="advisories"
                needs={["advisories.list"]}
                command="holdfast advisories feeds create osv --parent ORGANIZATION --address https://…"
              >
                Advisories list the vulnerable versions of packages. They come from feeds and imports.
              </Empty>
            ) : (
              <Table
                label="Advisories"
                rows={advisories}
                id={(a) => a.uid ?? ""}
                columns={[
                  {
                    name: "Advisory",
                    order: "uid",
                    cell: (a) => (
                      <>
                        <a href={advisoryPage(a.advisoryId ?? "")}>
                          <bdi>{a.advisoryId}</bdi>
                        </a>
                        <small class="line">
                          <bdi>{[...(a.aliases ?? []), ...(a.fixes ?? []).map((x) => `fixes ${x}`)].join(", ")}</bdi>
                        </small>
                      </>
                    ),
                  },
                  {
                    name: "About",
                    cell: (a) => (
                      <>
                        <bdi>{a.summary || a.artifactName}</bdi>
                        <small class="line">
                          <bdi>{[a.artifactName, a.componentName].filter(Boolean).join(" / ")}</bdi>
                          {a.artifactType && ` · ${a.artifactType}`}
                        </small>
                      </>
                    ),
                  },
                  { name: "Severity", cell: (a) => <Rated of={a} /> },
                  { name: "Latest", cell: (a) => latest(a), wide: true },
                  { name: "Updated", order: "update_time", cell: (a) => <Time at={a.updateTime} />, wide: true },
                  { name: "Imported", order: "create_time", cell: (a) => <Time at={a.createTime} />, wide: true },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="advisory" more="advisories" />
          </>
        )}
      </Answer>
    </Page>
  );
}

/** Rated shows the severity that the vendor gives in words, or else the highest score. */
function Rated({ of }: { of: Schema<"holdfast.vulnerabilities.v2beta1.Advisory"> }) {
  if (of.vendorSeverity) return <bdi>{of.vendorSeverity.toLowerCase()}</bdi>;
  const scores = (of.severities ?? []).map((s) => baseScore(s.score ?? "")).filter((s) => s !== undefined);
  if (scores.length === 0) return <span class="hint">{of.severities?.length ? "see advisory" : "not rated"}</span>;
  const highest = Math.max(...scores);
  return (
    <span class={`severity ${severityOf(highest)}`}>
      {severityOf(highest)} {highest.toFixed(1)}
    </span>
  );
}

const kinds = [
  "detection",
  "truePositiveDetermination",
  "falsePositiveDetermination",
  "fixed",
  "fixNotPlanned",
  "analysisNotPlanned",
  "pendingUpstreamFix",
  "patched",
] as const;

/** latest is the newest event of an advisory, in words. */
function latest(a: Schema<"holdfast.vulnerabilities.v2beta1.Advisory">): string {
  const event = a.events?.at(-1);
  const kind = kinds.find((k) => event?.[k]);
  if (a.deleteTime) return "withdrawn";
  return kind === "fixed"
    ? `fixed in ${event?.fixed?.fixedVersion}`
    : (kind ?? "").replace(/[A-Z]/g, (c) => ` ${c.toLowerCase()}`);
}

function Findings() {
  const list = get("/findings/v1/findings", {
    query: {
      ...page(),
      group_uid: param("group") || undefined,
      package: param("package") || undefined,
      fixable: param("fixable") === "true" || undefined,
      kev: param("kev") === "true" || undefined,
      severities: param("severity")
        ? [`SEVERITY_${param("severity").toUpperCase()}` as Schema<"holdfast.findings.v1.Severity">]
        : undefined,
      states: param("state")
        ? [`STATE_${param("state").toUpperCase()}` as Schema<"holdfast.findings.v1.State">]
        : undefined,
    },
  });
  const group = param("group");
  const command = [
    `holdfast findings list --group ${group ? sh(nameOf(group).value?.path ?? group) : "ORGANIZATION"}`,
    param("severity") && `--severity ${param("severity")}`,
    param("fixable") && "--fixable",
    param("kev") && "--kev",
    param("package") && `--package ${sh(param("package"))}`,
  ]
    .filter(Boolean)
    .join(" ");
  return (
    <Page {...frame} actions={<AsCommand command={command} request={list} />}>
      <Views />
      {!param("page") && (
        <>
          <Overview group={group} />
          <WeeklyReport group={group} />
        </>
      )}
      <Filters label="Filter findings" names={{ group: ["groups", "repos"] }}>
        <Field name="package" label="Package" placeholder="openssl" first />
        <Field name="group" label="In the group or repo" placeholder="acme/platform" />
        <Choice
          name="severity"
          label="Severity"
          options={[["", "any"], ...severities.map((s): [string, string] => [s, s])]}
        />
        <Choice
          name="state"
          label="State"
          options={[
            ["", "open and excepted"],
            ["open", "open"],
            ["excepted", "excepted"],
          ]}
        />
        <Check name="fixable" label="Can be fixed" />
        <Check name="kev" label="Known to be exploited" />
      </Filters>
      <Answer of={useQuery(list)}>
        {({ findings = [], coverage, nextPageToken, totalCount }) => (
          <>
            <GroupCoverage of={coverage} group={group} />
            {findings.length === 0 ? (
              <NoFindings of={coverage} title="No finding matches" group={group}>
                Findings appear when a pushed image has a package with an advisory.
              </NoFindings>
            ) : (
              <Table
                label="Findings"
                rows={findings}
                id={(f) => `${f.advisoryId} ${f.package?.purl}`}
                columns={[
                  ...findingColumns,
                  { name: "Age", cell: (f) => <Time at={f.firstSeenTime} />, wide: true },
                  { name: "Images", number: true, cell: (f) => count(f.imageCount) },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="finding" />
          </>
        )}
      </Answer>
    </Page>
  );
}

function Exceptions() {
  const list = get("/findings/v1/exceptions", {
    query: { ...page(), order_by: "create_time desc", count_matching: true },
  });
  return (
    <Page {...frame} actions={<AsCommand command="holdfast findings exceptions list" request={list} />}>
      <Views />
      <Answer of={useQuery(list)}>
        {({ exceptions = [], nextPageToken, totalCount, coverage }) => (
          <>
            {exceptions.length === 0 ? (
              <Empty
                title="No exception that you may see"
                what="exceptions"
                needs={["policies.override.list"]}
                command="holdfast findings exceptions create CVE-2026-1234 --on GROUP/REPO --until 30d --reason '…'"
              >
                An exception accepts a finding, for a reason and for a time.
              </Empty>
            ) : (
              <Table
                label="Exceptions"
                rows={exceptions}
                id={(e) => e.uid ?? ""}
                columns={[
                  {
                    name: "About",
                    cell: (e) => (
                      <>
                        {e.advisoryId ? <a href={advisoryPage(e.advisoryId)}>{e.advisoryId}</a> : <code>{e.purl}</code>}
                        <small class="line">
                          <bdi>{e.reason}</bdi>
                        </small>
                      </>
                    ),
                  },
                  { name: "On", cell: (e) => <Name uid={e.targetUid} path /> },
                  {
                    name: "State",
                    cell: (e) => (
                      <span class={`state ${word(e.state, "EXCEPTION_STATE")}`}>
                        {word(e.state, "EXCEPTION_STATE")}
                      </span>
                    ),
                  },
                  { name: "Ends", cell: (e) => <Time at={e.expireTime} /> },
                  {
                    name: "Matches",
                    wide: true,
                    cell: (e) => `${count(e.matching?.findings)} in ${many(e.matching?.images, "image")}`,
                  },
                  { name: "By", wide: true, cell: (e) => <Name uid={e.authorUid} /> },
                  { name: "Approved by", wide: true, cell: (e) => <Name uid={e.approverUid} quiet /> },
                ]}
              />
            )}
            {coverage && <GroupCoverage of={coverage} />}
            <Pager next={nextPageToken} total={totalCount} one="exception" />
          </>
        )}
      </Answer>
    </Page>
  );
}

function Feeds() {
  const may = useMay();
  const [reading, setReading] = useState<Schema<"holdfast.advisories.v1.AdvisoryFeed">>();
  const list = get("/advisories/v1/feeds", { query: page() });
  return (
    <Page {...frame} actions={<AsCommand command="holdfast advisories feeds list" request={list} />}>
      <Views />
      <Answer of={useQuery(list)}>
        {({ feeds = [], nextPageToken, totalCount }) => (
          <>
            {feeds.length === 0 ? (
              <Empty
                title="No feed that you may see"
                what="feeds"
                needs={["advisories.list"]}
                command="holdfast advisories feeds create osv --parent ORGANIZATION --address https://…"
              >
                A feed is read every hour. It has advisories, or a list of exploited vulnerabilities.
              </Empty>
            ) : (
              <Table
                label="Feeds"
                rows={feeds}
                id={(f) => f.uid ?? ""}
                columns={[
                  {
                    name: "Feed",
                    cell: (f) => (
                      <>
                        <bdi>{f.name}</bdi>
                        <small class="line">
                          <bdi>{f.address}</bdi>
                        </small>
                      </>
                    ),
                  },
                  { name: "Group", cell: (f) => <Name uid={parentOf(f.uid ?? "")} path quiet />, wide: true },
                  {
                    name: "Read",
                    cell: (f) => (f.paused ? <span class="state">paused</span> : <Time at={f.last?.time} />),
                  },
                  {
                    name: "Result",
                    cell: (f) =>
                      f.last?.error ? (
                        <span class="wrong">{f.last.error}</span>
                      ) : f.last ? (
                        <>
                          {count(f.last.counts?.created)} new, {count(f.last.counts?.updated)} changed
                        </>
                      ) : (
                        <span class="hint">not read yet</span>
                      ),
                  },
                  {
                    name: "Read now",
                    hidden: true,
                    cell: (f) =>
                      !f.paused &&
                      may("advisories.update", f.uid ?? "") && (
                        <button
                          type="button"
                          class="small"
                          aria-label={`Read now: ${f.name}`}
                          onClick={() => setReading(f)}
                        >
                          Read now…
                        </button>
                      ),
                  },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="feed" />
            {reading && (
              <Confirm
                title="Read the feed now?"
                safe
                done="The feed is due now"
                label="Read it"
                command={`holdfast advisories feeds run ${reading.uid}`}
                onClose={() => setReading(undefined)}
                requests={[post("/advisories/v1/feedRuns/{uid}", { path: { uid: reading.uid ?? "" }, body: {} })]}
              >
                A server reads <bdi>{reading.name}</bdi> within seconds, before it is due.
              </Confirm>
            )}
          </>
        )}
      </Answer>
    </Page>
  );
}
