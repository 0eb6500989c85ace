import type { ComponentChildren } from "preact";
import { get, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { useQuery } from "../../api/query";
import {
  Above,
  Answer,
  AsCommand,
  bytes,
  Choice,
  Command,
  Copy,
  count,
  Digest,
  Empty,
  Facts,
  FeedVersions,
  Field,
  Filters,
  many,
  Name,
  NoFindings,
  Page,
  Pager,
  Problem,
  Section,
  Share,
  severities,
  sh,
  Table,
  Tabs,
  Time,
  UnseenAdvisories,
  word,
} from "../../ui";
import { imagePage, param, repoPage, withParams } from "../../ui/router";
import { ByPackage } from "./bypackage";
import { Compare, comparison } from "./compare";

const tabs = [
  { id: "", name: "Findings" },
  { id: "packages", name: "Packages" },
  { id: "platforms", name: "Platforms" },
  { id: "pulls", name: "Pulls" },
  { id: "attached", name: "Attached" },
  { id: "runs", name: "Runs" },
  { id: "compare", name: "Compare" },
];
type Severities = Schema<"holdfast.findings.v1.Severity">[];

export default function Image({ uid, reference }: { uid: string; reference: string }) {
  const request = get("/oci/v1/repos/{uid}/images/{reference}", { path: { uid, reference } });
  const image = useQuery(request);
  const registry = useQuery(get("/oci/v1/registry", {}));
  const path = nameOf(uid).value?.path ?? "";
  const tab = param("tab");
  const join = reference.includes(":") ? "@" : ":";
  const shows =
    tab === "packages" ? "registry images packages" : tab === "" ? "findings list" : "registry images inspect";
  const compared = [
    nameOf(param("repo") || uid).value?.path ?? uid,
    param("with").includes(":") ? "@" : ":",
    param("with"),
    param("at") && `@${new Date(param("at")).toISOString()}`,
  ].join("");
  if (image.error)
    return (
      <Page title={reference} above={<Above uid={uid} />}>
        <Problem error={image.error} />
      </Page>
    );
  const short = reference.replace(/^(\w+):(.{12}).*$/, "$1:$2");
  return (
    <Page
      thing={!!image.data}
      title={short}
      mark={<Copy text={image.data?.digest ?? reference} what="the digest" />}
      above={
        <>
          <Above uid={uid} />
          <p class="crumb-repo">
            <a href={repoPage(uid)}>
              <bdi>{nameOf(uid).value?.name ?? "repo"}</bdi>
            </a>
          </p>
        </>
      }
      actions={
        tab === "attached" ? (
          <AsCommand
            command={`holdfast registry images referrers ${sh(`${path || uid}${join}${reference}`)}`}
            request={referrers(uid, image.data?.digest ?? reference)}
          />
        ) : tab === "runs" ? (
          <AsCommand
            command={`holdfast inventory list --digest ${image.data?.digest ?? reference}`}
            request={running(image.data?.digest ?? reference)}
          />
        ) : tab === "compare" && param("with") ? (
          <AsCommand
            command={`holdfast findings compare ${sh(compared)} ${sh(`${path || uid}${join}${reference}`)}`}
            request={comparison(
              {
                repo: param("repo") || uid,
                reference: param("with"),
                time: param("at") ? new Date(param("at")).toISOString() : undefined,
              },
              { repo: uid, reference },
            )}
          />
        ) : (
          <AsCommand
            command={`holdfast ${shows} ${sh(`${path || uid}${join}${reference}`)}`}
            request={tab === "" ? findingList(uid, reference) : request}
          />
        )
      }
    >
      {registry.data && path && <Command text={`docker pull ${registry.data.host}/${path}${join}${reference}`} />}
      <Answer of={image}>
        {(i) => (
          <>
            <Facts
              of={[
                ["Digest", <Digest of={i.digest} />],
                ["Pushed", <Time at={i.pushTime} />],
                ["Tags", <TagsOf uid={uid} digest={i.digest ?? ""} />],
                ["Is about", i.subject && <Digest of={i.subject} repo={uid} />],
                [
                  "Annotations",
                  Object.keys(i.annotations ?? {}).length > 0 && (
                    <details>
                      <summary>{many(Object.keys(i.annotations ?? {}).length, "annotation")}</summary>
                      <pre tabIndex={0}>
                        {Object.entries(i.annotations ?? {})
                          .map(([k, v]) => `${k}=${v}`)
                          .join("\n")}
                      </pre>
                    </details>
                  ),
                ],
                [
                  "Platforms",
                  i.variants?.map((v) => [v.os, v.architecture, v.variant].filter(Boolean).join("/")).join(", "),
                ],
              ]}
            />
            <Tabs
              label="Parts of this image"
              items={tabs}
              now={tab}
              href={(id) =>
                withParams({
                  tab: id,
                  severity: undefined,
                  state: undefined,
                  package: undefined,
                  with: undefined,
                  repo: undefined,
                  at: undefined,
                  kind: undefined,
                })
              }
            />
            {tab === "" && <Findings uid={uid} reference={reference} image={i} />}
            {tab === "packages" && <Packages uid={uid} reference={reference} image={i} />}
            {tab === "platforms" && <Platforms image={i} />}
            {tab === "pulls" && <Pulls uid={uid} digest={i.digest ?? ""} />}
            {tab === "attached" && <Attached uid={uid} digest={i.digest ?? ""} path={path} />}
            {tab === "runs" && <Runs digest={i.digest ?? ""} path={path} />}
            {tab === "compare" && <Compare uid={uid} reference={reference} />}
          </>
        )}
      </Answer>
    </Page>
  );
}

function TagsOf({ uid, digest }: { uid: string; digest: string }) {
  const { data } = useQuery(
    get("/registry/v2beta1/tags", {
      query: {
        "uidp.children_of": uid,
        digest,
        page_size: 20,
        include_dates: true,
        include_epochs: true,
        include_referrers: true,
      },
    }),
  );
  if (!data) return <>…</>;
  if (!data.tags?.length) return <span class="hint">no tag</span>;
  return (
    <span class="chips">
      {data.tags.map((t) => (
        <a key={t.uid} class="chip" href={imagePage(uid, t.name ?? "")}>
          <bdi>{t.name}</bdi>
        </a>
      ))}
      {Number(data.totalCount) > 20 && <span class="hint">of {count(data.totalCount)}</span>}
    </span>
  );
}

const shown = 200; // findings of a page: most images have fewer, so that each package is complete

const architecture = () => param("architecture") || undefined;
const findingList = (uid: string, reference: string) =>
  get("/findings/v1/repos/{uid}/findings/{reference}", {
    path: { uid, reference },
    query: {
      architecture: architecture(),
      package: param("package") || undefined,
      page_size: shown,
      page_token: param("page") || undefined,
      severities: param("severity") ? ([`SEVERITY_${param("severity").toUpperCase()}`] as Severities) : undefined,
      states: param("state")
        ? ([`STATE_${param("state").toUpperCase()}`] as Schema<"holdfast.findings.v1.State">[])
        : undefined,
    },
  });

/** Architectures is shown only if there are several. */
function Architectures({ image }: { image: Schema<"holdfast.oci.v1.Image"> }) {
  const names = [...new Set(image.variants?.map((v) => v.architecture ?? "").filter((a) => a && a !== "unknown"))];
  if (names.length < 2) return null;
  return <Choice name="architecture" label="Architecture" options={names.map((n) => [n === "amd64" ? "" : n, n])} />;
}

function Findings({
  uid,
  reference,
  image,
}: {
  uid: string;
  reference: string;
  image: Schema<"holdfast.oci.v1.Image">;
}) {
  const found = useQuery(findingList(uid, reference));
  return (
    <>
      <Filters label="Filter findings">
        <Field name="package" label="Package" placeholder="openssl" first />
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
            ["closed", "closed"],
          ]}
        />
        <Architectures image={image} />
      </Filters>
      <Answer of={found}>
        {({ findings = [], inspection, coverage, incomplete, nextPageToken, totalCount }) => (
          <>
            <Coverage of={inspection} feeds={<FeedVersions of={coverage} />} />
            {incomplete && <p class="coverage">{incomplete}</p>}
            <UnseenAdvisories group={uid} />
            {findings.length === 0 ? (
              <NoFindings of={coverage} title="No known findings">
                The line above shows the coverage: a package that no advisory covers cannot have findings.
              </NoFindings>
            ) : (
              <ByPackage findings={findings} part={Boolean(nextPageToken || param("page"))} />
            )}
            <Pager next={nextPageToken} total={totalCount} one="finding" />
          </>
        )}
      </Answer>
    </>
  );
}

function Coverage({ of, feeds }: { of?: Schema<"holdfast.findings.v1.Inspection">; feeds?: ComponentChildren }) {
  const c = of?.coverage;
  return (
    <p class="coverage">
      {of?.platform} {of?.distribution?.name && `· ${of.distribution.name} ${of.distribution.version}`} ·{" "}
      {word(of?.state, "STATE")} <Time at={of?.updateTime} />: advisories cover {count(c?.covered)} of{" "}
      {many(c?.packages, "package")}
      {c?.notCovered ? `, nothing is known about ${count(c.notCovered)}` : ""}
      {c?.waiting ? `, ${count(c.waiting)} wait` : ""}
      {of?.sboms?.length ? `; ${many(of.sboms.length, "SBOM")} attached` : ""}.{of?.reason && ` ${of.reason}`}
      {of?.otherPlatforms?.length ? (
        <span class="line">
          Only {of.platform} is shown. The index also has images for {of.otherPlatforms.join(", ")}.
        </span>
      ) : (
        ""
      )}
      {of?.warnings?.map((w) => (
        <span key={w} class="line">
          {w}
        </span>
      ))}
      {feeds}
    </p>
  );
}

function Packages({
  uid,
  reference,
  image,
}: {
  uid: string;
  reference: string;
  image: Schema<"holdfast.oci.v1.Image">;
}) {
  const found = useQuery(
    get("/findings/v1/repos/{uid}/packages/{reference}", {
      path: { uid, reference },
      query: {
        architecture: architecture(),
        order_by: param("order") || undefined,
        page_size: 100,
        page_token: param("page") || undefined,
      },
    }),
  );
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Architectures image={image} />
      </form>
      <Answer of={found}>
        {({ packages = [], nextPageToken, totalCount, coverage }) => (
          <>
            <p class="coverage">
              Advisories cover {count(coverage?.packages?.covered)} of {many(coverage?.packages?.packages, "package")}
              {coverage?.packages?.notCovered ? `, nothing is known about ${count(coverage.packages.notCovered)}` : ""}
              {coverage?.packages?.waiting ? `, ${count(coverage.packages.waiting)} wait` : ""}.
              <FeedVersions of={coverage} />
            </p>
            {packages.length === 0 ? (
              <Empty title="No package was found in it" />
            ) : (
              <Table
                label="Packages"
                rows={packages}
                id={(p) => `${p.package?.purl} ${p.location} ${p.layer}`}
                columns={[
                  { name: "Package", order: "name", cell: (p) => <bdi>{p.package?.name}</bdi> },
                  { name: "Version", cell: (p) => p.package?.version },
                  { name: "Ecosystem", cell: (p) => p.package?.ecosystem },
                  { name: "Known by", wide: true, cell: (p) => p.origins?.map((o) => o.kind).join(", ") },
                  { name: "Layer", number: true, wide: true, cell: (p) => p.layer },
                  { name: "File", wide: true, cell: (p) => <code>{p.location}</code> },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="package" />
          </>
        )}
      </Answer>
    </>
  );
}

function Platforms({ image }: { image: Schema<"holdfast.oci.v1.Image"> }) {
  if (!image.variants?.length)
    return <Empty title="This is no image">It is of the type {image.artifactType || image.mediaType}.</Empty>;
  return (
    <>
      {image.variants.map((v) => (
        <Section key={v.digest} title={[v.os, v.architecture, v.variant].filter(Boolean).join("/") || "any platform"}>
          <Facts
            of={[
              ["Digest", <Digest of={v.digest} repo={image.repoUid} />],
              ["Size", `${bytes(v.size)} in ${many(v.layers, "layer")}`],
              ["Made", v.config?.createTime && <Time at={v.config.createTime} />],
              [
                "Runs",
                [...(v.config?.entrypoint ?? []), ...(v.config?.cmd ?? [])].length > 0 && (
                  <code>{[...(v.config?.entrypoint ?? []), ...(v.config?.cmd ?? [])].map(sh).join(" ")}</code>
                ),
              ],
              ["User", v.config?.user],
              ["Folder", v.config?.workingDir && <code>{v.config.workingDir}</code>],
              ["Ports", v.config?.exposedPorts?.join(", ")],
              ["Environment", v.config?.env?.length ? <pre tabIndex={0}>{v.config.env.join("\n")}</pre> : ""],
              [
                "Labels",
                Object.keys(v.config?.labels ?? {}).length ? (
                  <pre tabIndex={0}>
                    {Object.entries(v.config?.labels ?? {})
                      .map(([k, l]) => `${k}=${l}`)
                      .join("\n")}
                  </pre>
                ) : (
                  ""
                ),
              ],
            ]}
          />
          {(v.steps ?? []).length > 0 && (
            <Table
              label={`Layers of ${v.digest}`}
              rows={(v.steps ?? []).map((step, i) => ({ ...step, at: i + 1 }))}
              id={(s) => String(s.at)}
              columns={[
                { name: "Step", number: true, cell: (s) => s.at },
                {
                  name: "Made by",
                  roomy: true,
                  cell: (s) => (
                    <>
                      <code>
                        <bdi>{s.command || "not known"}</bdi>
                      </code>
                      {s.digest && (
                        <small class="line">
                          <Digest of={s.digest} />
                        </small>
                      )}
                    </>
                  ),
                },
                {
                  name: "Size",
                  cell: (s) =>
                    s.digest ? (
                      <span class="scale">
                        <Share of={Number(s.size ?? 0)} whole={Number(v.size ?? 0)} /> {bytes(s.size)}
                      </span>
                    ) : (
                      <span class="hint">none</span>
                    ),
                },
                { name: "When", cell: (s) => s.createTime && <Time at={s.createTime} />, wide: true },
              ]}
            />
          )}
        </Section>
      ))}
    </>
  );
}

const referrers = (uid: string, digest: string) =>
  get("/oci/v1/repos/{uid}/referrers/{digest}", {
    path: { uid, digest },
    query: { after: param("page") || undefined },
  });

/** sort is a short name for the type of an attached artifact. */
function sort(type: string | undefined): string {
  if (/sigstore|cosign.*sig|signature|notary/.test(type ?? "")) return "signature";
  if (/spdx|cyclonedx|sbom/.test(type ?? "")) return "SBOM";
  if (/openvex|vex/.test(type ?? "")) return "VEX";
  return /in-toto|attestation|dsse/.test(type ?? "") ? "attestation" : "artifact";
}

const signatures = (uid: string, reference: string) =>
  get("/oci/v1/repos/{uid}/signatures/{reference}", { path: { uid, reference } });

/** Signed shows the accepted signers that have signed an image. */
function Signed({ uid, digest }: { uid: string; digest: string }) {
  const { data } = useQuery(signatures(uid, digest));
  if (!data?.sourceUid) return null;
  return (
    <p>
      {data.verified ? (
        <>
          Signed by <bdi>{data.signers?.join(", ")}</bdi>, whose signature was verified.
        </>
      ) : (
        "No accepted signer has signed it."
      )}
    </p>
  );
}

/** Attached shows the signatures, SBOMs and attestations of an image. */
function Attached({ uid, digest, path }: { uid: string; digest: string; path: string }) {
  return (
    <Answer of={useQuery(referrers(uid, digest))}>
      {({ referrers: all = [], incomplete }) => (
        <>
          <Signed uid={uid} digest={digest} />
          <p class="coverage">
            These are claims of people and workloads that may push to the repo. They are not verified here.
          </p>
          {all.length === 0 ? (
            <Empty title="Nothing is attached to it" command={`cosign sign ${location.host}/${path}@${digest}`}>
              Signatures, SBOMs and attestations that are pushed for this digest are listed here.
            </Empty>
          ) : (
            <Table
              label="Attached"
              rows={all}
              id={(r) => r.digest ?? ""}
              columns={[
                {
                  name: "What",
                  cell: (r) => (
                    <>
                      {sort(r.artifactType || r.mediaType)}
                      <small class="line">
                        <bdi>{r.artifactType || r.mediaType}</bdi>
                      </small>
                    </>
                  ),
                },
                { name: "Digest", cell: (r) => <Digest of={r.digest} repo={uid} /> },
                { name: "Size", number: true, wide: true, cell: (r) => bytes(r.size) },
                {
                  name: "Annotations",
                  roomy: true,
                  cell: (r) =>
                    Object.keys(r.annotations ?? {}).length > 0 ? (
                      <details>
                        <summary>{many(Object.keys(r.annotations ?? {}).length, "annotation")}</summary>
                        <pre tabIndex={0}>
                          {Object.entries(r.annotations ?? {})
                            .map(([k, v]) => `${k}=${v}`)
                            .join("\n")}
                        </pre>
                      </details>
                    ) : null,
                },
              ]}
            />
          )}
          <Pager next={incomplete ? all[all.length - 1]?.digest : undefined} one="artifact" />
        </>
      )}
    </Answer>
  );
}

const running = (digest: string) =>
  get("/findings/v1/inventory", { query: { digest, page_size: 50, page_token: param("page") || undefined } });

/** Runs shows where the image runs, according to the inventories. */
function Runs({ digest, path }: { digest: string; path: string }) {
  const organization = path.split("/")[0] || "ORGANIZATION";
  return (
    <Answer of={useQuery(running(digest))}>
      {({ images = [], nextPageToken, totalCount }) => (
        <>
          {images.length === 0 ? (
            <Empty
              title="No inventory that you may see lists this image"
              what="where it runs"
              needs={["registry.deployments.list"]}
              command={`kubectl get pods -A -o json | holdfast inventory push --group ${sh(organization)} --place prod`}
            >
              Inventories list where images run. A job in each cluster pushes them.
            </Empty>
          ) : (
            <Table
              label="Where it runs"
              rows={images}
              id={({ groupUid, place, entry }) =>
                [groupUid, place, entry?.namespace, entry?.workload, entry?.container, entry?.image].join(" ")
              }
              columns={[
                {
                  name: "Place",
                  cell: (i) => (
                    <>
                      <bdi>{i.place}</bdi>
                      <small class="line">
                        <Name uid={i.groupUid} path quiet />
                      </small>
                    </>
                  ),
                },
                {
                  name: "Workload",
                  roomy: true,
                  cell: (i) => (
                    <>
                      <bdi>{[i.entry?.namespace, i.entry?.workload].filter(Boolean).join("/")}</bdi>
                      <small class="line">
                        <bdi>{i.entry?.container}</bdi>
                      </small>
                    </>
                  ),
                },
                {
                  name: "Started as",
                  wide: true,
                  cell: (i) => (
                    <code>
                      <bdi>{i.entry?.image}</bdi>
                    </code>
                  ),
                },
                { name: "Copies", number: true, cell: (i) => count(i.entry?.copies || 1) },
                { name: "Told", cell: (i) => <Time at={i.pushTime} /> },
                { name: "By", wide: true, cell: (i) => <Name uid={i.identityUid} quiet /> },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="workload" />
        </>
      )}
    </Answer>
  );
}

function Pulls({ uid, digest }: { uid: string; digest: string }) {
  const found = useQuery(
    get("/oci/v1/pulls", {
      query: { "uidp.children_of": uid, digest, page_size: 50, page_token: param("page") || undefined },
    }),
  );
  return (
    <Answer of={found}>
      {({ pulls = [], nextPageToken, totalCount }) => (
        <>
          {pulls.length === 0 ? (
            <Empty title="No pull or push of it is recorded" />
          ) : (
            <Table
              label="Pulls and pushes"
              rows={pulls}
              id={(p) => p.uid ?? ""}
              columns={[
                {
                  name: "Who",
                  cell: (p) =>
                    p.identityUid ? <Name uid={p.identityUid} /> : <span class="hint">without a token</span>,
                },
                {
                  name: "What",
                  cell: (p) => (
                    <>
                      {word(p.direction, "DIRECTION")}
                      {Number(p.count) > 1 && ` × ${count(p.count)}`}
                    </>
                  ),
                },
                { name: "Tag", cell: (p) => <bdi>{p.tag}</bdi>, wide: true },
                { name: "When", cell: (p) => <Time at={p.createTime} /> },
                { name: "From", cell: (p) => <code>{p.remoteAddress}</code>, wide: true },
                { name: "Program", cell: (p) => <bdi>{p.userAgent}</bdi>, wide: true },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="pull or push" more="pulls and pushes" />
        </>
      )}
    </Answer>
  );
}
