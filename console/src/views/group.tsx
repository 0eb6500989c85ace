import { useState } from "preact/hooks";
import { del, get, patch, post, type Fault, type Schema } from "../api";
import { nameOf, parentOf, pathOf, resolve } from "../names";
import { changed, useMay, useQuery } from "../query";
import { base, param, repoPage, withParams } from "../router";
import { Above, Answer, AsCommand, bytes, Choice, Command, Copy, count, curl, Dialog, Empty, Field, many, Name, Page, Pager, Problem, Section, sh, Table, Tabs, Time, word } from "../ui";

type Binding = Schema<"holdfast.iam.v2beta1.RoleBinding">;
const tabs = [
  { id: "", name: "Folders" }, { id: "people", name: "People and workloads" }, { id: "roles", name: "Roles" },
  { id: "repos", name: "Repos" }, { id: "rules", name: "Rules" }, { id: "budget", name: "Budget" },
];
const inside = (uid: string) => ({ "uidp.children_of": uid, page_size: 50, page_token: param("page") || undefined });

export default function Group({ uid }: { uid: string }) {
  const group = useQuery(get("/iam/v2beta1/groups/{uid}", { path: { uid } }));
  const tab = param("tab");
  const path = nameOf(uid).value?.path ?? uid;
  const may = useMay();
  const [editing, setEditing] = useState(false);
  if (group.error) return <Page title="Group" above={<Above uid={uid} />}><Problem error={group.error} /></Page>;
  const commands: Record<string, string> = { "": "iam groups list", people: "iam role-bindings list", roles: "iam roles list", repos: "registry repos list", rules: "findings rules list" };
  return (
    <Page
      thing={!!group.data} title={group.data?.displayName || group.data?.name || "…"} mark={<Copy text={uid} what="the uid of this group" />} above={<Above uid={uid} />}
      lead={group.data?.description || (uid.includes("/") ? "A folder" : "An organization")}
      actions={<>
        {group.data && may("groups.update", uid) && <button type="button" class="small" onClick={() => setEditing(true)}>Edit</button>}
        <a class="button small" href={`${base}/access?place=${uid}`}>Who can…</a>
        <AsCommand command={tab === "budget" ? `holdfast iam budgets get ${sh(path)}` : `holdfast ${commands[tab] ?? commands[""]} --parent ${sh(path)}`} request={requests(uid)[tab] ?? folders(uid)} />
      </>}
    >
      <Tabs label="Of this group" items={tabs} now={tab} href={(id) => withParams({ tab: id, order: undefined })} />
      {tab === "" && <Folders uid={uid} path={path} />}
      {tab === "people" && <People uid={uid} path={path} />}
      {tab === "roles" && <Roles uid={uid} path={path} />}
      {tab === "repos" && <Repos uid={uid} path={path} />}
      {tab === "rules" && <Rules uid={uid} path={path} />}
      {tab === "budget" && <Budget uid={uid} />}
      {editing && group.data && <Edit group={group.data} path={path} onClose={() => setEditing(false)} />}
    </Page>
  );
}

type Edited = { name: string; description: string };

/**
 * Edit changes the name and the description. It sends what was changed here alone, for the version
 * that was shown, so that nobody overwrites what somebody else has just written.
 */
function Edit({ group, path, onClose }: { group: Schema<"holdfast.iam.v2beta1.Group">; path: string; onClose: () => void }) {
  const [read] = useState(group); // as it was when this was opened
  const [now, setNow] = useState<Edited>({ name: group.name ?? "", description: group.description ?? "" });
  const [error, setError] = useState<Fault>();
  const different = (Object.keys(now) as (keyof Edited)[]).filter((k) => now[k] !== (read[k] ?? ""));
  const save = async () => {
    const version = error?.stale ? group.updateTime : read.updateTime; // the second time they have seen what changed
    setError(undefined);
    try {
      await patch("/iam/v2beta1/groups/{uid}", { path: { uid: group.uid ?? "" }, query: { updateMask: different.join(",") }, body: now, version }).send();
      await changed();
      onClose();
    } catch (failed) {
      setError(failed as Fault);
      if ((failed as Fault).stale) await changed();
    }
  };
  return (
    <Dialog title="Edit the group" onClose={onClose}>
      <form onSubmit={(e) => { e.preventDefault(); void save(); }}>
        <Field name="edit-name" label="Name" value={now.name} onInput={(name) => setNow({ ...now, name })} required hint="It is part of the addresses of images." />
        <Field name="edit-description" label="Description" value={now.description} onInput={(description) => setNow({ ...now, description })} />
        {different.length > 0 && <Command text={`holdfast iam groups update ${sh(path)}${different.map((k) => ` --${k} ${sh(now[k])}`).join("")}`} />}
        {error && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={different.length === 0}>{error?.stale ? "Save mine all the same" : "Save"}</button>
        </div>
      </form>
    </Dialog>
  );
}

const folders = (uid: string) => get("/iam/v2beta1/groups", { query: { ...inside(uid), order_by: param("order") || "name" } });
const bindings = (group: string, page?: string) => get("/iam/v2beta1/roleBindings", { query: { group, page_size: 50, page_token: page, order_by: "create_time" } });
const workloads = (uid: string) => get("/iam/v2beta1/identities", { query: { "uidp.children_of": uid, order_by: "name", page_size: 50, page_token: param("workloads") || undefined } });
const roles = (uid: string) => get("/iam/v2beta1/roles", { query: { ...inside(uid), order_by: "name" } });
const repos = (uid: string) => get("/registry/v2beta1/repos", { query: { ...inside(uid), order_by: param("order") || "name" } });
const rules = (uid: string) => get("/findings/v1/rules", { query: { "uidp.children_of": uid, page_size: 50, page_token: param("page") || undefined } });
const budget = (uid: string) => get("/budgets/v1/budgets/{uid}", { path: { uid } });
const requests = (uid: string): Record<string, Parameters<typeof curl>[0]> => ({
  people: bindings(uid), roles: roles(uid), repos: repos(uid), rules: rules(uid), budget: budget(uid),
});

function Folders({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(folders(uid))}>{({ groups = [], nextPageToken, totalCount }) => (
      <>
        {groups.length === 0
          ? <Empty title="There is no folder in it" command={`holdfast iam groups create NAME --parent ${sh(path)}`}>Folders divide an organization: a role that is granted on one holds in all below it.</Empty>
          : <Table label="Folders" rows={groups} id={(g) => g.uid ?? ""} columns={[
            { name: "Name", order: "name", cell: (g) => <Name uid={g.uid} /> },
            { name: "Description", cell: (g) => <bdi>{g.description}</bdi> },
            { name: "Created", order: "create_time", cell: (g) => <Time at={g.createTime} />, wide: true },
          ]} />}
        <Pager next={nextPageToken} total={totalCount} one="folder" />
      </>
    )}</Answer>
  );
}

function People({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const [granting, setGranting] = useState(false);
  const [removing, setRemoving] = useState<Binding>();
  const canRemove = may("role_bindings.delete", uid);
  return (
    <>
      <Section title="Roles on this group" actions={may("role_bindings.create", uid) && <button type="button" class="primary small" onClick={() => setGranting(true)}>Grant a role</button>}>
        <Answer of={useQuery(bindings(uid, param("page") || undefined))}>{({ roleBindings = [], nextPageToken, totalCount }) => (
          <>
            {roleBindings.length === 0 ? <Empty title="No role is granted here">What is granted above holds here, too.</Empty>
              : <Table label="Roles on this group" rows={roleBindings} id={(b) => b.uid ?? ""} columns={[
                ...bindingColumns,
                ...(canRemove ? [{ name: "Remove", hidden: true, cell: (b: Binding) => <button type="button" class="danger small" aria-label={`Remove ${b.role?.name} of ${b.identity?.name}`} onClick={() => setRemoving(b)}>Remove</button> }] : []),
              ]} />}
            <Pager next={nextPageToken} total={totalCount} one="binding" />
          </>
        )}</Answer>
      </Section>
      {pathOf(parentOf(uid)).filter(Boolean).reverse().map((above) => <Inherited key={above} from={above} />)}
      <Section title="Workloads of this group">
        <Answer of={useQuery(workloads(uid))}>{({ identities = [], nextPageToken, totalCount }) => (
          <>
            {identities.length === 0
              ? <Empty title="There is no workload in it" command={`holdfast iam identities create github --repo OWNER/REPO --branch main --parent ${sh(path)} --role registry.push`}>A workload is a pipeline or a pod that proves who it is with a token of its own platform.</Empty>
              : <Table label="Workloads" rows={identities} id={(i) => i.uid ?? ""} columns={[
                { name: "Name", cell: (i) => <Name uid={i.uid} /> },
                { name: "Proves itself by", cell: (i) => <bdi>{i.claimMatch?.subject || i.claimMatch?.subjectPattern || i.staticKeys?.subject || i.awsIdentity?.arn || i.awsIdentity?.arnPattern}</bdi> },
                { name: "Last seen", cell: (i) => <Time at={i.lastSeenTime} />, wide: true },
              ]} />}
            <Pager next={nextPageToken} total={totalCount} one="workload" at="workloads" />
          </>
        )}</Answer>
      </Section>
      {granting && <Grant uid={uid} path={path} onClose={() => setGranting(false)} />}
      {removing && <Remove binding={removing} onClose={() => setRemoving(undefined)} />}
    </>
  );
}

const bindingColumns = [
  { name: "Who", cell: (b: Binding) => <><Name uid={b.identity?.uid} /><small class="line"><bdi>{b.identity?.email || b.identity?.subject}</bdi></small></> },
  { name: "Kind", cell: (b: Binding) => (b.identity?.uid?.includes("/") ? "workload" : "person"), wide: true },
  { name: "Role", cell: (b: Binding) => <><bdi>{b.role?.name}</bdi><small class="line wide"><bdi>{b.role?.description}</bdi></small></> },
  { name: "Since", cell: (b: Binding) => <Time at={b.createTime} />, wide: true },
  { name: "Until", cell: (b: Binding) => <Until of={b} /> },
];

/** Until says how long a binding counts. */
function Until({ of }: { of: Binding }) {
  const state = word(of.state, "ROLE_BINDING_STATE");
  return (
    <>
      {state === "over" ? <span class="hint">over, <Time at={of.expireTime} /></span> : of.expireTime ? <Time at={of.expireTime} /> : <span class="hint">no end</span>}
      {state === "upcoming" && <small class="line">from <Time at={of.startTime} /></small>}
      {of.reason && <small class="line"><bdi>{of.reason}</bdi></small>}
    </>
  );
}

const spans: [string, string][] = [["", "without an end"], ["1", "1 hour"], ["8", "8 hours"], ["24", "1 day"], ["168", "7 days"], ["720", "30 days"]];

/** Inherited are the roles on a group above, which hold here as well. */
function Inherited({ from }: { from: string }) {
  const { data } = useQuery(bindings(from));
  if (!data?.roleBindings?.length) return null;
  const name = nameOf(from).value?.name ?? "a group above";
  return (
    <Section title={`Inherited from ${name}`} actions={<a href={`${base}/groups/${from}?tab=people`}>Open <bdi>{name}</bdi></a>}>
      <Table label={`Inherited from ${name}`} rows={data.roleBindings} id={(b) => b.uid ?? ""} columns={bindingColumns} />
      {data.nextPageToken && <p class="hint">The first {count(data.roleBindings.length)} of {count(data.totalCount)} are shown.</p>}
    </Section>
  );
}

/** Grant asks who gets which role. The server checks it before anything is written. */
function Grant({ uid, path, onClose }: { uid: string; path: string; onClose: () => void }) {
  const root = uid.split("/")[0] ?? uid;
  const known = useQuery(get("/iam/v2beta1/roleBindings", { query: { "uidp.descendants_of": root, page_size: 200 } }));
  const pipelines = useQuery(get("/iam/v2beta1/identities", { query: { "uidp.descendants_of": root, page_size: 200, order_by: "name" } }));
  const choice = useQuery(get("/iam/v2beta1/roles", { query: { page_size: 200, order_by: "name" } }));
  const [who, setWho] = useState(""), [role, setRole] = useState("");
  const [hours, setHours] = useState(""), [reason, setReason] = useState("");
  const [checked, setChecked] = useState<Binding>();
  const [error, setError] = useState<Fault>();
  const people = new Map<string, string>();
  for (const b of known.data?.roleBindings ?? []) people.set(title(b.identity), b.identity?.uid ?? "");
  for (const i of pipelines.data?.identities ?? []) people.set(nameOf(i.uid ?? "").value?.path ?? i.name ?? "", i.uid ?? "");
  const chosen = choice.data?.roles?.find((r) => r.uid === role) ?? choice.data?.roles?.find((r) => r.name === "viewer") ?? choice.data?.roles?.[0];

  const identityUID = async () => {
    const text = who.trim();
    if (people.has(text)) return people.get(text) ?? "";
    return resolve(text, "identities");
  };
  const send = async (validate_only: boolean) => {
    setError(undefined);
    try {
      const expireTime = hours ? new Date(Date.now() + Number(hours) * 3_600_000).toISOString() : undefined;
      const body = { identityUid: await identityUID(), roleUid: chosen?.uid, expireTime, reason: reason || undefined };
      const binding = await post("/iam/v2beta1/roleBindings/{uid}", { path: { uid }, query: { validate_only }, body }).send();
      if (validate_only) return setChecked(binding);
      await changed();
      onClose();
    } catch (failed) {
      setChecked(undefined);
      setError(failed as Fault);
    }
  };
  const change = <T,>(set: (v: T) => void) => (v: T) => { setChecked(undefined); set(v); };
  return (
    <Dialog title="Grant a role" onClose={onClose}>
      <form onSubmit={(e) => { e.preventDefault(); void send(!checked); }}>
        <Field name="who" label="Who" value={who} onInput={change(setWho)} list={[...people.keys()]} placeholder="acme/platform/ci, or a uid" required hint="Somebody new? Invite them: the invite has the role." />
        <Choice name="role" label="Role" value={chosen?.uid ?? ""} onChange={change(setRole)} options={(choice.data?.roles ?? []).map((r) => [r.uid ?? "", r.name ?? ""])} />
        {chosen && <p class="hint"><bdi>{chosen.description}</bdi> · {many(chosen.capabilities?.length, "capability", "capabilities")}</p>}
        <Choice name="for" label="For" value={hours} onChange={change(setHours)} options={spans} />
        <Field name="reason" label="Why" value={reason} onInput={change(setReason)} hint="For those who read it later." />
        {checked && <p class="notice" role="status"><Name uid={checked.identity?.uid} quiet /> will be <strong><bdi>{chosen?.name}</bdi></strong> in <Name uid={uid} path quiet /> and in everything below it{checked.expireTime && <>, until <Time at={checked.expireTime} /></>}.</p>}
        {checked && <Command text={`holdfast iam role-bindings create --parent ${sh(path)} --identity ${sh(checked.identity?.uid ?? who)} --role ${sh(chosen?.name ?? "")}${hours && ` --for ${hours}h`}${reason && ` --reason ${sh(reason)}`}`} />}
        {error && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary">{checked ? "Grant" : "Check"}</button>
        </div>
      </form>
    </Dialog>
  );
}

const title = (i: Schema<"holdfast.iam.v2beta1.RoleBindingIdentity"> | undefined) => i?.email || i?.displayName || i?.name || "";

function Remove({ binding, onClose }: { binding: Binding; onClose: () => void }) {
  const uid = binding.uid ?? "";
  const [error, setError] = useState<Fault>();
  const remove = async () => {
    try {
      await del("/iam/v2beta1/roleBindings/{uid}", { path: { uid }, query: { validate_only: true } }).send();
      await del("/iam/v2beta1/roleBindings/{uid}", { path: { uid } }).send();
      await changed();
      onClose();
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  return (
    <Dialog title="Remove a role?" onClose={onClose}>
      <p><bdi>{title(binding.identity)}</bdi> will not be <strong><bdi>{binding.role?.name}</bdi></strong> of <Name uid={binding.group?.uid} path quiet /> and of anything below it any more. Roles that are granted elsewhere stay.</p>
      <Command text={`holdfast iam role-bindings delete ${uid} --yes`} />
      {error && <Problem error={error} />}
      <div class="dialog-foot">
        <button type="button" onClick={onClose}>Keep it</button>
        <button type="button" class="danger" onClick={remove}>Remove</button>
      </div>
    </Dialog>
  );
}

function Roles({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(roles(uid))}>{({ roles: rows = [], nextPageToken, totalCount }) => (
      <>
        {rows.length === 0
          ? <Empty title="This group has no roles of its own" command={`holdfast iam roles create NAME --parent ${sh(path)} --capability repo.list,tag.list`}>A role is a set of capabilities. The built-in ones are there for every group.</Empty>
          : <Table label="Roles" rows={rows} id={(r) => r.uid ?? ""} columns={[
            { name: "Name", cell: (r) => <Name uid={r.uid} /> },
            { name: "Description", cell: (r) => <bdi>{r.description}</bdi> },
            { name: "May", cell: (r) => <details class="caps"><summary>{many(r.capabilities?.length, "capability", "capabilities")}</summary><p>{r.capabilities?.map((c) => word(c, "CAP")).join(", ")}</p></details> },
          ]} />}
        <Pager next={nextPageToken} total={totalCount} one="role" />
      </>
    )}</Answer>
  );
}

function Repos({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(repos(uid))}>{({ repos: rows = [], nextPageToken, totalCount }) => (
      <>
        {rows.length === 0
          ? <Empty title="There is no repo in it" command={`holdfast registry repos create NAME --parent ${sh(path)}`}>A repo keeps the images of one thing that you build.</Empty>
          : <Table label="Repos" rows={rows} id={(r) => r.uid ?? ""} columns={[
            { name: "Name", order: "name", cell: (r) => <span class="name"><a href={repoPage(r.uid ?? "")}><bdi>{r.name}</bdi></a><Copy text={r.uid ?? ""} what={`the uid of ${r.name?.slice(0, 40)}`} /></span> },
            { name: "Description", cell: (r) => <bdi>{r.description}</bdi> },
            { name: "Created", order: "create_time", cell: (r) => <Time at={r.createTime} />, wide: true },
          ]} />}
        <Pager next={nextPageToken} total={totalCount} one="repo" />
      </>
    )}</Answer>
  );
}

function Rules({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(rules(uid))}>{({ rules: rows = [], nextPageToken, totalCount }) => (
      <>
        {rows.length === 0
          ? <Empty title="No rule is in this group" command={`holdfast findings rules create --parent ${sh(path)} --min-severity critical --fixable --grace-days 14`}>A rule refuses pulls of images with findings of some kind. It begins as a dry run. Rules above hold here, too.</Empty>
          : <Table label="Rules" rows={rows} id={(r) => r.uid ?? ""} columns={[
            { name: "Refuses", cell: (r) => <>{refuses(r)}<small class="line"><bdi>{r.description}</bdi></small></> },
            { name: "On", cell: (r) => <Name uid={r.targetUid} path /> },
            { name: "Mode", cell: (r) => <span class={`state ${word(r.mode, "RULE_MODE").replace(" ", "-")}`}>{word(r.mode, "RULE_MODE")}</span> },
            { name: "Changed", cell: (r) => <Time at={r.updateTime} />, wide: true },
          ]} />}
        <Pager next={nextPageToken} total={totalCount} one="rule" />
      </>
    )}</Answer>
  );
}

/** refuses says in words what a rule refuses. */
function refuses(r: Schema<"holdfast.findings.v1.Rule">): string {
  const severity = word(r.minSeverity, "SEVERITY");
  return [
    severity && severity !== "unknown" ? `${severity} or worse` : "any finding", r.fixable && "that can be fixed", r.kev && "known to be exploited",
    r.graceDays ? `after ${r.graceDays} days` : "", r.refuseUnknown && "and images that are not understood",
  ].filter(Boolean).join(", ");
}

const metrics = [
  ["storedBytes", "Stored", "storedBytes"], ["repos", "Repos", "repos"], ["identities", "Workloads", "identities"], ["advisories", "Advisories", "advisories"],
  ["webhooks", "Subscriptions", "webhooks"], ["pullsPerDay", "Pulls a day", "pullsToday"], ["requestsPerSecond", "Requests a second", ""],
] as const;

function Budget({ uid }: { uid: string }) {
  const show = (metric: string, n: string | undefined) => (metric === "storedBytes" ? bytes(n) : count(n));
  return (
    <Answer of={useQuery(budget(uid))}>{(b) => (
      <>
        <Table label="Budget" rows={[...metrics]} id={([m]) => m} columns={[
          { name: "What", cell: ([, name]) => name },
          { name: "Used", number: true, cell: ([m, , use]) => (use ? show(m, b.usage?.[use]) : <span class="hint">not counted</span>) },
          { name: "Limit", number: true, cell: ([m]) => (b[m] ? show(m, b[m]) : <span class="hint">none</span>) },
          { name: "Share", hidden: true, cell: ([m, name, use]) => (b[m] && use ? <meter aria-label={name} min={0} max={Number(b[m])} high={Number(b[m]) * 0.9} value={Number(b.usage?.[use] ?? 0)} /> : null) },
        ]} />
        <p class="hint">The budget of an organization is set by the operator of this server; that of a folder by whoever may update the group above it.</p>
      </>
    )}</Answer>
  );
}
