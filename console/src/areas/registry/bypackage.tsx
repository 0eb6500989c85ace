// The findings of an image, put together by package, because one update fixes all findings of a package.
import { byPackage, countOpen, type Finding, type PackageFindings } from "../../api/findings";
import { count, Exploited, many, Severity, SeverityBar, SeverityCounts, severities, Table, Time, word } from "../../ui";
import { advisoryPage } from "../../ui/router";

/** ByPackage shows the findings of a page. part says that the image has more. */
export function ByPackage({ findings, part }: { findings: Finding[]; part: boolean }) {
  const packages = byPackage(findings);
  const counts = countOpen(findings);
  const open = Object.values(counts).reduce((sum, n) => sum + Number(n), 0);
  return (
    <>
      <div class="totals">
        <p>
          <strong>{many(open, "open finding")}</strong> in {many(packages.length, "package")}
          {part && `, of the ${count(findings.length)} on this page`}
        </p>
        <SeverityBar of={counts} />
        <ul class="legend">
          {severities
            .filter((s) => Number(counts[s]) > 0)
            .map((s) => (
              <li key={s}>
                <span class={`severity ${s}`}>{s}</span> {count(counts[s])}
              </li>
            ))}
        </ul>
      </div>
      <Table
        label="Findings"
        rows={packages}
        id={(p) => p.key}
        columns={[
          {
            name: "Package",
            roomy: true,
            cell: ({ findings: [first] }) => (
              <>
                <bdi>{first?.package?.name}</bdi>
                <small class="line">
                  {first?.package?.version} · {first?.package?.ecosystem}
                </small>
                {first?.location && (
                  <small class="line">
                    <bdi>{first.location}</bdi>
                    {first.origin === "sbom" ? ", only in an SBOM" : `, layer ${first.layer ?? 0}`}
                  </small>
                )}
              </>
            ),
          },
          { name: "Open", cell: (p) => <SeverityCounts of={countOpen(p.findings)} /> },
          { name: "Update to", cell: (p) => <Fix of={p} /> },
          { name: "Vulnerabilities", roomy: true, cell: (p) => <Vulnerabilities of={p.findings} /> },
        ]}
      />
    </>
  );
}

function Fix({ of }: { of: PackageFindings }) {
  if (!of.fix) return <span class="hint">no fix</span>;
  return (
    <>
      <strong>{of.fix}</strong>
      {of.unfixed > 0 && <small class="line">{count(of.unfixed)} without a fix</small>}
    </>
  );
}

const most = 3; // vulnerabilities of a package that are not folded away

function Vulnerabilities({ of }: { of: Finding[] }) {
  const rest = of.slice(most);
  return (
    <>
      <Lines of={of.slice(0, most)} />
      {rest.length > 0 && (
        <details>
          <summary>{count(rest.length)} more</summary>
          <Lines of={rest} />
        </details>
      )}
    </>
  );
}

const Lines = ({ of }: { of: Finding[] }) => (
  <ul class="rows findings">
    {of.map((f) => (
      <li key={f.advisoryId}>
        <div>
          <Severity of={f.severity} score={f.score} /> <a href={advisoryPage(f.advisoryId ?? "")}>{f.advisoryId}</a>{" "}
          <Exploited of={f} /> {f.state !== "STATE_OPEN" && <State of={f} />}
          <small class="line">{f.summary || f.evidence?.map((e) => e.advisoryId).join(", ")}</small>
          <small class="line">
            <Ratings of={f} /> Seen <Time at={f.firstSeenTime} />.
          </small>
        </div>
      </li>
    ))}
  </ul>
);

const State = ({ of }: { of: Finding }) => (
  <span class={`state ${word(of.state, "STATE")}`}>{word(of.state, "STATE")}</span>
);

/** Ratings names the source of the severity, and what other sources say. */
function Ratings({ of }: { of: Finding }) {
  const others = (of.ratings ?? []).filter((r) => r.source !== of.severitySource);
  if (!of.severitySource) return <>No source rates it.</>;
  return (
    <>
      Rated by <bdi>{of.severitySource}</bdi>
      {others.length > 0 && "; "}
      {others.map((r, i) => (
        <span key={`${r.source} ${r.advisoryId} ${r.score}`}>
          {i > 0 && ", "}
          {word(r.severity, "SEVERITY")} {r.score} by <bdi>{r.source}</bdi>
        </span>
      ))}
      .
    </>
  );
}
