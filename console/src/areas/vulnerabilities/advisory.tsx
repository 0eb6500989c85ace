import { useEffect, useState } from "preact/hooks";
import { get, type Schema } from "../../api/api";
import { parentOf } from "../../api/names";
import { useQuery } from "../../api/query";
import {
  Answer,
  AsCommand,
  Copy,
  count,
  Digest,
  Empty,
  Exploited,
  Facts,
  GroupCoverage,
  many,
  Name,
  NoFindings,
  Page,
  Pager,
  Problem,
  Section,
  Severity,
  sh,
  Table,
  Tabs,
  Time,
  Waiting,
  word,
} from "../../ui";
import { advisoryPage, imagePage, param, withParams } from "../../ui/router";

type Advisory = Schema<"holdfast.vulnerabilities.v2beta1.Advisory">;
const tabs = [
  { id: "", name: "About" },
  { id: "images", name: "Affected images" },
  { id: "blast", name: "Blast radius" },
];

/** The page of an advisory shows all advisories of that name, because several groups and sources may have one. */
export default function AdvisoryPage({ id }: { id: string }) {
  const byID = useQuery(get("/vulnerabilities/v2beta1/advisories", { query: { advisory_ids: [id], page_size: 10 } }));
  const byAlias = useQuery(get("/vulnerabilities/v2beta1/advisories", { query: { aliases: [id], page_size: 10 } }));
  const found = [...new Map([byID, byAlias].flatMap((q) => q.data?.advisories ?? []).map((a) => [a.uid, a])).values()];
  const tab = param("tab");
  const error = byID.error ?? byAlias.error;
  const name = found[0]?.advisoryId ?? id; // the id, because the address may have an alias
  const request =
    tab === "blast"
      ? blast(id)
      : tab === "images"
        ? images(id)
        : get("/vulnerabilities/v2beta1/advisories", { query: { advisory_ids: [name] } });
  const command =
    tab === "blast"
      ? `holdfast findings blast ${sh(id)}`
      : tab === "images"
        ? `holdfast findings images ${sh(id)}`
        : `holdfast advisories get ${sh(name)}`;
  return (
    <Page
      thing={found.length > 0}
      title={id}
      mark={<Copy text={id} what="the id" />}
      lead={found[0]?.summary}
      actions={<AsCommand command={command} request={request} />}
    >
      {error && <Problem error={error} />}
      <Tabs label="Parts of this advisory" items={tabs} now={tab} href={(t) => withParams({ tab: t })} />
      {tab === "" &&
        (found.length > 0
          ? found.map((a) => <About key={a.uid} uid={a.uid ?? ""} />)
          : byID.data &&
            byAlias.data && (
              <Empty title="No advisory that you may see has this name" what="advisories" needs={["advisories.list"]}>
                Advisories come from feeds and imports.
              </Empty>
            ))}
      {tab === "images" && <Images id={id} />}
      {tab === "blast" && <Blast id={id} />}
    </Page>
  );
}

/** Names links to the advisories about vulnerabilities. */
function Names({ of }: { of: string[] | undefined }) {
  return of?.length ? (
    <span class="chips">
      {of.map((x) => (
        <a key={x} class="chip" href={advisoryPage(x)}>
          <bdi>{x}</bdi>
        </a>
      ))}
    </span>
  ) : null;
}

/** About requests the whole advisory, because lists leave out the versions. */
function About({ uid }: { uid: string }) {
  const whole = useQuery(get("/vulnerabilities/v2beta1/advisories/{uid}", { path: { uid } }));
  const found = useQuery(
    get("/findings/v1/findings", { query: { package: whole.data?.artifactName || undefined, page_size: 50 } }),
  );
  const finding = found.data?.findings?.find((f) => f.advisoryUids?.includes(uid));
  return (
    <Answer of={whole}>
      {(a) => (
        <>
          <Section
            title={a.advisoryId ?? ""}
            actions={
              finding && (
                <>
                  <Severity of={finding.severity} score={finding.score} />
                  <Exploited of={finding} />
                </>
              )
            }
          >
            <Facts
              of={[
                ["Same as", <Names key="aliases" of={a.aliases} />],
                ["Fixes", <Names key="fixes" of={a.fixes} />],
                [
                  "Severity",
                  a.severities?.length
                    ? a.severities.map((s) => (
                        <code key={s.score} class="line">
                          {s.score}
                        </code>
                      ))
                    : "",
                ],
                ["In", <Name uid={parentOf(uid)} path />],
                ["Source", [a.source?.format, a.source?.name].filter(Boolean).join(", ")],
                ["Published", a.source?.publishTime && <Time at={a.source.publishTime} />],
                ["Updated at source", a.source?.modifyTime && <Time at={a.source.modifyTime} />],
                ["Imported", <Time at={a.createTime} />],
                ["Withdrawn", a.deleteTime && <Time at={a.deleteTime} />],
              ]}
            />
            {a.details && (
              <pre class="text" dir="auto" tabIndex={0}>
                {a.details}
              </pre>
            )}
          </Section>
          <Section title="Affected versions">
            {a.affected?.length ? (
              <Table
                label="Affected versions"
                rows={a.affected}
                id={(p) => `${p.ecosystem} ${p.name} ${p.purl}`}
                columns={[
                  {
                    name: "Package",
                    cell: (p) => (
                      <>
                        <bdi>{p.name}</bdi>
                        <small class="line">{p.ecosystem}</small>
                      </>
                    ),
                  },
                  {
                    name: "Versions",
                    cell: (p) => (
                      <>
                        {p.ranges?.map((r, i) => (
                          <span key={i} class="line">
                            <code>{range(r)}</code>
                          </span>
                        ))}
                        {p.versions?.length ? (
                          <span class="line">
                            {p.versions.length > 8
                              ? `${p.versions.slice(0, 8).join(", ")} and ${p.versions.length - 8} more`
                              : p.versions.join(", ")}
                          </span>
                        ) : null}
                      </>
                    ),
                  },
                ]}
              />
            ) : (
              <p class="hint">It names no versions.</p>
            )}
          </Section>
          <Timeline of={a} />
          {a.references?.length ? (
            <Section title="References">
              <ul class="rows">
                {a.references.map((r, i) => (
                  <li key={i}>
                    {/^https?:/.test(r.url ?? "") ? (
                      <a href={r.url} rel="noreferrer noopener" target="_blank">
                        <bdi>{r.url}</bdi>
                      </a>
                    ) : (
                      <bdi>{r.url}</bdi>
                    )}
                    <small>{r.type?.toLowerCase()}</small>
                  </li>
                ))}
              </ul>
            </Section>
          ) : null}
        </>
      )}
    </Answer>
  );
}

/** range writes a range of versions as a condition: from 1.0, before 2.0. */
function range(r: Schema<"holdfast.vulnerabilities.v2beta1.AffectedRange">): string {
  const parts = r.events?.map((e) =>
    e.introduced
      ? e.introduced === "0"
        ? "all"
        : `from ${e.introduced}`
      : e.fixed
        ? `before ${e.fixed}`
        : e.lastAffected
          ? `up to ${e.lastAffected}`
          : e.limit
            ? `limit ${e.limit}`
            : "",
  );
  return [parts?.filter(Boolean).join(" "), r.type === "GIT" && r.repo].filter(Boolean).join(" of ");
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

function Timeline({ of }: { of: Advisory }) {
  if (!of.events?.length) return null;
  return (
    <Section title="Events">
      <Table
        label="Events"
        rows={of.events}
        id={(e) => e.uid ?? ""}
        columns={[
          {
            name: "What",
            cell: (e) => {
              const kind = kinds.find((k) => e[k]);
              const note = kind && "note" in (e[kind] ?? {}) ? (e[kind] as { note?: string }).note : "";
              return (
                <>
                  {(kind ?? "").replace(/[A-Z]/g, (c) => ` ${c.toLowerCase()}`)}
                  {e.fixed?.fixedVersion && ` in ${e.fixed.fixedVersion}`}
                  {note && (
                    <small class="line">
                      <bdi>{note}</bdi>
                    </small>
                  )}
                </>
              );
            },
          },
          { name: "By", cell: (e) => <bdi>{e.author}</bdi> },
          { name: "Review", cell: (e) => word(e.reviewState, "REVIEW_STATE"), wide: true },
          { name: "When", cell: (e) => <Time at={e.createTime} /> },
        ]}
      />
    </Section>
  );
}

const images = (id: string) =>
  get("/findings/v1/advisories/{uid}/images", {
    path: { uid: id },
    query: { page_size: 50, page_token: param("page") || undefined },
  });

function Images({ id }: { id: string }) {
  return (
    <Answer of={useQuery(images(id))}>
      {({ images: rows = [], coverage, nextPageToken, totalCount }) => (
        <>
          <GroupCoverage of={coverage} />
          {rows.length === 0 ? (
            <NoFindings of={coverage} title="No image that you may see is affected" />
          ) : (
            <Table label="Affected images" rows={rows} id={(i) => `${i.repoUid} ${i.digest}`} columns={imageColumns} />
          )}
          <Pager next={nextPageToken} total={totalCount} one="image" />
        </>
      )}
    </Answer>
  );
}

type AffectedImage = Schema<"holdfast.findings.v1.AffectedImage">;
const imageColumns = [
  { name: "Image", cell: (i: AffectedImage) => <Name uid={i.repoUid} path /> },
  {
    name: "Tags",
    cell: (i: AffectedImage) =>
      i.tags?.length ? (
        <span class="chips">
          {i.tags.map((t) => (
            <a key={t} class="chip" href={imagePage(i.repoUid ?? "", t)}>
              <bdi>{t}</bdi>
            </a>
          ))}
        </span>
      ) : (
        <span class="hint">none</span>
      ),
  },
  { name: "Digest", cell: (i: AffectedImage) => <Digest of={i.digest} repo={i.repoUid} />, wide: true },
  { name: "Platform", cell: (i: AffectedImage) => i.platform, wide: true },
  {
    name: "Packages",
    cell: (i: AffectedImage) => <bdi>{i.packages?.map((p) => `${p.name} ${p.version}`).join(", ")}</bdi>,
    wide: true,
  },
];

const blast = (id: string) => get("/findings/v1/blast", { query: { advisory_id: id, page_size: 20 } });
const stages: Record<string, string> = {
  PACKAGES: "Packages that have it",
  IMAGES: "Images with them",
  TAGS: "Tags of these images",
  RUNNING: "Where they run",
  PULLED: "Who pulled them",
  CAN_PULL: "Who can pull them",
  CAN_PUSH: "Who can push a fix",
  OWNERS: "Who owns them",
};

const stage = (s: Schema<"holdfast.findings.v1.BlastStage">) => (s.name ?? "").replace("NAME_", "");

type Drawing = typeof import("./blast");

/** Spread draws the blast radius and saves it as a file. It is loaded on demand. */
function Spread({ id, of }: { id: string; of: Schema<"holdfast.findings.v1.Blast"> }) {
  const [drawing, setDrawing] = useState<Drawing>();
  const [error, setError] = useState<Error>();
  const shown = param("graph") !== "false";
  const load = async () => {
    const d = await import("./blast");
    setDrawing(d);
    return d;
  };
  useEffect(() => {
    if (shown) load().catch(setError);
  }, [shown]);
  const download = async () => {
    try {
      const d = await load();
      d.save(`blast-${id.replace(/[^\w.-]/g, "_")}.csv`, await d.csv(id, of));
    } catch (failed) {
      setError(failed as Error);
    }
  };
  return (
    <>
      <p class="actions">
        <a class="button small" href={withParams({ graph: shown ? "false" : undefined })}>
          {shown ? "Without the graph" : "As a graph"}
        </a>
        <button type="button" class="small" onClick={() => void download()}>
          Download as CSV
        </button>
      </p>
      {error && <Problem error={error} />}
      {shown && (drawing ? <drawing.Graph id={id} of={of} /> : <Waiting />)}
    </>
  );
}

/** unknown says that nothing was compared, so that an empty stage has no meaning. */
const unknown = (b: Schema<"holdfast.findings.v1.Blast">) => b.coverage?.extent === "EXTENT_NOTHING";

function Blast({ id }: { id: string }) {
  return (
    <Answer of={useQuery(blast(id))}>
      {(b) => (
        <>
          <GroupCoverage of={b.coverage} />
          <Spread id={id} of={b} />
          <Table
            label="Blast radius"
            rows={b.stages ?? []}
            id={(s) => s.name ?? ""}
            columns={[
              {
                name: "Stage",
                cell: (s) => (
                  <>
                    <strong>{stages[stage(s)] ?? stage(s)}</strong>
                    <small class="line">
                      {unknown(b) && !Number(s.totalCount) ? "unknown" : count(s.totalCount)}
                      {!s.complete && ", and perhaps more"}
                    </small>
                  </>
                ),
              },
              {
                name: "Which",
                roomy: true,
                cell: (s) => (
                  <>
                    {(s.items ?? []).length > 0 && (
                      <ul class="rows">
                        {s.items?.map((i, n) => (
                          <li key={n}>
                            <Item of={i} />
                          </li>
                        ))}
                      </ul>
                    )}
                    {s.gaps?.map((g) => (
                      <p key={g.code} class="coverage">
                        {g.message}
                        {Number(g.count) > 0 && ` (${count(g.count)})`}
                      </p>
                    ))}
                    {(s.items ?? []).length === 0 && s.complete && (
                      <span class="hint">{unknown(b) ? "Nothing was compared, so nothing is known." : "none"}</span>
                    )}
                    {s.nextPageToken && (
                      <p class="hint">
                        The first {count(s.items?.length)} are shown.{" "}
                        <code>
                          holdfast findings blast {sh(id)} --stage {stage(s).toLowerCase().replaceAll("_", "-")}
                        </code>{" "}
                        lists all.
                      </p>
                    )}
                  </>
                ),
              },
            ]}
          />
        </>
      )}
    </Answer>
  );
}

function Item({ of }: { of: Schema<"holdfast.findings.v1.BlastItem"> }) {
  const { image, tag, running, identity, deployment } = of;
  if (of.package)
    return (
      <>
        <span>
          <bdi>{of.package.name}</bdi> {of.package.version}
        </span>
        <small>
          {of.package.ecosystem} · {many(of.images, "image")}
        </small>
      </>
    );
  if (image)
    return (
      <>
        <span>
          <Name uid={image.repoUid} path quiet />{" "}
          {image.tags?.map((t) => (
            <a key={t} class="chip" href={imagePage(image.repoUid ?? "", t)}>
              <bdi>{t}</bdi>
            </a>
          ))}
        </span>
        <Digest of={image.digest} repo={image.repoUid} />
      </>
    );
  if (tag)
    return (
      <>
        <a href={imagePage(tag.repoUid ?? "", tag.name ?? "")}>
          <bdi>
            {tag.repo}:{tag.name}
          </bdi>
        </a>
        <Digest of={tag.digest} />
      </>
    );
  if (running)
    return (
      <>
        <span>
          <bdi>{running.entry?.workload || running.entry?.image}</bdi>
        </span>
        <small>
          <bdi>{[running.place, running.entry?.namespace].filter(Boolean).join(" / ")}</bdi> ·{" "}
          <Time at={running.pushTime} />
        </small>
      </>
    );
  if (identity)
    return (
      <>
        {identity.identityUid ? <Name uid={identity.identityUid} /> : <span>everybody</span>}
        <small>
          {identity.lastPullTime ? (
            <Time at={identity.lastPullTime} />
          ) : (
            identity.groupUids?.map((g) => (
              <span key={g}>
                by a role on <Name uid={g} quiet />{" "}
              </span>
            ))
          )}
        </small>
      </>
    );
  if (deployment)
    return (
      <>
        <Name uid={deployment.repoUid} path />
        <small>{deployment.charts?.join(", ")}</small>
      </>
    );
  return null;
}
