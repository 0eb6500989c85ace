import { useState } from "preact/hooks";
import { type Fault, get, patch, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { changed, useMay, useQuery } from "../../api/query";
import {
  Above,
  Answer,
  AsCommand,
  addGitHub,
  bytes,
  Command,
  Copy,
  count,
  type curl,
  Dialog,
  Empty,
  Field,
  many,
  Name,
  Page,
  Pager,
  Problem,
  Section,
  sh,
  Table,
  Tabs,
  Time,
  toast,
  word,
} from "../../ui";
import { base, param, repoPage, withParams } from "../../ui/router";
import { Replications, replicationsOf } from "../registry/replications";
import { Signers, signersOf } from "../registry/signers";
import { Trash, trashOf } from "../registry/trash";
import { Upstreams, upstreamsOf } from "../registry/upstreams";
import { Create, type Created } from "./create";
import { bindings, Grants } from "./grants";
import { Overview } from "./overview";

const tabs = [
  { id: "", name: "Overview" },
  { id: "people", name: "People and workloads" },
  { id: "roles", name: "Roles" },
  { id: "repos", name: "Repos" },
  { id: "rules", name: "Rules" },
  { id: "signers", name: "Signers" },
  { id: "upstreams", name: "Upstreams" },
  { id: "replications", name: "Replications" },
  { id: "budget", name: "Budget" },
  { id: "trash", name: "Trash" },
];
const inside = (uid: string) => ({ "uidp.children_of": uid, page_size: 50, page_token: param("page") || undefined });

export default function Group({ uid }: { uid: string }) {
  const group = useQuery(get("/iam/v2beta1/groups/{uid}", { path: { uid } }));
  const tab = param("tab");
  const path = nameOf(uid).value?.path ?? uid;
  const may = useMay();
  const [editing, setEditing] = useState(false);
  const [creating, setCreating] = useState<Created>();
  if (group.error)
    return (
      <Page title="Group" above={<Above uid={uid} />}>
        <Problem error={group.error} />
      </Page>
    );
  const commands: Record<string, string> = {
    "": "iam groups list",
    people: "iam role-bindings list",
    roles: "iam roles list",
    repos: "registry repos list",
    rules: "findings rules list",
    signers: "registry signers list",
    upstreams: "registry upstreams list --recursive",
    replications: "registry replications list --recursive",
    trash: "registry trash list",
  };
  return (
    <Page
      thing={!!group.data}
      title={group.data?.displayName || group.data?.name || "…"}
      mark={<Copy text={uid} what="the uid of this group" />}
      above={<Above uid={uid} />}
      lead={group.data?.description || (uid.includes("/") ? "A folder" : "An organization")}
      actions={
        <>
          {group.data && may("groups.create", uid) && (
            <button type="button" class="small" onClick={() => setCreating("folder")}>
              New folder
            </button>
          )}
          {group.data && may("repo.create", uid) && (
            <button type="button" class="small" onClick={() => setCreating("repo")}>
              New repo
            </button>
          )}
          {group.data && may("groups.update", uid) && (
            <button type="button" class="small" onClick={() => setEditing(true)}>
              Edit
            </button>
          )}
          <a class="button small" href={`${base}/access?place=${uid}`}>
            Who can…
          </a>
          <AsCommand
            command={
              tab === "budget"
                ? `holdfast iam budgets get ${sh(path)}`
                : `holdfast ${commands[tab] ?? commands[""]} --parent ${sh(path)}`
            }
            request={requests(uid)[tab] ?? folders(uid)}
          />
        </>
      }
    >
      <Tabs
        label="Parts of this group"
        items={tabs}
        now={tab}
        href={(id) => withParams({ tab: id, order: undefined, days: undefined })}
      />
      {tab === "" && group.data && (
        <>
          <Overview uid={uid} path={path} />
          <Section title="Folders">
            <Folders uid={uid} path={path} />
          </Section>
        </>
      )}
      {tab === "people" && <People uid={uid} path={path} />}
      {tab === "roles" && <Roles uid={uid} path={path} />}
      {tab === "repos" && <Repos uid={uid} path={path} />}
      {tab === "rules" && <Rules uid={uid} path={path} />}
      {tab === "signers" && <Signers uid={uid} path={path} />}
      {tab === "upstreams" && <Upstreams uid={uid} path={path} />}
      {tab === "replications" && <Replications uid={uid} path={path} />}
      {tab === "budget" && <Budget uid={uid} />}
      {tab === "trash" && <Trash uid={uid} path={path} />}
      {creating && <Create what={creating} uid={uid} path={path} onClose={() => setCreating(undefined)} />}
      {editing && group.data && <Edit group={group.data} path={path} onClose={() => setEditing(false)} />}
    </Page>
  );
}

type Edited = { name: string; description: string };

/**
 * Edit changes the name and the description. It sends only the changed fields, with the version
 * that was shown, so that it does not overwrite a concurrent change.
 */
function Edit({
  group,
  path,
  onClose,
}: {
  group: Schema<"holdfast.iam.v2beta1.Group">;
  path: string;
  onClose: () => void;
}) {
  const [read] = useState(group); // the group when the dialog was opened
  const [now, setNow] = useState<Edited>({ name: group.name ?? "", description: group.description ?? "" });
  const [error, setError] = useState<Fault>();
  const different = (Object.keys(now) as (keyof Edited)[]).filter((k) => now[k] !== (read[k] ?? ""));
  const save = async () => {
    // At the second attempt, the person has seen the change of somebody else.
    const version = error?.stale ? group.updateTime : read.updateTime;
    setError(undefined);
    try {
      await patch("/iam/v2beta1/groups/{uid}", {
        path: { uid: group.uid ?? "" },
        query: { updateMask: different.join(",") },
        body: now,
        version,
      }).send();
      await changed();
      toast("The group was changed");
      onClose();
    } catch (failed) {
      setError(failed as Fault);
      if ((failed as Fault).stale) await changed();
    }
  };
  return (
    <Dialog title="Edit the group" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void save();
        }}
      >
        <Field
          name="edit-name"
          label="Name"
          value={now.name}
          onInput={(name) => setNow({ ...now, name })}
          required
          hint="It is part of the addresses of images."
        />
        <Field
          name="edit-description"
          label="Description"
          value={now.description}
          onInput={(description) => setNow({ ...now, description })}
        />
        {different.length > 0 && (
          <Command
            text={`holdfast iam groups update ${sh(path)}${different.map((k) => ` --${k} ${sh(now[k])}`).join("")}`}
          />
        )}
        {error && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={different.length === 0}>
            {error?.stale ? "Overwrite with mine" : "Save"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const folders = (uid: string) =>
  get("/iam/v2beta1/groups", { query: { ...inside(uid), order_by: param("order") || "name" } });
const workloads = (uid: string) =>
  get("/iam/v2beta1/identities", {
    query: { "uidp.children_of": uid, order_by: "name", page_size: 50, page_token: param("workloads") || undefined },
  });
const roles = (uid: string) => get("/iam/v2beta1/roles", { query: { ...inside(uid), order_by: "name" } });
const repos = (uid: string) =>
  get("/registry/v2beta1/repos", { query: { ...inside(uid), order_by: param("order") || "name" } });
const rules = (uid: string) =>
  get("/findings/v1/rules", {
    query: { "uidp.children_of": uid, page_size: 50, page_token: param("page") || undefined },
  });
const budget = (uid: string) => get("/budgets/v1/budgets/{uid}", { path: { uid } });
const requests = (uid: string): Record<string, Parameters<typeof curl>[0]> => ({
  people: bindings(uid),
  roles: roles(uid),
  repos: repos(uid),
  rules: rules(uid),
  signers: signersOf(uid),
  upstreams: upstreamsOf(uid),
  replications: replicationsOf(uid),
  budget: budget(uid),
  trash: trashOf(uid),
});

function Folders({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(folders(uid))}>
      {({ groups = [], nextPageToken, totalCount }) => (
        <>
          {groups.length === 0 ? (
            <Empty
              title="There is no folder in it"
              what="folders"
              needs={["groups.list"]}
              group={uid}
              command={`holdfast iam groups create NAME --parent ${sh(path)}`}
            >
              Folders divide an organization. A role on a folder applies to everything below it.
            </Empty>
          ) : (
            <Table
              label="Folders"
              rows={groups}
              id={(g) => g.uid ?? ""}
              columns={[
                { name: "Name", order: "name", cell: (g) => <Name uid={g.uid} /> },
                { name: "Description", cell: (g) => <bdi>{g.description}</bdi> },
                { name: "Created", order: "create_time", cell: (g) => <Time at={g.createTime} />, wide: true },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="folder" />
        </>
      )}
    </Answer>
  );
}

function People({ uid, path }: { uid: string; path: string }) {
  return (
    <>
      <Grants uid={uid} path={path} />
      <Section title="Workloads of this group">
        <Answer of={useQuery(workloads(uid))}>
          {({ identities = [], nextPageToken, totalCount }) => (
            <>
              {identities.length === 0 ? (
                <Empty
                  title="There is no workload in it"
                  what="workloads"
                  needs={["identity.list"]}
                  group={uid}
                  command={addGitHub(sh(path))}
                >
                  A workload is a pipeline or a pod that proves who it is with a token of its own platform.
                </Empty>
              ) : (
                <Table
                  label="Workloads"
                  rows={identities}
                  id={(i) => i.uid ?? ""}
                  columns={[
                    { name: "Name", cell: (i) => <Name uid={i.uid} /> },
                    {
                      name: "Proves itself by",
                      cell: (i) => (
                        <bdi>
                          {i.claimMatch?.subject ||
                            i.claimMatch?.subjectPattern ||
                            i.staticKeys?.subject ||
                            i.awsIdentity?.arn ||
                            i.awsIdentity?.arnPattern}
                        </bdi>
                      ),
                    },
                    { name: "Last seen", cell: (i) => <Time at={i.lastSeenTime} />, wide: true },
                  ]}
                />
              )}
              <Pager next={nextPageToken} total={totalCount} one="workload" at="workloads" />
            </>
          )}
        </Answer>
      </Section>
    </>
  );
}

function Roles({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(roles(uid))}>
      {({ roles: rows = [], nextPageToken, totalCount }) => (
        <>
          {rows.length === 0 ? (
            <Empty
              title="This group has no roles of its own"
              what="roles"
              needs={["roles.list"]}
              group={uid}
              command={`holdfast iam roles create NAME --parent ${sh(path)} --capability repo.list,tag.list`}
            >
              A role is a set of capabilities. Every group can use the built-in roles.
            </Empty>
          ) : (
            <Table
              label="Roles"
              rows={rows}
              id={(r) => r.uid ?? ""}
              columns={[
                { name: "Name", cell: (r) => <Name uid={r.uid} /> },
                { name: "Description", cell: (r) => <bdi>{r.description}</bdi> },
                {
                  name: "May",
                  cell: (r) => (
                    <details class="caps">
                      <summary>{many(r.capabilities?.length, "capability", "capabilities")}</summary>
                      <p>{r.capabilities?.map((c) => word(c, "CAP")).join(", ")}</p>
                    </details>
                  ),
                },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="role" />
        </>
      )}
    </Answer>
  );
}

function Repos({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(repos(uid))}>
      {({ repos: rows = [], nextPageToken, totalCount }) => (
        <>
          {rows.length === 0 ? (
            <Empty
              title="There is no repo in it"
              what="repos"
              needs={["repo.list"]}
              group={uid}
              command={`holdfast registry repos create NAME --parent ${sh(path)}`}
            >
              A repo stores the images of one program.
            </Empty>
          ) : (
            <Table
              label="Repos"
              rows={rows}
              id={(r) => r.uid ?? ""}
              columns={[
                {
                  name: "Name",
                  order: "name",
                  cell: (r) => (
                    <span class="name">
                      <a href={repoPage(r.uid ?? "")}>
                        <bdi>{r.name}</bdi>
                      </a>
                      <Copy text={r.uid ?? ""} what={`the uid of ${r.name?.slice(0, 40)}`} />
                    </span>
                  ),
                },
                { name: "Description", cell: (r) => <bdi>{r.description}</bdi> },
                { name: "Created", order: "create_time", cell: (r) => <Time at={r.createTime} />, wide: true },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="repo" />
        </>
      )}
    </Answer>
  );
}

function Rules({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(rules(uid))}>
      {({ rules: rows = [], nextPageToken, totalCount }) => (
        <>
          {rows.length === 0 ? (
            <Empty
              title="No rule is in this group"
              what="rules"
              needs={["policies.policy.list"]}
              group={uid}
              command={[
                `holdfast findings rules create --parent ${sh(path)}`,
                "--min-severity critical --fixable --grace-days 14",
              ].join(" ")}
            >
              A rule refuses pulls of images with certain findings, or of images that are not signed. It begins as a dry
              run. Rules of the groups above apply here, too.
            </Empty>
          ) : (
            <Table
              label="Rules"
              rows={rows}
              id={(r) => r.uid ?? ""}
              columns={[
                {
                  name: "Refuses",
                  cell: (r) => (
                    <>
                      {refuses(r)}
                      <small class="line">
                        <bdi>{r.description}</bdi>
                      </small>
                      {r.ineffectiveReason && (
                        <small class="line warning">Cannot refuse anything: {r.ineffectiveReason}</small>
                      )}
                    </>
                  ),
                },
                { name: "On", cell: (r) => <Name uid={r.targetUid} path /> },
                {
                  name: "Mode",
                  cell: (r) => (
                    <span class={`state ${word(r.mode, "RULE_MODE").replace(" ", "-")}`}>
                      {word(r.mode, "RULE_MODE")}
                    </span>
                  ),
                },
                { name: "Changed", cell: (r) => <Time at={r.updateTime} />, wide: true },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="rule" />
        </>
      )}
    </Answer>
  );
}

/** refuses describes in words what a rule refuses. */
function refuses(r: Schema<"holdfast.findings.v1.Rule">): string {
  if (r.unsigned) return "images that no signer has signed";
  const severity = word(r.minSeverity, "SEVERITY");
  return [
    severity && severity !== "unknown" ? `${severity} or worse` : "any finding",
    word(r.unknownSeverity, "UNKNOWN_SEVERITY") === "allow" ? "of known severity" : "",
    r.fixable && "that can be fixed",
    r.kev && "known to be exploited",
    r.graceDays ? `after ${r.graceDays} days` : "",
    r.refuseUnknown && "and images that cannot be inspected",
  ]
    .filter(Boolean)
    .join(", ");
}

const metrics = [
  ["storedBytes", "Stored", "storedBytes"],
  ["repos", "Repos", "repos"],
  ["identities", "Workloads", "identities"],
  ["advisories", "Advisories", "advisories"],
  ["webhooks", "Subscriptions", "webhooks"],
  ["groups", "Groups", "groups"],
  ["bindings", "Role bindings", "bindings"],
  ["pullsPerDay", "Pulls a day", "pullsToday"],
  ["requestsPerSecond", "Requests a second", ""],
] as const;

function Budget({ uid }: { uid: string }) {
  const show = (metric: string, n: string | undefined) => (metric === "storedBytes" ? bytes(n) : count(n));
  return (
    <Answer of={useQuery(budget(uid))}>
      {(b) => (
        <>
          <Table
            label="Budget"
            rows={[...metrics]}
            id={([m]) => m}
            columns={[
              { name: "What", cell: ([, name]) => name },
              {
                name: "Used",
                number: true,
                cell: ([m, , use]) => (use ? show(m, b.usage?.[use]) : <span class="hint">not counted</span>),
              },
              { name: "Limit", number: true, cell: ([m]) => (b[m] ? show(m, b[m]) : <span class="hint">none</span>) },
              {
                name: "Share",
                hidden: true,
                cell: ([m, name, use]) =>
                  b[m] && use ? (
                    <meter
                      aria-label={name}
                      min={0}
                      max={Number(b[m])}
                      high={Number(b[m]) * 0.9}
                      value={Number(b.usage?.[use] ?? 0)}
                    />
                  ) : null,
              },
            ]}
          />
          <p class="hint">
            The operator of this server sets the budget of an organization. The budget of a folder is set by people who
            may update the group above it.
          </p>
        </>
      )}
    </Answer>
  );
}
