import { useState } from "preact/hooks";
import { del, type Fault, get, post, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { changed, useMay, useQuery } from "../../api/query";
import {
  Above,
  Answer,
  AsCommand,
  bytes,
  Command,
  Copy,
  count,
  Dialog,
  Digest,
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
  Problem,
  Section,
  SeverityCounts,
  said,
  sh,
  Table,
  Tabs,
  Time,
  toast,
  unsaid,
  useSelection,
} from "../../ui";
import { comparePage, imagePage, param, withParams } from "../../ui/router";
import { ChangeCounts, comparison } from "./compare";
import { Following } from "./following";
import { Retention, retentionOf } from "./retention";
import { Trash, trashOf } from "./trash";

type Tag = Schema<"holdfast.registry.v2beta1.Tag">;
const tabs = [
  { id: "", name: "Tags" },
  { id: "findings", name: "Findings" },
  { id: "history", name: "History" },
  { id: "readme", name: "Readme" },
  { id: "retention", name: "Retention" },
  { id: "trash", name: "Trash" },
];

export default function Repo({ uid }: { uid: string }) {
  const repo = useQuery(get("/registry/v2beta1/repos/{uid}", { path: { uid } }));
  const registry = useQuery(get("/oci/v1/registry", {}));
  const path = nameOf(uid).value?.path ?? "";
  const tab = param("tab");
  const address = registry.data && path ? `${registry.data.host}/${path}` : "";
  if (repo.error)
    return (
      <Page title="Repo">
        <Problem error={repo.error} />
      </Page>
    );
  return (
    <Page
      thing={!!repo.data}
      title={repo.data?.name ?? "…"}
      mark={<Copy text={uid} what="the uid of this repo" />}
      above={<Above uid={uid} />}
      lead={repo.data?.description || undefined}
      actions={
        tab === "retention" ? (
          <AsCommand command={`holdfast registry retention get ${sh(path || uid)}`} request={retentionOf(uid)} />
        ) : tab === "trash" ? (
          <AsCommand command={`holdfast registry trash list --repo ${sh(path || uid)}`} request={trashOf(uid)} />
        ) : (
          <AsCommand command={`holdfast registry tags list --repo ${sh(path || uid)}`} request={tagList(uid)} />
        )
      }
    >
      {repo.data?.sync_config && <Following uid={uid} path={path || uid} />}
      <Tabs
        label="Parts of this repo"
        items={tabs}
        now={tab}
        href={(id) => withParams({ tab: id, order: undefined, name: undefined, tag: undefined })}
      />
      {tab === "" && <Tags uid={uid} path={path} address={address} />}
      {tab === "findings" && <Findings uid={uid} />}
      {tab === "history" && <History uid={uid} path={path || uid} />}
      {tab === "readme" && <Readme uid={uid} path={path} />}
      {tab === "retention" && <Retention uid={uid} path={path || uid} />}
      {tab === "trash" && <Trash uid={uid} path={path || uid} />}
    </Page>
  );
}

const tagList = (uid: string) =>
  get("/registry/v2beta1/tags", {
    query: {
      "uidp.children_of": uid,
      name: param("name") || undefined,
      order_by: param("order") || "update_time desc",
      page_size: 50,
      page_token: param("page") || undefined,
    },
  });

function Tags({ uid, path, address }: { uid: string; path: string; address: string }) {
  const may = useMay();
  const [deleting, setDeleting] = useState<Tag[]>();
  const found = useQuery(tagList(uid));
  const { chosen, column, clear } = useSelection(found.data?.tags ?? [], (t) => t.name ?? "");
  const summary = useQuery(get("/findings/v1/summary", { query: { group_uid: uid, days: 1, page_size: 200 } }));
  const digests = [...new Set((found.data?.tags ?? []).map((t) => t.digest ?? ""))];
  const images = useQuery(
    digests.length > 0 ? get("/oci/v1/repos/{uid}/summaries", { path: { uid }, query: { digests } }) : null,
  );
  const about = new Map(images.data?.summaries?.map((s) => [s.digest, s]) ?? []);
  const open = new Map(summary.data?.rows?.map((r) => [r.name ?? "", r.counts?.now]) ?? []);
  const canDelete = may("tag.delete", uid),
    canMove = may("tag.create", uid);
  const [moving, setMoving] = useState<Tag>();
  return (
    <>
      {address && <Command text={`docker pull ${address}:${found.data?.tags?.[0]?.name ?? "TAG"}`} />}
      <div class="bar-row">
        <Filters label="Filter tags">
          <Field name="name" label="Exact name of a tag" placeholder="v1" first />
        </Filters>
        {canDelete && chosen.length > 0 && (
          <button type="button" class="danger small" onClick={() => setDeleting(chosen)}>
            Delete {many(chosen.length, "tag")}…
          </button>
        )}
      </div>
      <Answer of={found}>
        {({ tags = [], nextPageToken, totalCount }) => (
          <>
            {tags.length === 0 ? (
              <Empty
                title={param("name") ? "No tag has exactly this name" : "There is no tag yet"}
                what="tags"
                needs={["tag.list"]}
                group={uid}
                command={param("name") || !address ? undefined : `docker push ${address}:v1`}
              >
                A tag is a name for an image, which a push sets and moves.
              </Empty>
            ) : (
              <Table
                label="Tags"
                rows={tags}
                id={(t) => t.uid ?? ""}
                columns={[
                  ...(canDelete ? [column] : []),
                  {
                    name: "Tag",
                    order: "name",
                    cell: (t) => (
                      <a href={imagePage(uid, t.name ?? "")}>
                        <bdi>{t.name}</bdi>
                      </a>
                    ),
                  },
                  {
                    name: "Findings",
                    cell: (t) =>
                      open.has(t.name ?? "") ? (
                        <SeverityCounts of={open.get(t.name ?? "")} coverage={summary.data?.coverage} />
                      ) : (
                        <span class="hint">
                          {!summary.data ? "…" : summary.data.nextPageToken ? "see Findings" : "not known"}
                        </span>
                      ),
                  },
                  { name: "Platforms", cell: (t) => <Platforms of={about.get(t.digest)?.platforms} />, wide: true },
                  {
                    name: "Size",
                    number: true,
                    cell: (t) => (about.has(t.digest) ? bytes(about.get(t.digest)?.size) : ""),
                  },
                  { name: "Pulls", number: true, wide: true, cell: (t) => <Pulls of={about.get(t.digest)} /> },
                  { name: "Digest", cell: (t) => <Digest of={t.digest} repo={uid} />, wide: true },
                  { name: "Pushed", order: "update_time", cell: (t) => <Time at={t.updateTime} /> },
                  {
                    name: "Pull",
                    wide: true,
                    cell: (t) =>
                      address && (
                        <Copy text={`docker pull ${address}:${t.name}`} what={`the command that pulls ${t.name}`} />
                      ),
                  },
                  ...(canMove
                    ? [
                        {
                          name: "Move",
                          hidden: true,
                          wide: true,
                          cell: (t: Tag) => (
                            <button
                              type="button"
                              class="small"
                              aria-label={`Move ${t.name}`}
                              onClick={() => setMoving(t)}
                            >
                              Move…
                            </button>
                          ),
                        },
                      ]
                    : []),
                  {
                    name: "History",
                    cell: (t) => (
                      <a href={withParams({ tab: "history", tag: t.name, name: undefined, order: undefined })}>
                        history
                      </a>
                    ),
                    wide: true,
                  },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="tag" />
            {summary.data && <GroupCoverage of={summary.data.coverage} />}
          </>
        )}
      </Answer>
      {moving && <MoveTag repo={uid} tag={moving} path={path || uid} onClose={() => setMoving(undefined)} />}
      {deleting && (
        <DeleteTags
          tags={deleting}
          path={path || uid}
          onClose={(done) => {
            setDeleting(undefined);
            if (done) clear();
          }}
        />
      )}
    </>
  );
}

/** Platforms shows the platforms of an image; only the first if there are many. */
const Platforms = ({ of = [] }: { of?: string[] }) => (
  <>
    <bdi>{of[0]}</bdi>
    {of.length > 1 && (
      <small class="line" title={of.join(", ")}>
        and {many(of.length - 1, "other")}
      </small>
    )}
  </>
);

/** Pulls shows the number of pulls in 30 days, which may be too low from a hundred on. */
const Pulls = ({ of }: { of?: Schema<"holdfast.oci.v1.ImageSummary"> }) =>
  of ? (
    <>
      {Number(of.pullCount ?? 0) >= 100 ? `${count(of.pullCount)} or more` : count(of.pullCount)}
      {of.lastPullTime && (
        <small class="line">
          <Time at={of.lastPullTime} />
        </small>
      )}
    </>
  ) : null;

/** MoveTag moves a tag to another image. It shows the differences first. */
function MoveTag({
  repo,
  tag,
  to: given = "",
  path,
  onClose,
}: {
  repo: string;
  tag: Tag;
  to?: string;
  path: string;
  onClose: () => void;
}) {
  const [to, setTo] = useState(given);
  const [digest, setDigest] = useState("");
  const [error, setError] = useState<Fault>();
  const differs = useQuery(
    digest && tag.digest && digest !== tag.digest
      ? comparison({ repo, reference: tag.digest }, { repo, reference: digest }, { page_size: 1 })
      : null,
  );
  const act = async () => {
    setError(undefined);
    try {
      const found =
        digest ||
        ((await get("/oci/v1/repos/{uid}/images/{reference}", { path: { uid: repo, reference: to.trim() } }).send())
          .digest ??
          "");
      await post("/registry/v2beta1/tags/{uid}", {
        path: { uid: repo },
        query: { validate_only: !digest || undefined },
        body: { name: tag.name ?? "", digest: found, deprecated: tag.deprecated, bundles: tag.bundles },
      }).send();
      if (!digest) return setDigest(found);
      await changed();
      toast(`The tag ${tag.name} was moved`);
      onClose();
    } catch (failed) {
      setDigest("");
      setError(failed as Fault);
    }
  };
  return (
    <Dialog title={`Move ${tag.name}`} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void act();
        }}
      >
        <p>
          <bdi>{tag.name}</bdi>{" "}
          {tag.digest ? (
            <>
              stands for <Digest of={tag.digest} />
            </>
          ) : (
            "has no image now"
          )}
          .
        </p>
        <Field
          name="to"
          label="Tag or digest of the new image"
          value={to}
          onInput={(v) => {
            setTo(v);
            setDigest("");
          }}
          placeholder="v2"
          required
          error={said(error, "digest")}
        />
        {digest && (
          <p class="notice" role="status">
            From now on, pulls of <bdi>{tag.name}</bdi> return <code>{digest.slice(0, 19)}</code>.{" "}
            {digest === tag.digest ? (
              "The tag already points to it."
            ) : differs.data ? (
              <>
                Compared with its present image: <ChangeCounts of={differs.data.counts} />.
              </>
            ) : differs.error ? (
              `The differences are not known: ${differs.error.message}`
            ) : (
              "Comparing…"
            )}
          </p>
        )}
        <Command
          text={`holdfast registry tags create ${sh(tag.name ?? "")} --repo ${sh(path)} --digest ${digest || "DIGEST"}`}
        />
        {error && unsaid(error, "digest") && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            {digest ? "Move the tag" : "Check"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** DeleteTags shows the tags to delete, and the server checks the deletion before anything is deleted. */
function DeleteTags({ tags, path, onClose }: { tags: Tag[]; path: string; onClose: (done: boolean) => void }) {
  const [error, setError] = useState<Fault>();
  const [busy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    try {
      for (const validate_only of [true, false]) {
        for (const t of tags)
          await del("/registry/v2beta1/tags/{uid}", { path: { uid: t.uid ?? "" }, query: { validate_only } }).send();
      }
      await changed();
      toast(`${many(tags.length, "tag")} deleted`);
      onClose(true);
    } catch (failed) {
      setError(failed as Fault);
      setBusy(false);
      void changed();
    }
  };
  return (
    <Dialog title={`Delete ${many(tags.length, "tag")}?`} onClose={() => onClose(false)}>
      <p>Pulls by these tags stop working. The images stay until nothing uses them.</p>
      <ul class="rows scroll" tabIndex={0}>
        {tags.map((t) => (
          <li key={t.uid}>
            <bdi>{t.name}</bdi>
            <Digest of={t.digest} />
          </li>
        ))}
      </ul>
      <Command text={`holdfast registry tags delete ${tags.map((t) => sh(`${path}:${t.name}`)).join(" ")} --yes`} />
      {error && <Problem error={error} />}
      <div class="dialog-foot">
        <button type="button" onClick={() => onClose(false)}>
          Keep them
        </button>
        <button type="button" class="danger" disabled={busy} onClick={remove}>
          Delete
        </button>
      </div>
    </Dialog>
  );
}

function Findings({ uid }: { uid: string }) {
  const found = useQuery(
    get("/findings/v1/findings", { query: { group_uid: uid, page_size: 50, page_token: param("page") || undefined } }),
  );
  return (
    <Answer of={found}>
      {({ findings = [], coverage, nextPageToken, totalCount }) => (
        <>
          <GroupCoverage of={coverage} group={uid} />
          {findings.length === 0 ? (
            <NoFindings of={coverage} title="No known findings" group={uid} />
          ) : (
            <Table
              label="Findings"
              rows={findings}
              id={(f) => `${f.advisoryId} ${f.package?.purl}`}
              columns={[
                ...findingColumns,
                { name: "Images", number: true, wide: true, cell: (f) => count(f.imageCount) },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="finding" />
        </>
      )}
    </Answer>
  );
}

type Moved = Schema<"holdfast.oci.v1.TagChange">;

/** History shows the earlier images of tags. For one tag it is a timeline with comparisons. */
function History({ uid, path }: { uid: string; path: string }) {
  const tag = param("tag");
  const may = useMay();
  const [back, setBack] = useState<Moved>();
  const now = useQuery(
    tag
      ? get("/registry/v2beta1/tags", {
          query: {
            "uidp.children_of": uid,
            name: tag,
            page_size: 1,
            include_dates: true,
            include_epochs: true,
            include_referrers: true,
          },
        })
      : null,
  ).data?.tags?.[0];
  const found = useQuery(
    get("/oci/v1/repos/{uid}/tagHistory", {
      path: { uid },
      query: { tag: tag || undefined, page_size: 50, page_token: param("page") || undefined },
    }),
  );
  return (
    <>
      <Filters label="Filter the history">
        <Field name="tag" label="Exact name of a tag" placeholder="latest" first />
      </Filters>
      <Answer of={found}>
        {({ changes = [], nextPageToken, totalCount }) => (
          <>
            {tag && changes.length > 0 ? (
              <ol class="why timeline">
                {changes.map((c, i) => (
                  <li key={c.time}>
                    <span>
                      <Time at={c.time} />
                    </span>
                    <div>
                      {c.digest ? <Digest of={c.digest} repo={uid} /> : <span class="wrong">deleted</span>}{" "}
                      {i === 0 && !param("page") && <span class="state active">now</span>}
                      <small>
                        by <Name uid={c.actorUid} quiet />
                      </small>
                      <span class="entry-links">
                        {c.digest && changes[i + 1]?.digest && (
                          <a href={comparePage(uid, c.digest, changes[i + 1]?.digest ?? "")}>
                            compare with the previous image
                          </a>
                        )}
                        {c.digest && c.digest !== now?.digest && may("tag.create", uid) && (
                          <button type="button" class="small" onClick={() => setBack(c)}>
                            Move it back here…
                          </button>
                        )}
                      </span>
                    </div>
                  </li>
                ))}
              </ol>
            ) : changes.length === 0 ? (
              <Empty title="No tag was ever moved here" />
            ) : (
              <Table
                label="Tag history"
                rows={changes}
                id={(c) => `${c.time} ${c.tag}`}
                columns={[
                  {
                    name: "Tag",
                    cell: (c) => (
                      <a href={withParams({ tag: c.tag })}>
                        <bdi>{c.tag}</bdi>
                      </a>
                    ),
                  },
                  {
                    name: "Image",
                    cell: (c) => (c.digest ? <Digest of={c.digest} repo={uid} /> : <span class="wrong">deleted</span>),
                  },
                  { name: "When", cell: (c) => <Time at={c.time} /> },
                  { name: "By", cell: (c) => <Name uid={c.actorUid} />, wide: true },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="change" />
          </>
        )}
      </Answer>
      {back && (
        <MoveTag
          repo={uid}
          tag={now ?? { name: tag, digest: "" }}
          to={back.digest}
          path={path}
          onClose={() => setBack(undefined)}
        />
      )}
    </>
  );
}

function Readme({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(get("/registry/v2beta1/repos/{uid}/readme", { path: { uid } }))}>
      {({ content }) =>
        content ? (
          <Section title="Readme">
            <pre class="text" dir="auto" tabIndex={0}>
              {content}
            </pre>
          </Section>
        ) : (
          <Empty
            title="There is no readme"
            command={`holdfast registry repos readme ${sh(path || uid)} --set README.md`}
          >
            A readme explains what the images are for.
          </Empty>
        )
      }
    </Answer>
  );
}
