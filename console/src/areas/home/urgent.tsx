// The most urgent findings: vulnerabilities that are known to be exploited, then critical ones.
import { get, type Schema } from "../../api/api";
import { byVulnerability, type Vulnerability } from "../../api/findings";
import { useQuery } from "../../api/query";
import { useReach } from "../../api/reach";
import {
  Answer,
  Breaks,
  count,
  Exploited,
  findingNeeds,
  many,
  NoFindings,
  Section,
  Severity,
  Table,
  Time,
} from "../../ui";
import { advisoryPage, base, imagePage } from "../../ui/router";

const most = 8;
const query = { states: ["STATE_OPEN" as const], page_size: 50 };
const exploited = get("/findings/v1/findings", { query: { ...query, kev: true } });
const critical = get("/findings/v1/findings", { query: { ...query, severities: ["SEVERITY_CRITICAL"] } });

export function Urgent() {
  const reach = useReach(findingNeeds);
  const known = useQuery(reach?.length ? exploited : null),
    found = useQuery(reach?.length ? critical : null);
  if (!reach?.length) return null; // the card of open findings says why
  return (
    <Section title="Most urgent findings" actions={<a href={`${base}/vulnerabilities`}>All findings</a>}>
      <Answer of={known}>
        {(first) => (
          <Answer of={found}>
            {(then) => {
              const rows = byVulnerability([...(first.findings ?? []), ...(then.findings ?? [])]);
              return rows.length === 0 ? (
                <NoFindings of={then.coverage} title="No critical or exploited finding is open">
                  Every pushed image is compared with the advisories of its organization, within seconds.
                </NoFindings>
              ) : (
                <Vulnerabilities rows={rows.slice(0, most)} />
              );
            }}
          </Answer>
        )}
      </Answer>
    </Section>
  );
}

const Vulnerabilities = ({ rows }: { rows: Vulnerability[] }) => (
  <Table
    label="Most urgent findings"
    id={(v) => v.id}
    rows={rows}
    columns={[
      {
        name: "Vulnerability",
        roomy: true,
        cell: (v) => (
          <>
            <a href={advisoryPage(v.id)}>{v.id}</a> <Exploited of={v.findings[0] ?? {}} />
            <small class="line">{v.findings[0]?.summary}</small>
          </>
        ),
      },
      {
        name: "Severity",
        cell: (v) => <Severity of={v.findings[0]?.severity} score={v.findings[0]?.score} />,
      },
      { name: "Package", roomy: true, cell: (v) => <Packages of={v} /> },
      { name: "Images", roomy: true, cell: (v) => <Images of={v} /> },
      { name: "Seen", cell: (v) => <Time at={earliest(v)} />, wide: true },
    ]}
  />
);

const earliest = (v: Vulnerability) =>
  v.findings
    .map((f) => f.firstSeenTime ?? "")
    .filter(Boolean)
    .sort()[0];

/** Packages shows the packages with the vulnerability, each with its versions and the versions that fix it. */
function Packages({ of }: { of: Vulnerability }) {
  const names = [...new Set(of.findings.map((f) => f.package?.name ?? ""))];
  const own = of.findings.filter((f) => f.package?.name === names[0]);
  const versions = [...new Set(own.map((f) => f.package?.version ?? ""))];
  const fixes = [...new Set(own.flatMap((f) => f.fixedVersions ?? []))];
  return (
    <>
      <bdi>{names[0]}</bdi>
      <small class="line">
        {versions.slice(0, 3).join(", ")}
        {versions.length > 3 && ` and ${count(versions.length - 3)} more`}
        {fixes.length > 0 ? `; fixed in ${fixes.join(", ")}` : "; no fix"}
      </small>
      {names.length > 1 && <small class="line">and {many(names.length - 1, "other package")}</small>}
    </>
  );
}

type Affected = Schema<"holdfast.findings.v1.AffectedImage">;

function Images({ of }: { of: Vulnerability }) {
  const first: Affected | undefined = of.findings.find((f) => f.images?.length)?.images?.[0];
  // The images of several packages may be the same ones, so that their sum would be too high.
  const number = Math.max(...of.findings.map((f) => f.imageCount ?? 0));
  if (!first) return <>{count(number)}</>;
  return (
    <>
      <a href={imagePage(first.repoUid ?? "", first.digest ?? "")}>
        <bdi>
          <Breaks text={`${first.repo}${first.tags?.[0] ? `:${first.tags[0]}` : ""}`} />
        </bdi>
      </a>
      {number > 1 && (
        <small class="line">
          and {of.findings.length > 1 && "at least "}
          {count(number - 1)} more
        </small>
      )}
    </>
  );
}
