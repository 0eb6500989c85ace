// What differs between two images.
import { get, type Schema } from "../../api/api";
import { useQuery } from "../../api/query";
import { Answer, Digest, Empty, Field, Filters, many, Pager, Severity, Table, word } from "../../ui";
import { advisoryPage, param, withParams } from "../../ui/router";

type Change = Schema<"holdfast.findings.v1.ImageChange">;
type Counts = Schema<"holdfast.findings.v1.ImageChangeCounts">;
type Kind = NonNullable<Change["kind"]>;

interface Side {
  repo: string;
  reference: string;
  time?: string;
}

/** comparison is the call that compares two images, or the images of a tag at two times. */
export const comparison = (
  from: Side,
  to: Side,
  query: { kinds?: Kind[]; page_size?: number; page_token?: string; architecture?: string } = {},
) =>
  get("/findings/v1/comparison", {
    query: {
      from_repo_uid: from.repo,
      from_reference: from.reference,
      from_time: from.time,
      to_repo_uid: to.repo,
      to_reference: to.reference,
      to_time: to.time,
      ...query,
    },
  });

const kinds: [keyof Counts, string, string, string][] = [
  ["findingsNew", "KIND_FINDING_NEW", "new finding", "new findings"],
  ["findingsFixed", "KIND_FINDING_FIXED", "fixed", "fixed"],
  ["findingsRemaining", "KIND_FINDING_REMAINING", "remains", "remain"],
  ["packagesChanged", "KIND_PACKAGE_CHANGED", "package changed", "packages changed"],
  ["packagesAdded", "KIND_PACKAGE_ADDED", "package added", "packages added"],
  ["packagesRemoved", "KIND_PACKAGE_REMOVED", "package removed", "packages removed"],
];

/** ChangeCounts shows the number of differences of each kind, each with a link to them. */
export function ChangeCounts({ of, links }: { of?: Counts; links?: boolean }) {
  const now = param("kind");
  const some = kinds.filter(([k, kind]) => Number(of?.[k] ?? 0) > 0 || (links && kind === now));
  if (some.length === 0) return <span class="hint">no known differences</span>;
  return (
    <span class="chips">
      {some.map(([k, kind, one, more]) =>
        links ? (
          <a
            key={k}
            class="chip"
            aria-current={kind === now ? "true" : undefined}
            href={withParams({ kind: kind === now ? undefined : kind })}
          >
            {many(of?.[k], one, more)}
            {kind === now && " ✕"}
          </a>
        ) : (
          <span key={k} class="chip">
            {many(of?.[k], one, more)}
          </span>
        ),
      )}
    </span>
  );
}

const versions = (all: Change["from"]) => (all?.length ? all.map((p) => p.version).join(", ") : "none");

/** Compare compares this image with another image of this or another repo, now or at an earlier time. */
export function Compare({ uid, reference }: { uid: string; reference: string }) {
  const other = param("with"),
    repo = param("repo") || uid,
    at = param("at");
  return (
    <>
      <Filters label="Compare" names={{ repo: ["repos"] }}>
        <Field name="with" label="Tag or digest" placeholder="v1" first required />
        <Field name="repo" label="Repo (this one by default)" placeholder="acme/platform/web" />
        <Field name="at" label="At the time" type="datetime-local" />
      </Filters>
      {other === "" ? (
        <Empty title="Compare it with another image">
          Enter a tag or a digest of this repo or another. With a time, the tag is resolved as of then.
        </Empty>
      ) : (
        <Changes
          from={{ repo, reference: other, time: at ? new Date(at).toISOString() : undefined }}
          to={{ repo: uid, reference }}
        />
      )}
    </>
  );
}

function Changes({ from, to }: { from: Side; to: Side }) {
  const kind = kinds.find(([, k]) => k === param("kind"))?.[1] as Kind | undefined;
  const found = useQuery(
    comparison(from, to, {
      kinds: kind && [kind],
      page_size: 50,
      page_token: param("page") || undefined,
      architecture: param("architecture") || undefined,
    }),
  );
  return (
    <Answer of={found}>
      {({ changes = [], counts, nextPageToken, totalCount, from: before }) => (
        <>
          <p class="coverage">
            From <Digest of={before?.digest} repo={from.repo} /> to this image: <ChangeCounts of={counts} links />
          </p>
          {changes.length === 0 ? (
            <Empty title="No known differences">Both images have the same packages and findings.</Empty>
          ) : (
            <Table
              label="Differences"
              rows={changes}
              id={(c) =>
                `${c.kind} ${c.ecosystem} ${c.name} ${c.finding?.advisoryId} ${versions(c.from)} ${versions(c.to)}`
              }
              columns={[
                { name: "What", cell: (c) => <span class={`change ${c.kind}`}>{word(c.kind, "KIND")}</span> },
                {
                  name: "Package",
                  cell: (c) => (
                    <>
                      <bdi>{c.name}</bdi>
                      <small class="line">{c.ecosystem}</small>
                    </>
                  ),
                },
                { name: "Before", cell: (c) => <bdi>{versions(c.from)}</bdi> },
                { name: "Now", cell: (c) => <bdi>{versions(c.to)}</bdi> },
                {
                  name: "Finding",
                  roomy: true,
                  cell: (c) =>
                    c.finding && (
                      <>
                        <Severity of={c.finding.severity} score={c.finding.score} />{" "}
                        <a href={advisoryPage(c.finding.advisoryId ?? "")}>{c.finding.advisoryId}</a>
                      </>
                    ),
                },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="difference" />
        </>
      )}
    </Answer>
  );
}
