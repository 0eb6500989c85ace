import { get, type Schema } from "../../api/api";
import { nameOf, parentOf } from "../../api/names";
import { useQuery } from "../../api/query";
import { useReach } from "../../api/reach";
import { contains, type Repo, repoList, useRepos } from "../../api/repos";
import {
  Answer,
  AsCommand,
  bytes,
  Copy,
  count,
  Empty,
  Field,
  Filters,
  findingNeeds,
  many,
  Page,
  Pager,
  Path,
  Problem,
  SeverityBar,
  SeverityCounts,
  sh,
  Table,
  Time,
  Waiting,
} from "../../ui";
import { param, repoPage } from "../../ui/router";

const shown = 25; // repos of a page; each needs two requests about its newest tag

export default function Repos() {
  const text = param("path"),
    order = param("order") || "name",
    group = param("group");
  const list = repoList(group, order, param("page") || undefined, shown);
  const command = [
    "holdfast registry repos list",
    group && `--parent ${sh(nameOf(group).value?.path ?? group)} --recursive`,
    param("order") && `--order-by ${sh(order)}`,
  ]
    .filter(Boolean)
    .join(" ");
  return (
    <Page
      title="Repos"
      lead="Images that you may pull or see, in all your organizations."
      actions={<AsCommand command={command} request={list} />}
    >
      <Filters label="Filter repos" names={{ group: ["groups"] }}>
        <Field name="path" label="Any part of the path" placeholder="platform web" first />
        <Field name="group" label="In the group, and below" placeholder="acme/platform" />
      </Filters>
      {text ? <Matching text={text} group={group} order={order} /> : <All list={list} group={group} />}
    </Page>
  );
}

const needs = { what: "repos", needs: ["repo.list"] };

function All({ list, group }: { list: ReturnType<typeof repoList>; group: string }) {
  return (
    <Answer of={useQuery(list)}>
      {({ repos = [], nextPageToken, totalCount }) => (
        <>
          {repos.length > 0 ? (
            <List repos={repos} />
          ) : group ? (
            <Empty title="There is no repo in this group that you may see" {...needs} group={group} />
          ) : (
            <Empty
              title="There is no repo that you may see"
              {...needs}
              command="holdfast auth configure-docker && docker push HOST/ORGANIZATION/app:v1"
            >
              A repo stores the images of one program. The first push creates it.
            </Empty>
          )}
          <Pager next={nextPageToken} total={totalCount} one="repo" />
        </>
      )}
    </Answer>
  );
}

/** Matching shows the repos whose path has the words of a text. */
function Matching({ text, group, order }: { text: string; group: string; order: string }) {
  const { repos, complete, loading, error } = useRepos(group, order);
  if (error) return <Problem error={error} />;
  if (loading) return <Waiting />;
  const paths = repos.map((r) => nameOf(r.uid ?? "").value);
  if (paths.some((p) => p === undefined)) return <Waiting />;
  const found = repos.filter((r, i) => contains(paths[i]?.path ?? r.name ?? "", text));
  return (
    <>
      {!complete && (
        <p class="coverage">
          Only the first {many(repos.length, "repo")} were searched, because there are more. Choose a group to search in
          it.
        </p>
      )}
      {found.length === 0 ? (
        <Empty title="No repo that you may see matches" {...needs} group={group} />
      ) : (
        <List repos={found.slice(0, shown)} />
      )}
      {found.length > shown && <p class="hint">and {count(found.length - shown)} more. Type more of the path.</p>}
    </>
  );
}

type Summary = Schema<"holdfast.findings.v1.GetSummaryResponse">;
const parents = 8; // groups whose findings are requested for one page

/** useCounts returns the counts of repos from the summaries of their groups. */
function useCounts(repos: Repo[], may: boolean) {
  const groups = [...new Set(repos.map((r) => parentOf(r.uid ?? "")))];
  const answers: (Summary | undefined)[] = [];
  for (let i = 0; i < parents; i++) {
    const group_uid = groups[i];
    answers.push(
      useQuery(may && group_uid ? get("/findings/v1/summary", { query: { group_uid, days: 1, page_size: 200 } }) : null)
        .data,
    );
  }
  return new Map(
    answers.flatMap((a) => (a?.rows ?? []).map((row) => [row.uid ?? "", { row, coverage: a?.coverage }] as const)),
  );
}

function List({ repos }: { repos: Repo[] }) {
  const may = (useReach(findingNeeds) ?? []).length > 0;
  const counts = useCounts(repos, may);
  const host = useQuery(get("/oci/v1/registry", {})).data?.host;
  return (
    <Table
      label="Repos"
      rows={repos}
      id={(r) => r.uid ?? ""}
      columns={[
        {
          name: "Repo",
          order: "name",
          roomy: true,
          cell: (r) => (
            <>
              <span class="name">
                <a href={repoPage(r.uid ?? "")}>
                  <Path uid={r.uid ?? ""} name={r.name} />
                </a>
                <Copy text={r.uid ?? ""} what={`the uid of ${r.name?.slice(0, 40)}`} />
              </span>
              {r.description && (
                <small class="line">
                  <bdi>{r.description}</bdi>
                </small>
              )}
            </>
          ),
        },
        {
          name: "Open findings",
          cell: (r) => {
            const found = counts.get(r.uid ?? "");
            if (!found) return <span class="hint">{may ? "not known" : "not shown to you"}</span>;
            return (
              <>
                <SeverityCounts of={found.row.counts?.now} coverage={found.coverage} />
                {Number(found.row.counts?.now?.open ?? 0) > 0 && <SeverityBar of={found.row.counts?.now} />}
              </>
            );
          },
        },
        {
          name: "Tags",
          number: true,
          cell: (r) => <Tags of={r.uid ?? ""} />,
        },
        { name: "Newest tag", cell: (r) => <Newest of={r} host={host} /> },
        { name: "Last push", cell: (r) => <Pushed of={r.uid ?? ""} /> },
      ]}
    />
  );
}

const newest = (uid: string) =>
  get("/registry/v2beta1/tags", { query: { "uidp.children_of": uid, order_by: "update_time desc", page_size: 1 } });

/** useNewest returns the tag that was pushed last, and the number of tags. */
const useNewest = (uid: string) => {
  const { data, error } = useQuery(newest(uid));
  return { tag: data?.tags?.[0], total: data?.totalCount, known: data !== undefined, error };
};

/** useImage returns the image of the newest tag. */
function useImage(uid: string) {
  const digest = useNewest(uid).tag?.digest;
  const query = { digests: [digest ?? ""] };
  return useQuery(digest ? get("/oci/v1/repos/{uid}/summaries", { path: { uid }, query }) : null).data?.summaries?.[0];
}

const unknown = <span class="hint">–</span>;

function Tags({ of }: { of: string }) {
  const { total, known, error } = useNewest(of);
  return known ? count(total) : error ? unknown : "…";
}

function Newest({ of, host }: { of: Repo; host?: string }) {
  const uid = of.uid ?? "";
  const { tag, known } = useNewest(uid);
  const image = useImage(uid);
  const path = nameOf(uid).value?.path;
  if (!tag) return <>{known ? unknown : "…"}</>;
  const pulls = Number(image?.pullCount ?? 0);
  return (
    <>
      <span class="name">
        <bdi>{tag.name}</bdi>
        {host && path && (
          <Copy text={`docker pull ${host}/${path}:${tag.name}`} what={`the command that pulls ${path}:${tag.name}`} />
        )}
      </span>
      {image && (
        <small class="line">
          {bytes(image.size)} · {pulls >= 100 ? `${count(pulls)} or more pulls` : many(pulls, "pull")} in 30 days
        </small>
      )}
    </>
  );
}

function Pushed({ of }: { of: string }) {
  const { tag } = useNewest(of);
  return tag ? <Time at={tag.updateTime} /> : unknown;
}
