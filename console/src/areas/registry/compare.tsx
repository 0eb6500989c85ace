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

/** comparison is the call that compares two images, or what a tag stood for at two times. */
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

/** ChangeCounts are how many differences there are of each kind; each leads to those alone. */
export function ChangeCounts({ of, links }: { of?: Counts; links?: boolean }) {
  const now = param("kind");
  const some = kinds.filter(([k, kind]) => Number(of?.[k] ?? 0) > 0 || (links && kind === now));
  if (some.length === 0) return <span class="hint">nothing differs that is known</span>;
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

/** Compare shows this image against another: of this repo or another, now or then. */
export function Compare({ uid, reference }: { uid: string; reference: string }) {
  const other = param("with"),
    repo = param("repo") || uid,
    at = param("at");
  return (
    <>
      <Filters label="Compare" names={{ repo: ["repos"] }}>
        <Field name="with" label="Tag or digest" placeholder="v1" first required />
        <Field name="repo" label="Of the repo (this one)" placeholder="acme/platform/web" />
        <Field name="at" label="As it was at" type="datetime-local" />
      </Filters>
      {other === "" ? (
        <Empty title="Compare it with another image">
          Name a tag or a digest, of this repo or another. With a time, what the tag stood for then.
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
            <Empty title="Nothing differs that is known">Both have the same packages and the same findings.</Empty>
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
                        <a href={advisoryPage(c.finding.advisoryId ?? "")}>
                          {c.finding.aliases?.find((a) => a.startsWith("CVE-")) ?? c.finding.advisoryId}
                        </a>
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
