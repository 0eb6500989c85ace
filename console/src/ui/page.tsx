// The frame of a view: its path, its title and its actions.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Fault, get } from "../api/api";
import { type Result, useQuery } from "../api/query";
import { useHeld, useReach } from "../api/reach";
import { Copy } from "./copy";
import { EntryRow } from "./entry";
import { remember } from "./recent";

interface PageProps {
  title: string;
  thing?: boolean; // the page of an existing resource, which the search lists as opened lately
  mark?: ComponentChildren; // next to the title
  above?: ComponentChildren; // the path to it
  lead?: ComponentChildren;
  actions?: ComponentChildren;
  children?: ComponentChildren;
}

export function Page({ title, thing, mark, above, lead, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${title.slice(0, 80)} · Holdfast`;
    if (thing) remember({ href: location.pathname, title: title.slice(0, 200) });
  }, [title, thing]);
  return (
    <>
      <div class="page-head">
        <div class="page-title">
          {above}
          <h1 tabIndex={-1}>
            <bdi>{title}</bdi>
            {mark}
          </h1>
          {lead && <p class="lead">{lead}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </>
  );
}

export function Section({
  title,
  actions,
  children,
}: {
  title: string;
  actions?: ComponentChildren;
  children?: ComponentChildren;
}) {
  return (
    <section class="card">
      <div class="card-head">
        <h2>{title}</h2>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </section>
  );
}

/** Tabs are links, because the tab is in the address. */
export function Tabs({
  label,
  items,
  now,
  href,
}: {
  label: string;
  items: { id: string; name: string }[];
  now: string;
  href: (id: string) => string;
}) {
  return (
    <nav class="tabs" aria-label={label}>
      {items.map((i) => (
        <a key={i.id} href={href(i.id)} aria-current={i.id === now ? "page" : undefined}>
          {i.name}
        </a>
      ))}
    </nav>
  );
}

/** Problem shows an error with the server's message and the id of the request. */
export function Problem({ error }: { error: Fault | Error }) {
  const id = "requestID" in error ? error.requestID : "";
  if ("signInAgain" in error && error.signInAgain) {
    return (
      <div class="problem" role="alert">
        <p>You signed in a while ago. Sign in again to do this; what you have entered here stays.</p>
        <p>
          <a
            class="button primary small"
            href="/signin?again=1&return=%2Fconsole%2Fconfirmed"
            target="_blank"
            rel="noopener"
          >
            Sign in again
          </a>
        </p>
      </div>
    );
  }
  if ("stale" in error && error.stale) return <Overtaken {...error.stale} />;
  return (
    <div class="problem" role="alert">
      <p>{error.message}</p>
      {id && (
        <p class="request">
          Request <code>{id}</code> <Copy text={id} what="the request id" />
        </p>
      )}
    </div>
  );
}

/** Overtaken shows what others have changed since the resource was read. */
function Overtaken({ uid, version }: { uid: string; version: string }) {
  const since = new Date(Date.parse(version) + 1).toISOString();
  const { data, error } = useQuery(get("/audit/v1/entries", { query: { subject: uid, since, page_size: 10 } }));
  const entries = data?.entries ?? [];
  return (
    <div class="problem" role="alert">
      <p>Somebody has changed it since you opened it. Your changes were not saved.</p>
      {entries.length > 0 && (
        <ul class="entries" aria-label="What has changed">
          {entries.map((e) => (
            <li key={e.id}>
              <EntryRow of={e} open />
            </li>
          ))}
        </ul>
      )}
      {data && entries.length === 0 && <p>You may not see by whom.</p>}
      {error && <p>{error.message}</p>}
    </div>
  );
}

/** Waiting shows grey lines in place of an answer, but not at once, because most answers arrive within a moment. */
export function Waiting() {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class={late ? "skeleton" : "skeleton early"} role="status">
      <span class="sr">{late ? "Loading…" : ""}</span>
      <i />
      <i />
      <i />
    </div>
  );
}

/** Answer shows the result of a query: its data, its error, or that it is loading. */
export function Answer<T>({ of, children }: { of: Result<T>; children: (data: T) => ComponentChildren }) {
  if (of.data !== undefined) return <>{children(of.data)}</>;
  if (of.error?.status === 403) return <Forbidden>{of.error.message}</Forbidden>;
  if (of.error) return <Problem error={of.error} />;
  return <Waiting />;
}

/** Forbidden replaces an answer that the caller lacks a permission for. */
export function Forbidden({ what = "this", children }: { what?: string; children?: ComponentChildren }) {
  return (
    <div class="empty forbidden">
      <p class="empty-title">You may not see {what} here</p>
      {children && <p>{children}</p>}
    </div>
  );
}

interface EmptyProps {
  title: string;
  what?: string; // plural of the listed things, for a caller who may not list them
  needs?: string[]; // capabilities without which the list is always empty
  group?: string; // the group whose content is listed; if absent, all groups
  command?: string;
  children?: ComponentChildren;
}

/**
 * Empty explains an empty list, and how to create the first entry. If the caller lacks a capability that the list
 * needs, it says so instead, because the list would be empty for this caller in any case.
 */
export function Empty({ title, what, needs = [], group, command, children }: EmptyProps) {
  const held = useHeld();
  const reach = useReach(needs, group);
  if (needs.length > 0 && held === undefined) return <Waiting />;
  if (held?.length === 0 && needs.length > 0) return <NoRole />;
  if (reach?.length === 0)
    return (
      <Forbidden what={what}>
        That needs{" "}
        {needs.map((n, i) => (
          <span key={n}>
            {i > 0 && " and "}
            <code>{n}</code>
          </span>
        ))}
        . Ask an owner of the organization for a role that has {needs.length > 1 ? "them" : "it"}.
      </Forbidden>
    );
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
      {command && <Command text={command} />}
    </div>
  );
}

/** NoRole tells a caller without any role what to do. */
export const NoRole = () => (
  <div class="empty">
    <p class="empty-title">You hold no role yet</p>
    <p>Without a role, you see nothing here. Ask an owner of an organization for an invite.</p>
  </div>
);

/** Unlisted names the groups in which the caller has a role without the permission to list groups. */
export function Unlisted() {
  const held = useHeld() ?? [];
  return (
    <>
      <Forbidden what="groups">
        You have roles, but none of them has <code>groups.list</code>.
      </Forbidden>
      <ul class="rows">
        {held.slice(0, 20).map((h) => (
          <li key={`${h.group?.id} ${h.role?.id}`}>
            <bdi>{h.group?.name}</bdi>
            <small>
              as <bdi>{h.role?.name}</bdi>
            </small>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Command is a line to paste into a terminal. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre tabIndex={0}>{text}</pre>
      <Copy text={text} what="the command" />
    </div>
  );
}

export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of
        .filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false)
        .map(([k, v]) => (
          <div key={k}>
            <dt>{k}</dt>
            <dd>{v}</dd>
          </div>
        ))}
    </dl>
  );
}
