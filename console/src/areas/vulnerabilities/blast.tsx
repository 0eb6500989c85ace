// The blast radius of an advisory as a graph and as a file.
import { get, type Schema } from "../../api/api";
import { advisoryPage, imagePage } from "../../ui/router";

type Blast = Schema<"holdfast.findings.v1.Blast">;
type Item = Schema<"holdfast.findings.v1.BlastItem">;
type Stage = Schema<"holdfast.findings.v1.BlastStage">;

/** cell quotes a text for a CSV file. A text that a spreadsheet would compute gets an apostrophe in front. */
const cell = (text: string | number | undefined) => {
  const safe = /^[=+\-@\t\r]/.test(String(text ?? "")) ? `'${text}` : String(text ?? "");
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

function line(stage: string, i: Item): (string | number | undefined)[] {
  if (i.package) return [stage, i.package.purl || i.package.name, i.package.version, i.images];
  if (i.image) return [stage, i.image.repo ?? i.image.repoUid, i.image.digest, i.image.tags?.join(" ")];
  if (i.tag) return [stage, `${i.tag.repo}:${i.tag.name}`, i.tag.digest, ""];
  if (i.running)
    return [
      stage,
      i.running.place,
      i.running.entry?.digest,
      [i.running.entry?.namespace, i.running.entry?.workload].filter(Boolean).join("/"),
    ];
  if (i.identity)
    return [
      stage,
      i.identity.displayName || i.identity.name || "everybody",
      i.identity.identityUid,
      i.identity.lastPullTime ?? i.identity.repos,
    ];
  return [stage, i.deployment?.repoUid, "", i.deployment?.charts?.join(" ")];
}

const mostPages = 50; // pages of 200 items of each stage

/** csv is a whole blast radius as CSV, a line for each item; it requests all pages. */
export async function csv(advisory_id: string, blast: Blast): Promise<string> {
  const lines: (string | number | undefined)[][] = [["stage", "what", "id", "more"]];
  for (const s of blast.stages ?? []) {
    const name = (s.name ?? "").replace("NAME_", "").toLowerCase();
    let page: Stage = s,
      items = s.items ?? [];
    for (let n = 0; page.nextPageToken && n < mostPages; n++) {
      page = await get("/findings/v1/blast/stage", {
        query: { advisory_id, stage: s.name, page_size: 200, page_token: n === 0 ? undefined : page.nextPageToken },
      }).send();
      items = n === 0 ? (page.items ?? []) : [...items, ...(page.items ?? [])];
    }
    lines.push(...items.map((i) => line(name, i)));
    if (page.nextPageToken) lines.push([name, "and more", "", ""]);
    for (const g of s.gaps ?? []) lines.push([name, `not known: ${g.message}`, g.code, g.count]);
  }
  return `${lines.map((l) => l.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** save downloads a text as a file. */
export function save(name: string, text: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

interface Node {
  id: string;
  text: string;
  href?: string;
  from: string[]; // ids of nodes in the column before
}

const most = 12; // nodes of a column

/** columns are the advisory, its packages, the images, and the tags and places of the images. */
function columns(id: string, blast: Blast): { title: string; nodes: Node[]; more: number }[] {
  const items = (name: string) => blast.stages?.find((s) => s.name === `NAME_${name}`);
  const packages = (items("PACKAGES")?.items ?? []).map(
    (i): Node => ({
      id: `p ${i.package?.name} ${i.package?.version}`,
      text: `${i.package?.name} ${i.package?.version}`,
      from: ["a"],
    }),
  );
  const images = (items("IMAGES")?.items ?? []).map(
    ({ image }): Node => ({
      id: `i ${image?.repoUid} ${image?.digest}`,
      text: `${image?.repo?.split("/").pop() || "image"} ${image?.tags?.[0] ?? image?.digest?.slice(7, 15) ?? ""}`,
      href: imagePage(image?.repoUid ?? "", image?.digest ?? ""),
      from: (image?.packages ?? []).map((p) => `p ${p.name} ${p.version}`),
    }),
  );
  const near = (digest: string | undefined) =>
    images.filter((n) => digest && n.id.endsWith(` ${digest}`)).map((n) => n.id);
  const running = (items("RUNNING")?.items ?? [])
    .filter((i) => i.running)
    .map(
      (i, n): Node => ({
        id: `r ${n}`,
        text: `${i.running?.place} ${i.running?.entry?.workload || i.running?.entry?.namespace || ""}`,
        from: near(i.running?.entry?.digest),
      }),
    );
  const column = (title: string, nodes: Node[], total: string | undefined) => ({
    title,
    nodes: nodes.slice(0, most),
    more: Math.max(0, Number(total ?? nodes.length) - Math.min(nodes.length, most)),
  });
  return [
    column("Advisory", [{ id: "a", text: id, href: advisoryPage(id), from: [] }], "1"),
    column("Packages", packages, items("PACKAGES")?.totalCount),
    column("Images", images, items("IMAGES")?.totalCount),
    column("Runs at", running, items("RUNNING")?.totalCount),
  ];
}

const width = 210,
  gap = 60,
  height = 30,
  top = 34;
const short = (text: string) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);

/** Graph draws the connections, with the first dozen of each column. The table below it has everything. */
export function Graph({ id, of }: { id: string; of: Blast }) {
  const all = columns(id, of);
  const tallest = Math.max(...all.map((c) => c.nodes.length + (c.more > 0 ? 1 : 0)), 1);
  const at = new Map<string, [number, number]>();
  for (const [x, c] of all.entries()) {
    for (const [y, n] of c.nodes.entries()) at.set(n.id, [x * (width + gap), top + y * (height + 10)]);
  }
  return (
    <div class="graph" role="region" aria-label="Graph of the blast radius" tabIndex={0}>
      <svg
        viewBox={`0 0 ${all.length * (width + gap) - gap} ${top + tallest * (height + 10)}`}
        width={all.length * (width + gap) - gap}
        height={top + tallest * (height + 10)}
        role="group"
        aria-label={all.map((c) => `${c.nodes.length + c.more} ${c.title.toLowerCase()}`).join(", ")}
      >
        {all.flatMap((c) =>
          c.nodes.flatMap((n) =>
            n.from
              .filter((f) => at.has(f))
              .map((f) => {
                const [left, y1] = at.get(f)!,
                  [x2, y2] = at.get(n.id)!;
                const x1 = left + width,
                  bend = gap / 2,
                  middle = height / 2;
                return (
                  <path
                    key={`${f} ${n.id}`}
                    class="edge"
                    d={[
                      `M${x1} ${y1 + middle}`,
                      `C${x1 + bend} ${y1 + middle} ${x2 - bend} ${y2 + middle} ${x2} ${y2 + middle}`,
                    ].join("")}
                  />
                );
              }),
          ),
        )}
        {all.map((c, x) => (
          <g key={c.title}>
            <text class="column" x={x * (width + gap)} y={16}>
              {c.title}
            </text>
            {c.nodes.map((n) => {
              const [nx, ny] = at.get(n.id)!;
              const box = (
                <>
                  <title>{n.text}</title>
                  <rect class="box" x={nx} y={ny} width={width} height={height} rx={6} />
                  <text x={nx + 10} y={ny + 20}>
                    {short(n.text)}
                  </text>
                </>
              );
              return n.href ? (
                <a key={n.id} href={n.href}>
                  {box}
                </a>
              ) : (
                <g key={n.id}>{box}</g>
              );
            })}
            {c.more > 0 && (
              <text class="more" x={x * (width + gap) + 10} y={top + c.nodes.length * (height + 10) + 20}>
                and {c.more} more
              </text>
            )}
          </g>
        ))}
      </svg>
    </div>
  );
}
