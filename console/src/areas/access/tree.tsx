import { useRef, useState } from "preact/hooks";
import { get, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { useQuery } from "../../api/query";
import { useFolders, useHeld } from "../../api/reach";
import {
  Answer,
  AsCommand,
  Copy,
  count,
  Empty,
  Field,
  Filters,
  many,
  Name,
  NoRole,
  Page,
  Pager,
  Problem,
  sh,
  Table,
  Unlisted,
} from "../../ui";
import { go, groupPage, param, withParams } from "../../ui/router";
import { search } from "../home/finder";

type Counts = Schema<"holdfast.access.v1.ChildCounts">;
type Group = Schema<"holdfast.access.v1.CountedGroup">;
const size = 50; // groups of one level in the first request
const counted = 10; // organizations whose counts are requested, one request each

const segment = (uid: string) => uid.slice(uid.lastIndexOf("/") + 1);
const roots = (page?: string) =>
  get("/iam/v2beta1/groups", { query: { "uidp.in_root": true, order_by: "name", page_size: size, page_token: page } });
const children = (uid: string, page?: string) =>
  get("/access/v1/children", { query: { uid, page_size: size, page_token: page } });

/** opened are the last segments of the open groups' uids, which are unique. */
const opened = () => new Set(param("open").split(".").filter(Boolean));

function setOpen(uid: string, open: boolean) {
  const now = opened();
  if (open) now.add(segment(uid));
  else now.delete(segment(uid));
  go(withParams({ open: [...now].join(".") }), { replace: true });
}

export default function Tree() {
  const name = param("name");
  return (
    <Page
      title="Tree"
      lead="Groups contain folders, roles of people, workloads and repos. The numbers include everything below a group."
      actions={
        <AsCommand
          command={name ? `holdfast search ${sh(name)}` : "holdfast iam tree"}
          request={name ? search(name) : roots()}
        />
      }
    >
      <Filters label="Filter groups">
        <Field name="name" label="Beginning of a name or path" placeholder="platform, or acme/pl" first />
      </Filters>
      {name ? <Found name={name} /> : <Root />}
    </Page>
  );
}

const exact = (name: string) =>
  get("/iam/v2beta1/groups", {
    query: { name, order_by: "name", page_size: size, page_token: param("page") || undefined },
  });
const best = 5; // results of each kind in one search

/** Found shows the groups with exactly this name, a page at a time, and the best matches that begin with it. */
function Found({ name }: { name: string }) {
  const same = useQuery(name.includes("/") ? null : exact(name)).data; // a path is not a name
  return (
    <Answer of={useQuery(search(name))}>
      {({ results = [] }) => {
        const begin = results.filter((r) => r.kind === "SEARCH_KIND_GROUP").map((r) => r.uid ?? "");
        const all = [...new Set([...(same?.groups ?? []).map((g) => g.uid ?? ""), ...(param("page") ? [] : begin)])];
        if (all.length === 0)
          return (
            <Empty title="No group that you may see begins like this">
              <a href={withParams({ name: undefined })}>Show the tree</a>
            </Empty>
          );
        return (
          <>
            <Table
              label="Groups found"
              rows={all}
              id={(uid) => uid}
              columns={[
                { name: "Path", cell: (uid) => <Name uid={uid} path /> },
                { name: "In it", cell: (uid) => <Inside uid={uid} />, wide: true },
              ]}
            />
            {begin.length >= best && (
              <p class="hint">There may be more groups that begin like this. Type more of the name to see them.</p>
            )}
            <Pager
              next={same?.nextPageToken}
              total={all.length > Number(same?.totalCount ?? 0) ? undefined : same?.totalCount}
              one="group"
            />
          </>
        );
      }}
    </Answer>
  );
}

const Inside = ({ uid }: { uid: string }) => (
  <>{inWords(useQuery(get("/access/v1/children", { query: { uid, page_size: 1 } })).data?.counts)}</>
);

const kinds = [
  ["groups", "folder"],
  ["repos", "repo"],
  ["identities", "workload"],
  ["roles", "role"],
  ["roleBindings", "role binding"],
] as const;

/** inWords are the counts in words. A kind that the caller may not list has no count. */
const inWords = (of: Counts | undefined) =>
  kinds
    .filter(([kind]) => Number(of?.[kind]?.all ?? 0) > 0)
    .map(([kind, one]) => many(of?.[kind]?.all, one))
    .join(" · ");

function Root() {
  const top = useQuery(roots());
  const folders = useFolders();
  const held = useHeld();
  const ref = useRef<HTMLUListElement>(null);
  const move = (e: KeyboardEvent) => {
    const items = [...(ref.current?.querySelectorAll<HTMLElement>('[role="treeitem"]') ?? [])];
    const now = (e.target as HTMLElement).closest<HTMLElement>('[role="treeitem"]');
    if (!now || e.target !== now) return;
    const at = items.indexOf(now);
    const uid = now.dataset.uid ?? "";
    const open = now.getAttribute("aria-expanded") === "true";
    const focus = (to?: HTMLElement | null) => {
      if (!to) return;
      for (const i of items) i.tabIndex = i === to ? 0 : -1;
      to.focus();
    };
    switch (e.key) {
      case "ArrowDown":
        focus(items[at + 1]);
        break;
      case "ArrowUp":
        focus(items[at - 1]);
        break;
      case "Home":
        focus(items[0]);
        break;
      case "End":
        focus(items.at(-1));
        break;
      case "ArrowRight":
        if (!now.hasAttribute("aria-expanded")) break;
        open
          ? focus(now.parentElement?.querySelector<HTMLElement>(':scope > ul [role="treeitem"]'))
          : setOpen(uid, true);
        break;
      case "ArrowLeft":
        open
          ? setOpen(uid, false)
          : focus(now.closest("ul")?.parentElement?.querySelector<HTMLElement>(':scope > [role="treeitem"]'));
        break;
      case "Enter":
        go(groupPage(uid));
        break;
      default:
        return;
    }
    e.preventDefault();
  };
  if (top.data && folders && held && Number(top.data.groups?.length ?? 0) + folders.length === 0)
    return held.length ? <Unlisted /> : <NoRole />;
  return (
    <div class="card">
      <ul class="tree" role="tree" aria-label="Groups" ref={ref} onKeyDown={move}>
        <Level parent="" depth={1} />
        <Folders focus={top.data !== undefined && (top.data.groups ?? []).length === 0} />
      </ul>
      <p class="hint">Arrow keys move, open and close; Enter opens the page of a group.</p>
    </div>
  );
}

/** Level shows the groups of one parent: one request, and one more for each further page. */
function Level({ parent, depth, page }: { parent: string; depth: number; page?: string }) {
  const [more, setMore] = useState(false);
  const top = useQuery(parent ? null : roots(page)),
    below = useQuery(parent ? children(parent, page) : null);
  const { data, error } = parent ? below : top;
  if (error)
    return (
      <li role="none">
        <Problem error={error} />
      </li>
    );
  if (!data)
    return (
      <li role="none" class="waiting">
        …
      </li>
    );
  const groups: Group[] = data.groups ?? [];
  if (groups.length === 0 && !page && parent) {
    return (
      <li role="none" class="hint none">
        no folders
      </li>
    );
  }
  const rest = Number(data.totalCount ?? 0) - groups.length;
  return (
    <>
      {groups.map((g, i) => {
        const first = depth === 1 && i === 0 && !page;
        return !parent && !page && i < counted ? (
          <Organization key={g.uid} group={g} first={first} />
        ) : (
          <Node key={g.uid} group={g} depth={depth} first={first} />
        );
      })}
      {data.nextPageToken &&
        (more ? (
          <Level parent={parent} depth={depth} page={data.nextPageToken} />
        ) : (
          <li role="none">
            <button type="button" class="small" onClick={() => setMore(true)}>
              Show more{page ? "" : ` of ${count(rest)}`}
            </button>
          </li>
        ))}
    </>
  );
}

/** Organization is a node whose counts come with its folders. */
const Organization = ({ group, first, path }: { group: Group; first: boolean; path?: boolean }) => (
  <Node
    group={{ ...group, counts: useQuery(children(group.uid ?? "")).data?.counts }}
    depth={1}
    first={first}
    path={path}
  />
);

/**
 * Folders shows the topmost folders that the caller may list. The caller may not list the groups above them, so the
 * tree starts here.
 */
function Folders({ focus }: { focus: boolean }) {
  const [all, setAll] = useState(false);
  const folders = useFolders() ?? [];
  return (
    <>
      {folders
        .slice(0, all ? folders.length : size)
        .map((f, i) =>
          i < counted ? (
            <Organization key={f.uid} group={f} first={focus && i === 0} path />
          ) : (
            <Node key={f.uid} group={f} depth={1} first={false} path />
          ),
        )}
      {!all && folders.length > size && (
        <li role="none">
          <button type="button" class="small" onClick={() => setAll(true)}>
            Show more of {count(folders.length - size)}
          </button>
        </li>
      )}
    </>
  );
}

interface NodeProps {
  group: Group;
  depth: number;
  first: boolean;
  path?: boolean; // show the path, because the groups above are not in the tree
}

function Node({ group, depth, first, path }: NodeProps) {
  const uid = group.uid ?? "";
  // If the count is not known, there may be folders.
  const folders = group.counts?.groups === undefined || Number(group.counts.groups.direct ?? 0) > 0;
  const open = folders && opened().has(segment(uid));
  const text = (path && nameOf(uid).value?.path) || group.displayName || group.name || "";
  return (
    <li role="none">
      <div
        class="node"
        role="treeitem"
        aria-expanded={folders ? open : undefined}
        aria-level={depth}
        tabIndex={first ? 0 : -1}
        data-uid={uid}
      >
        {folders ? (
          <button type="button" class="twist" tabIndex={-1} aria-hidden="true" onClick={() => setOpen(uid, !open)}>
            <svg viewBox="0 0 12 12" width="12" height="12">
              <path d={open ? "M2 4l4 4 4-4" : "M4 2l4 4-4 4"} fill="none" stroke="currentColor" stroke-width="1.6" />
            </svg>
          </button>
        ) : (
          <span class="twist none" aria-hidden="true" />
        )}
        <a href={groupPage(uid)} tabIndex={-1}>
          <bdi>{text}</bdi>
        </a>
        <small class="wide">{inWords(group.counts)}</small>
        <Copy text={uid} what={`the uid of ${text.slice(0, 40)}`} mouse />
      </div>
      {open && (
        <ul role="none">
          <Level parent={uid} depth={depth + 1} />
        </ul>
      )}
    </li>
  );
}
