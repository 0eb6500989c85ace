import { get, type Schema } from "../api";
import { nameOf } from "../names";
import { useQuery } from "../query";
import { imagePage, param, repoPage, withParams } from "../router";
import { Above, Answer, AsCommand, bytes, Choice, Command, Copy, count, Digest, Empty, Facts, Field, Filters, findingColumns, many, Name, Page, Pager, Problem, Section, sh, severities, Table, Tabs, Time, word } from "../ui";

const tabs = [{ id: "", name: "Findings" }, { id: "packages", name: "Packages" }, { id: "platforms", name: "Platforms" }, { id: "pulls", name: "Pulls" }];
type Severities = Schema<"holdfast.findings.v1.Severity">[];

export default function Image({ uid, reference }: { uid: string; reference: string }) {
  const request = get("/oci/v1/repos/{uid}/images/{reference}", { path: { uid, reference } });
  const image = useQuery(request);
  const registry = useQuery(get("/oci/v1/registry", {}));
  const path = nameOf(uid).value?.path ?? "";
  const tab = param("tab");
  const join = reference.includes(":") ? "@" : ":";
  if (image.error) return <Page title={reference} above={<Above uid={uid} />}><Problem error={image.error} /></Page>;
  const short = reference.replace(/^(\w+):(.{12}).*$/, "$1:$2");
  return (
    <Page
      thing={!!image.data} title={short} mark={<Copy text={image.data?.digest ?? reference} what="the digest" />}
      above={<><Above uid={uid} /><p class="crumb-repo"><a href={repoPage(uid)}><bdi>{nameOf(uid).value?.name ?? "repo"}</bdi></a></p></>}
      actions={<AsCommand command={`holdfast ${tab === "packages" ? "registry images packages" : tab === "" ? "findings list" : "registry images inspect"} ${sh(`${path || uid}${join}${reference}`)}`} request={tab === "" ? findingList(uid, reference) : request} />}
    >
      {registry.data && path && <Command text={`docker pull ${registry.data.host}/${path}${join}${reference}`} />}
      <Answer of={image}>{(i) => (
        <>
          <Facts of={[
            ["Digest", <Digest of={i.digest} />],
            ["Pushed", <Time at={i.pushTime} />],
            ["Tags", <TagsOf uid={uid} digest={i.digest ?? ""} />],
            ["Is about", i.subject && <Digest of={i.subject} repo={uid} />],
            ["Platforms", i.variants?.map((v) => [v.os, v.architecture, v.variant].filter(Boolean).join("/")).join(", ")],
          ]} />
          <Tabs label="Of this image" items={tabs} now={tab} href={(id) => withParams({ tab: id, severity: undefined, state: undefined, package: undefined })} />
          {tab === "" && <Findings uid={uid} reference={reference} image={i} />}
          {tab === "packages" && <Packages uid={uid} reference={reference} image={i} />}
          {tab === "platforms" && <Platforms image={i} />}
          {tab === "pulls" && <Pulls uid={uid} digest={i.digest ?? ""} />}
        </>
      )}</Answer>
    </Page>
  );
}

function TagsOf({ uid, digest }: { uid: string; digest: string }) {
  const { data } = useQuery(get("/registry/v2beta1/tags", { query: { "uidp.children_of": uid, digest, page_size: 20, include_dates: true, include_epochs: true, include_referrers: true } }));
  if (!data) return <>…</>;
  if (!data.tags?.length) return <span class="hint">none stands for it</span>;
  return <span class="chips">{data.tags.map((t) => <a key={t.uid} class="chip" href={imagePage(uid, t.name ?? "")}><bdi>{t.name}</bdi></a>)}{Number(data.totalCount) > 20 && <span class="hint">of {count(data.totalCount)}</span>}</span>;
}

const architecture = () => param("architecture") || undefined;
const findingList = (uid: string, reference: string) => get("/findings/v1/repos/{uid}/findings/{reference}", {
  path: { uid, reference },
  query: {
    architecture: architecture(), package: param("package") || undefined, page_size: 50, page_token: param("page") || undefined,
    severities: param("severity") ? ([`SEVERITY_${param("severity").toUpperCase()}`] as Severities) : undefined,
    states: param("state") ? ([`STATE_${param("state").toUpperCase()}`] as Schema<"holdfast.findings.v1.State">[]) : undefined,
  },
});

/** Architectures is there only if there is a choice. */
function Architectures({ image }: { image: Schema<"holdfast.oci.v1.Image"> }) {
  const names = [...new Set(image.variants?.map((v) => v.architecture ?? "").filter((a) => a && a !== "unknown"))];
  if (names.length < 2) return null;
  return <Choice name="architecture" label="Architecture" options={names.map((n) => [n === "amd64" ? "" : n, n])} />;
}

function Findings({ uid, reference, image }: { uid: string; reference: string; image: Schema<"holdfast.oci.v1.Image"> }) {
  const found = useQuery(findingList(uid, reference));
  return (
    <>
      <Filters label="Filter findings">
        <Field name="package" label="Package" placeholder="openssl" first />
        <Choice name="severity" label="Severity" options={[["", "any"], ...severities.map((s): [string, string] => [s, s])]} />
        <Choice name="state" label="State" options={[["", "open and excepted"], ["open", "open"], ["excepted", "excepted"], ["closed", "closed"]]} />
        <Architectures image={image} />
      </Filters>
      <Answer of={found}>{({ findings = [], inspection, incomplete, nextPageToken, totalCount }) => (
        <>
          <Coverage of={inspection} />
          {incomplete && <p class="coverage">{incomplete}</p>}
          {findings.length === 0 ? <Empty title="Nothing is known to be wrong">What is known is the line above: a package that no advisory covers cannot have findings.</Empty>
            : <Table label="Findings" rows={findings} id={(f) => `${f.advisoryId} ${f.package?.purl} ${f.location}`} columns={[
              ...findingColumns,
              { name: "Layer", number: true, wide: true, cell: (f) => <span title={f.location}>{f.origin === "sbom" ? "SBOM" : f.layer}</span> },
              { name: "Seen", wide: true, cell: (f) => <Time at={f.firstSeenTime} /> },
            ]} />}
          <Pager next={nextPageToken} total={totalCount} one="finding" />
        </>
      )}</Answer>
    </>
  );
}

function Coverage({ of }: { of?: Schema<"holdfast.findings.v1.Inspection"> }) {
  const c = of?.coverage;
  return (
    <p class="coverage">
      {of?.platform} {of?.distribution?.name && `· ${of.distribution.name} ${of.distribution.version}`} · {word(of?.state, "STATE")} <Time at={of?.updateTime} />:
      {" "}advisories cover {count(c?.covered)} of {many(c?.packages, "package")}
      {c?.notCovered ? `, nothing is known about ${count(c.notCovered)}` : ""}{c?.waiting ? `, ${count(c.waiting)} wait` : ""}
      {of?.sboms?.length ? `; ${many(of.sboms.length, "SBOM")} attached` : ""}.
      {of?.reason && ` ${of.reason}`}
      {of?.warnings?.map((w) => <span key={w} class="line">{w}</span>)}
    </p>
  );
}

function Packages({ uid, reference, image }: { uid: string; reference: string; image: Schema<"holdfast.oci.v1.Image"> }) {
  const found = useQuery(get("/findings/v1/repos/{uid}/packages/{reference}", {
    path: { uid, reference }, query: { architecture: architecture(), order_by: param("order") || undefined, page_size: 100, page_token: param("page") || undefined },
  }));
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()}><Architectures image={image} /></form>
      <Answer of={found}>{({ packages = [], nextPageToken, totalCount }) => (
        <>
          {packages.length === 0 ? <Empty title="No package was found in it" />
            : <Table label="Packages" rows={packages} id={(p) => `${p.package?.purl} ${p.location} ${p.layer}`} columns={[
              { name: "Package", order: "name", cell: (p) => <bdi>{p.package?.name}</bdi> },
              { name: "Version", cell: (p) => p.package?.version },
              { name: "Ecosystem", cell: (p) => p.package?.ecosystem },
              { name: "Known by", wide: true, cell: (p) => p.origins?.map((o) => o.kind).join(", ") },
              { name: "Layer", number: true, wide: true, cell: (p) => p.layer },
              { name: "File", wide: true, cell: (p) => <code>{p.location}</code> },
            ]} />}
          <Pager next={nextPageToken} total={totalCount} one="package" />
        </>
      )}</Answer>
    </>
  );
}

function Platforms({ image }: { image: Schema<"holdfast.oci.v1.Image"> }) {
  if (!image.variants?.length) return <Empty title="This is no image">It is of the type {image.artifactType || image.mediaType}.</Empty>;
  return (
    <>
      {image.variants.map((v) => (
        <Section key={v.digest} title={[v.os, v.architecture, v.variant].filter(Boolean).join("/") || "any platform"}>
          <Facts of={[
            ["Digest", <Digest of={v.digest} repo={image.repoUid} />],
            ["Size", `${bytes(v.size)} in ${many(v.layers, "layer")}`],
            ["Made", v.config?.createTime && <Time at={v.config.createTime} />],
            ["Runs", [...(v.config?.entrypoint ?? []), ...(v.config?.cmd ?? [])].length > 0 && <code>{[...(v.config?.entrypoint ?? []), ...(v.config?.cmd ?? [])].map(sh).join(" ")}</code>],
            ["User", v.config?.user],
            ["Folder", v.config?.workingDir && <code>{v.config.workingDir}</code>],
            ["Ports", v.config?.exposedPorts?.join(", ")],
            ["Environment", v.config?.env?.length ? <pre tabIndex={0}>{v.config.env.join("\n")}</pre> : ""],
            ["Labels", Object.keys(v.config?.labels ?? {}).length ? <pre tabIndex={0}>{Object.entries(v.config?.labels ?? {}).map(([k, l]) => `${k}=${l}`).join("\n")}</pre> : ""],
          ]} />
        </Section>
      ))}
    </>
  );
}

function Pulls({ uid, digest }: { uid: string; digest: string }) {
  const found = useQuery(get("/oci/v1/pulls", { query: { "uidp.children_of": uid, digest, page_size: 50, page_token: param("page") || undefined } }));
  return (
    <Answer of={found}>{({ pulls = [], nextPageToken, totalCount }) => (
      <>
        {pulls.length === 0 ? <Empty title="Nobody has pulled or pushed it while this server kept a record" />
          : <Table label="Pulls and pushes" rows={pulls} id={(p) => p.uid ?? ""} columns={[
            { name: "Who", cell: (p) => (p.identityUid ? <Name uid={p.identityUid} /> : <span class="hint">without a token</span>) },
            { name: "What", cell: (p) => <>{word(p.direction, "DIRECTION")}{Number(p.count) > 1 && ` × ${count(p.count)}`}</> },
            { name: "Tag", cell: (p) => <bdi>{p.tag}</bdi>, wide: true },
            { name: "When", cell: (p) => <Time at={p.createTime} /> },
            { name: "From", cell: (p) => <code>{p.remoteAddress}</code>, wide: true },
            { name: "Program", cell: (p) => <bdi>{p.userAgent}</bdi>, wide: true },
          ]} />}
        <Pager next={nextPageToken} total={totalCount} one="pull or push" more="pulls and pushes" />
      </>
    )}</Answer>
  );
}
