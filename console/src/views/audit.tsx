import { get, type Schema } from "../api";
import { isUID } from "../names";
import { useQuery } from "../query";
import { base, param, withParams } from "../router";
import { Answer, AsCommand, Copy, Empty, eventName, Field, Filters, Name, Page, Pager, sh, Time } from "../ui";

type Entry = Schema<"holdfast.audit.v1.Entry">;

/** moment makes a time of the API of what a field for times has, in the viewer's zone. */
const moment = (text: string) => (text && !Number.isNaN(Date.parse(text)) ? new Date(text).toISOString() : undefined);

export default function Audit() {
  const list = get("/audit/v1/entries", {
    query: {
      group_uid: param("group") || undefined, subject: param("subject") || undefined, identity_uid: param("identity") || undefined, type: param("type") || undefined,
      since: moment(param("since")), until: moment(param("until")), page_size: 50, page_token: param("page") || undefined,
    },
  });
  const flags: [string, string][] = [["group", "--group"], ["identity", "--by"], ["subject", "--subject"], ["type", "--type"], ["since", "--since"], ["until", "--until"]];
  const set = flags.filter(([p]) => param(p));
  return (
    <Page title="Audit" lead="Who changed what, the newest first." actions={<AsCommand command={["holdfast audit", ...set.map(([p, f]) => `${f} ${sh(moment(p === "since" || p === "until" ? param(p) : "") ?? param(p))}`)].join(" ")} request={list} />}>
      <Filters label="Filter the audit log" names={{ group: ["groups"], identity: ["identities"], subject: ["groups", "repos", "identities", "roles", "identity_providers"] }}>
        <Field name="type" label="Type begins with" placeholder="iam.rolebindings" first />
        <Field name="group" label="In the group" placeholder="acme/platform" />
        <Field name="identity" label="Done by" placeholder="me" />
        <Field name="subject" label="Done to" placeholder="path or uid" />
        <Field name="since" label="Since" type="datetime-local" />
        <Field name="until" label="Until" type="datetime-local" />
      </Filters>
      {set.length > 0 && (
        <p class="chips" aria-label="Filters">
          {set.map(([p]) => <a key={p} class="chip" href={withParams({ [p]: undefined })} title="Remove this filter">{p}: {["group", "identity", "subject"].includes(p) ? <Name uid={param(p)} path quiet /> : <bdi>{param(p)}</bdi>} ✕</a>)}
          <a href={`${base}/audit`}>Remove all</a>
        </p>
      )}
      <Answer of={useQuery(list)}>{({ entries = [], nextPageToken }) => (
        <>
          {entries.length === 0 && (nextPageToken
            ? <Empty title="None on this page">The page looked at a bounded number of changes. Go on to the next.</Empty>
            : <Empty title="Nothing matches">Every change of a resource is kept here, with who made it and from where.</Empty>)}
          <ul class="entries">{entries.map((e) => <li key={e.id}><Row of={e} /></li>)}</ul>
          <Pager next={nextPageToken} one="entry" more="entries" />
        </>
      )}</Answer>
    </Page>
  );
}

function Row({ of }: { of: Entry }) {
  const differences = diff(of.before ?? {}, of.after ?? {});
  const type = eventName(of.type);
  return (
    <details>
      <summary>
        <span class="entry-type">{type}</span>
        <span class="entry-what"><Title of={of} /></span>
        <span class="entry-who"><Who of={of} /></span>
        <Time at={of.time} />
      </summary>
      <div class="entry">
        <p class="entry-links">
          {of.group && <span>in <Name uid={of.group} path /></span>}
          {of.subject && <a href={withParams({ subject: of.subject })}>All changes of it</a>}
          {of.actor?.uid && <a href={withParams({ identity: of.actor.uid })}>All changes by the same</a>}
          <a href={withParams({ type: of.type })}>All of this type</a>
          {of.actor?.remoteAddress && <span>from <code>{of.actor.remoteAddress}</code></span>}
          {of.actor?.requestId && <span>request <code>{of.actor.requestId}</code><Copy text={of.actor.requestId} what="the request id" /></span>}
        </p>
        {differences.length > 0 && (
          <div class="table" role="region" aria-label="What has changed" tabIndex={0}>
            <table class="diff">
              <thead><tr><th scope="col">Field</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
              <tbody>{differences.map((d) => <tr key={d.field}><th scope="row">{d.field}</th><td>{d.before !== undefined && <del><Value of={d.before} /></del>}</td><td>{d.after !== undefined && <ins><Value of={d.after} /></ins>}</td></tr>)}</tbody>
            </table>
          </div>
        )}
      </div>
    </details>
  );
}

const Value = ({ of }: { of: string }) => (isUID(of) ? <Name uid={of} path /> : <bdi>{of}</bdi>);

function Who({ of }: { of: Entry }) {
  const uid = of.actor?.uid || (of.after as { identity?: string } | undefined)?.identity; // of a pull
  if (uid && isUID(uid)) return <Name uid={uid} plain />;
  return <span class="hint">{of.actor ? of.actor.subject || "somebody unknown" : "the service"}</span>;
}

/** Title is the name of what was changed, as it was then: it may be gone by now. */
function Title({ of }: { of: Entry }) {
  const state = { ...of.before, ...of.after } as Record<string, unknown>;
  const findings = state.findings as { advisoryId?: string }[] | undefined;
  const name = state.displayName || state.name || state.advisoryId || state.tag || findings?.[0]?.advisoryId;
  return typeof name === "string" && name ? <bdi>{name}</bdi> : <Name uid={of.subject} plain />;
}

interface Difference {
  field: string;
  before?: string;
  after?: string;
}

/** diff returns the fields that differ. What is empty on both sides says nothing. */
function diff(before: Record<string, unknown>, after: Record<string, unknown>): Difference[] {
  const quiet = new Set(["uid", "updateTime", "createTime"]);
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((k) => !quiet.has(k)).sort()
    .map((field) => ({ field, before: text(before[field]), after: text(after[field]) }))
    .filter((d) => d.before !== d.after);
}

function text(v: unknown): string | undefined {
  if (v === undefined || v === null || v === "" || v === false || (typeof v === "string" && v.endsWith("_UNSPECIFIED")) || (Array.isArray(v) && v.length === 0)) return undefined;
  if (typeof v === "object") return Object.keys(v).length === 0 ? undefined : JSON.stringify(v, null, 1);
  return String(v);
}
