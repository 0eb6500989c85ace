import { useRef, useState } from "preact/hooks";
import { get, type Schema } from "../api";
import { useQuery } from "../query";
import { go, groupPage, param, withParams } from "../router";
import { Answer, AsCommand, Copy, count, Empty, Field, Filters, Name, Page, Pager, Problem, Table, Time, sh } from "../ui";

type Group = Schema<"holdfast.iam.v2beta1.Group">;
const size = 50; // groups of one level, until more are asked for

const segment = (uid: string) => uid.slice(uid.lastIndexOf("/") + 1);
const level = (parent: string, page?: string) =>
  get("/iam/v2beta1/groups", { query: { ...(parent ? { "uidp.children_of": parent } : { "uidp.in_root": true }), order_by: "name", page_size: size, page_token: page } });

/** opened are the last segments of the groups that are open, which tell them apart. */
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
      title="Tree" lead="Groups hold everything: folders, people's roles, workloads, repos."
      actions={<AsCommand command={name ? `holdfast iam groups list --name ${sh(name)}` : "holdfast iam tree"} request={name ? found(name) : level("")} />}
    >
      <Filters label="Filter groups"><Field name="name" label="Exact name, at any depth" placeholder="platform" first /></Filters>
      {name ? <Found name={name} /> : <Root />}
    </Page>
  );
}

const found = (name: string) => get("/iam/v2beta1/groups", { query: { name, order_by: "name", page_size: size, page_token: param("page") || undefined } });

function Found({ name }: { name: string }) {
  return (
    <Answer of={useQuery(found(name))}>{({ groups = [], nextPageToken, totalCount }) => groups.length === 0
      ? <Empty title="No group has exactly this name">Names are matched whole. <a href={withParams({ name: undefined })}>Show the tree</a></Empty>
      : <>
        <Table label="Groups of that name" rows={groups} id={(g) => g.uid ?? ""} columns={[
          { name: "Path", cell: (g) => <Name uid={g.uid} path /> },
          { name: "Description", cell: (g) => <bdi>{g.description}</bdi>, wide: true },
          { name: "Created", cell: (g) => <Time at={g.createTime} />, wide: true },
        ]} />
        <Pager next={nextPageToken} total={totalCount} one="group" />
      </>}
    </Answer>
  );
}

function Root() {
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
      case "ArrowDown": focus(items[at + 1]); break;
      case "ArrowUp": focus(items[at - 1]); break;
      case "Home": focus(items[0]); break;
      case "End": focus(items.at(-1)); break;
      case "ArrowRight": open ? focus(now.parentElement?.querySelector<HTMLElement>(':scope > ul [role="treeitem"]')) : setOpen(uid, true); break;
      case "ArrowLeft": open ? setOpen(uid, false) : focus(now.closest("ul")?.parentElement?.querySelector<HTMLElement>(':scope > [role="treeitem"]')); break;
      case "Enter": go(groupPage(uid)); break;
      default: return;
    }
    e.preventDefault();
  };
  return (
    <div class="card">
      <ul class="tree" role="tree" aria-label="Groups" ref={ref} onKeyDown={move}>
        <Level parent="" depth={1} />
      </ul>
      <p class="hint">Arrow keys move, open and close; Enter opens the page of a group.</p>
    </div>
  );
}

/** Level is the groups of one parent: one request, and one more for each further page. */
function Level({ parent, depth, page }: { parent: string; depth: number; page?: string }) {
  const [more, setMore] = useState(false);
  const { data, error } = useQuery(level(parent, page));
  if (error) return <li role="none"><Problem error={error} /></li>;
  if (!data) return <li role="none" class="waiting">…</li>;
  const groups = data.groups ?? [];
  if (groups.length === 0 && !page) {
    return parent ? <li role="none" class="hint none">no folders</li> : <li role="none"><Empty title="There is no group that you may see">Ask somebody who owns an organization for an invite.</Empty></li>;
  }
  const rest = Number(data.totalCount ?? 0) - groups.length;
  return (
    <>
      {groups.map((g, i) => <Node key={g.uid} group={g} depth={depth} first={depth === 1 && i === 0 && !page} />)}
      {data.nextPageToken && (more
        ? <Level parent={parent} depth={depth} page={data.nextPageToken} />
        : <li role="none"><button type="button" class="small" onClick={() => setMore(true)}>Show more{page ? "" : ` of ${count(rest)}`}</button></li>)}
    </>
  );
}

function Node({ group, depth, first }: { group: Group; depth: number; first: boolean }) {
  const uid = group.uid ?? "";
  const open = opened().has(segment(uid));
  const text = group.displayName || group.name || "";
  return (
    <li role="none">
      <div class="node" role="treeitem" aria-expanded={open} aria-level={depth} tabIndex={first ? 0 : -1} data-uid={uid}>
        <button type="button" class="twist" tabIndex={-1} aria-hidden="true" onClick={() => setOpen(uid, !open)}>
          <svg viewBox="0 0 12 12" width="12" height="12"><path d={open ? "M2 4l4 4 4-4" : "M4 2l4 4-4 4"} fill="none" stroke="currentColor" stroke-width="1.6" /></svg>
        </button>
        <a href={groupPage(uid)} tabIndex={-1}><bdi>{text}</bdi></a>
        <small class="wide"><bdi>{group.description}</bdi></small>
        <Copy text={uid} what={`the uid of ${text.slice(0, 40)}`} mouse />
      </div>
      {open && <ul role="none"><Level parent={uid} depth={depth + 1} /></ul>}
    </li>
  );
}
