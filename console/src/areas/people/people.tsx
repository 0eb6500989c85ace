import { useState } from "preact/hooks";
import { del, type Fault, get, post, type Schema } from "../../api/api";
import { nameOf, parentOf, resolve } from "../../api/names";
import { changed, useMay, useQuery, whoami } from "../../api/query";
import {
  Answer,
  AsCommand,
  Choice,
  Command,
  Confirm,
  Copy,
  Dialog,
  Empty,
  Field,
  Name,
  NoRole,
  Page,
  Pager,
  Problem,
  Scope,
  sh,
  Table,
  Tabs,
  Time,
  useScope,
} from "../../ui";
import { param, personPage, withParams } from "../../ui/router";
import { Accounts, accounts } from "./accounts";
import { Members } from "./members";

type Invite = Schema<"holdfast.iam.v2beta1.GroupInvite">;

const tabs = [
  { id: "", name: "Members" },
  { id: "invites", name: "Invites" },
  { id: "joins", name: "Joins" },
  { id: "accounts", name: "Accounts" },
];
const below = (group: string) => ({
  "uidp.descendants_of": group,
  page_size: 50,
  page_token: param("page") || undefined,
});
const bindings = (group: string) => get("/iam/v2beta1/roleBindings", { query: below(group) });
const invites = (group: string) => get("/iam/v2beta1/groupInvites", { query: below(group) });
const joins = (group: string) => get("/signin/v1/joins", { query: { parent: group } });

export default function People() {
  const tab = param("tab");
  const { group, path, nothing } = useScope();
  const calls = {
    "": [`holdfast iam role-bindings list --parent ${sh(path)}`, bindings(group)],
    invites: [`holdfast iam invites list --parent ${sh(path)}`, invites(group)],
    joins: [`holdfast iam invites joins --parent ${sh(path)}`, joins(group)],
    accounts: [`holdfast iam accounts list --parent ${sh(path)}`, accounts(group)],
  } as const;
  const [command, request] = calls[tab as keyof typeof calls] ?? calls[""];
  return (
    <Page
      title="People"
      lead="Members, invites, people who joined, and local accounts."
      actions={group && <AsCommand command={command} request={request} />}
    >
      <Scope path={path} />
      <Tabs
        label="Parts of people"
        items={tabs}
        now={tab}
        href={(id) => withParams({ tab: id, email: undefined, who: undefined, from: undefined })}
      />
      {nothing && <NoRole />}
      {group &&
        (tab === "invites" ? (
          <Invites group={group} path={path} />
        ) : tab === "joins" ? (
          <Joins group={group} />
        ) : tab === "accounts" ? (
          <Accounts group={group} path={path} />
        ) : (
          <Members group={group} />
        ))}
    </Page>
  );
}

function Invites({ group, path }: { group: string; path: string }) {
  const may = useMay();
  const [inviting, setInviting] = useState(false);
  const [deleting, setDeleting] = useState<Invite>();
  const canDelete = may("group_invites.delete", group);
  return (
    <>
      {may("group_invites.create", group) && (
        <p>
          <button type="button" class="primary small" onClick={() => setInviting(true)}>
            Invite somebody
          </button>
        </p>
      )}
      <Answer of={useQuery(invites(group))}>
        {({ groupInvites = [], nextPageToken, totalCount }) => (
          <>
            {groupInvites.length === 0 ? (
              <Empty
                title="No invite is pending"
                what="invites"
                needs={["group_invites.list"]}
                group={group}
                command={`holdfast iam invites create --parent ${sh(path)} --role viewer --ttl 7d --single-use`}
              >
                An invite is a link that gives a role on a group.
              </Empty>
            ) : (
              <Table
                label="Invites"
                rows={groupInvites}
                id={(i) => i.uid ?? ""}
                columns={[
                  {
                    name: "For",
                    roomy: true,
                    cell: (i) => (
                      <span class="name">
                        {i.email ? <bdi>{i.email}</bdi> : <>whoever has the link</>}
                        <Copy text={i.uid ?? ""} what="the uid of this invite" />
                      </span>
                    ),
                  },
                  { name: "Role", cell: (i) => <bdi>{i.role?.name}</bdi> },
                  { name: "On", roomy: true, cell: (i) => <Name uid={parentOf(i.uid ?? "")} path /> },
                  { name: "Ends", cell: (i) => <Time at={i.expirationTime} /> },
                  { name: "Works", cell: (i) => (i.singleUse ? "once" : "any number of times"), wide: true },
                  ...(canDelete
                    ? [
                        {
                          name: "Delete",
                          hidden: true,
                          cell: (i: Invite) => (
                            <button type="button" class="danger small" onClick={() => setDeleting(i)}>
                              Delete
                            </button>
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="invite" />
          </>
        )}
      </Answer>
      {inviting && <Create path={path} onClose={() => setInviting(false)} />}
      {deleting && (
        <Confirm
          title="Delete an invite?"
          done="The invite was deleted"
          label="Delete the invite"
          keep="Keep it"
          command={`holdfast iam invites delete ${deleting.uid} --yes`}
          onClose={() => setDeleting(undefined)}
          requests={[true, undefined].map((validate_only) =>
            del("/iam/v2beta1/groupInvites/{uid}", { path: { uid: deleting.uid ?? "" }, query: { validate_only } }),
          )}
        >
          The link stops working. People who have used it keep their role.
        </Confirm>
      )}
    </>
  );
}

const lives: [string, string][] = [
  ["86400s", "a day"],
  ["604800s", "a week"],
  ["2592000s", "30 days"],
];

/** Create creates an invite, and shows its link, which is shown only once. */
function Create({ path, onClose }: { path: string; onClose: () => void }) {
  const roles = useQuery(get("/iam/v2beta1/roles", { query: { page_size: 200, order_by: "name" } })).data?.roles ?? [];
  const issuer = useQuery(whoami).data?.issuer ?? location.origin;
  const [group, setGroup] = useState(path),
    [email, setEmail] = useState(""),
    [role, setRole] = useState(""),
    [ttl, setTTL] = useState("604800s"),
    [once, setOnce] = useState(true);
  const [made, setMade] = useState<Invite>();
  const [error, setError] = useState<Fault>();
  const chosen = roles.find((r) => r.uid === role) ?? roles.find((r) => r.name === "viewer");
  const send = async () => {
    setError(undefined);
    try {
      const uid = await resolve(group.trim(), "groups");
      setMade(
        await post("/iam/v2beta1/groupInvites/{uid}", {
          path: { uid },
          body: { roleUid: chosen?.uid, ttl, email: email.trim() || undefined, singleUse: once },
        }).send(),
      );
      await changed();
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  if (made) {
    return (
      <Dialog title="The link of the invite" onClose={onClose}>
        <p>
          Give it to {made.email ? <bdi>{made.email}</bdi> : "the people whom you invite"}. It is shown only now, and
          works {made.singleUse ? "once" : "any number of times"}; it ends <Time at={made.expirationTime} />.
        </p>
        <Command text={`${issuer}/join?code=${encodeURIComponent(made.code ?? "")}`} />
        <div class="dialog-foot">
          <button type="button" class="primary" onClick={onClose}>
            Done
          </button>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="Invite somebody" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <Field name="group" label="To the group" value={group} onInput={setGroup} required />
        <Choice
          name="role"
          label="As"
          value={chosen?.uid ?? ""}
          onChange={setRole}
          options={roles.map((r) => [r.uid ?? "", r.name ?? ""])}
        />
        {chosen && (
          <p class="hint">
            <bdi>{chosen.description}</bdi>
          </p>
        )}
        <Field
          name="email"
          label="E-mail address"
          value={email}
          onInput={setEmail}
          placeholder="ann@example.com"
          hint="Only a person with this verified address can use the link. Without it, everybody with the link can."
        />
        <Choice name="ttl" label="Valid for" value={ttl} onChange={setTTL} options={lives} />
        <label class="check">
          <input type="checkbox" checked={once} onChange={(e) => setOnce(e.currentTarget.checked)} />
          Works once
        </label>
        <Command
          text={[
            "holdfast iam invites create --parent",
            sh(group.trim() || "GROUP"),
            "--role",
            sh(chosen?.name ?? "viewer"),
            "--ttl",
            ttl,
            ...(email.trim() ? ["--email", sh(email.trim())] : []),
            ...(once ? [] : ["--single-use=false"]),
          ].join(" ")}
        />
        {error && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Create the invite
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Joins({ group }: { group: string }) {
  return (
    <Answer of={useQuery(joins(group))}>
      {({ joins: rows = [] }) =>
        rows.length === 0 ? (
          <Empty title="Nobody came through an invite">
            People who joined through an invite are listed here, with the role that it granted.
          </Empty>
        ) : (
          <Table
            label="Joins"
            rows={rows}
            id={(j) => `${j.identityUid} ${j.inviteUid} ${j.joinTime}`}
            columns={[
              {
                name: "Who",
                cell: (j) => (
                  <>
                    <a href={personPage(j.identityUid ?? "")}>
                      <bdi>{j.name || j.email || "somebody"}</bdi>
                    </a>
                    <small class="line">
                      <bdi>{j.email}</bdi>
                    </small>
                  </>
                ),
              },
              { name: "Into", cell: (j) => <Name uid={j.groupUid} path /> },
              { name: "As", cell: (j) => <bdi>{nameOf(j.roleUid ?? "").value?.name ?? "…"}</bdi> },
              { name: "When", cell: (j) => <Time at={j.joinTime} /> },
            ]}
          />
        )
      }
    </Answer>
  );
}
