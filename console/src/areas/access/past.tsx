// Grants of the past, changes of grants, and unused access.
import { useState } from "preact/hooks";
import { get, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { useQuery } from "../../api/query";
import {
  Answer,
  AsCommand,
  Choice,
  Dialog,
  Empty,
  Field,
  Filters,
  Name,
  Page,
  Pager,
  Scope,
  sh,
  Table,
  Tabs,
  Time,
  useScope,
  word,
} from "../../ui";
import { param, withParams } from "../../ui/router";
import { Consequences } from "./consequences";

/** instant converts a parameter with a local time to the API's format; undefined if it is empty or invalid. */
export function instant(name: string): string | undefined {
  const at = new Date(param(name));
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

const questions = [
  { id: "", name: "Who can, and why" },
  { id: "reach", name: "What can somebody reach" },
  { id: "diff", name: "What has changed" },
  { id: "unused", name: "What is not used" },
  { id: "requests", name: "Requests" },
];

/** Questions links the questions about access. */
export const Questions = ({ now }: { now: string }) => (
  <Tabs
    label="Questions"
    items={questions}
    now={now}
    href={(id) =>
      withParams({
        show: id,
        place: undefined,
        capability: undefined,
        mine: undefined,
        from: undefined,
        to: undefined,
        at: undefined,
      })
    }
  />
);

const day = 86_400_000;

/** Changed shows the roles that identities have gained and lost between two times. */
export function Changed() {
  const place = param("place");
  const from = instant("from") ?? new Date(Math.floor(Date.now() / 60_000) * 60_000 - day).toISOString(),
    to = instant("to") ?? new Date(Math.floor(Date.now() / 60_000) * 60_000).toISOString();
  const list = get("/access/v1/past/diff", {
    query: {
      from_time: from,
      to_time: to,
      place_uid: place || undefined,
      page_size: 50,
      page_token: param("page") || undefined,
    },
  });
  const on = place ? ` --on ${sh(nameOf(place).value?.path ?? place)}` : "";
  const command = `holdfast iam access diff --from ${from} --to ${to}${on}`;
  return (
    <Page
      title="Access"
      lead="Roles that were gained and lost, and who changed them. Without times, the last day."
      actions={<AsCommand command={command} request={list} />}
    >
      <Questions now="diff" />
      <Filters label="Between which times" names={{ place: ["groups"] }}>
        <Field name="from" label="From" type="datetime-local" />
        <Field name="to" label="To" type="datetime-local" />
        <Field name="place" label="On the group, and below" placeholder="acme/prod" />
      </Filters>
      <Answer of={useQuery(list)}>
        {({ changes = [], roles = [], incomplete, nextPageToken, totalCount }) => (
          <>
            {incomplete && (
              <p class="coverage">There are groups above that you may not list. Their changes are not shown.</p>
            )}
            {roles.map((r) => (
              <p key={r.role?.uid} class="notice">
                The role{" "}
                <strong>
                  <bdi>{r.role?.name}</bdi>
                </strong>{" "}
                was changed <Time at={r.time} />:{" "}
                {[
                  ...(r.gained ?? []).map((c) => `+ ${word(c, "CAP")}`),
                  ...(r.lost ?? []).map((c) => `− ${word(c, "CAP")}`),
                ].join(", ")}
              </p>
            ))}
            {changes.length === 0 ? (
              <Empty
                title="Nobody that you may see has gained or lost a role"
                what="the roles of others"
                needs={["role_bindings.list"]}
                group={place}
              >
                Roles that were granted and removed in between are not shown.
              </Empty>
            ) : (
              <Table
                label="Changes"
                rows={changes}
                id={(c) => `${c.grant?.bindingUid} ${c.time} ${c.kind}`}
                columns={[
                  {
                    name: "What",
                    cell: (c) => (
                      <span class={`state ${gained(c.kind) ? "good" : "wrong"}`}>
                        {word(c.kind, "GRANT_CHANGE_KIND")}
                      </span>
                    ),
                  },
                  { name: "Who", cell: (c) => <Name uid={c.grant?.identity?.uid} /> },
                  { name: "Role", cell: (c) => <bdi>{c.grant?.role?.name}</bdi> },
                  { name: "On", roomy: true, cell: (c) => <bdi>{c.grant?.group?.name}</bdi> },
                  { name: "When", cell: (c) => <Time at={c.time} /> },
                  {
                    name: "By",
                    cell: (c) => (c.actorUid ? <Name uid={c.actorUid} quiet /> : <span class="hint">nobody</span>),
                    wide: true,
                  },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="change" />
          </>
        )}
      </Answer>
    </Page>
  );
}

const gained = (kind: string | undefined) => /GRANTED|BEGUN/.test(kind ?? "");

const kinds: [string, string][] = [
  ["UNUSED_KIND_ROLE_BINDING", "role bindings"],
  ["UNUSED_KIND_IDENTITY", "workloads"],
  ["UNUSED_KIND_GROUP_INVITE", "invites"],
  ["UNUSED_KIND_ACCOUNT_ASSOCIATION", "account associations"],
];
const spans: [string, string][] = [
  ["2592000s", "30 days"],
  ["", "90 days"],
  ["31536000s", "a year"],
];
const flags: Record<string, string> = {
  UNUSED_KIND_ROLE_BINDING: "role-bindings",
  UNUSED_KIND_IDENTITY: "identities",
  UNUSED_KIND_GROUP_INVITE: "invites",
  UNUSED_KIND_ACCOUNT_ASSOCIATION: "account-associations",
};

/** Unused shows access that was not used for a long time, and smaller roles that would have been enough. */
export function Unused() {
  const kind = param("kind") || "UNUSED_KIND_ROLE_BINDING",
    since = param("since");
  const { group, path } = useScope();
  const list = group
    ? get("/access/v1/unused", {
        query: {
          kind: kind as "UNUSED_KIND_ROLE_BINDING",
          since: since || undefined,
          "uidp.descendants_of": group,
          page_size: 50,
          page_token: param("page") || undefined,
        },
      })
    : null;
  const found = useQuery(list);
  const [asked, setAsked] = useState<Schema<"holdfast.access.v1.UnusedAccess">>();
  const days = Math.round(Number.parseInt(since || "7776000", 10) / 86_400);
  return (
    <Page
      title="Access"
      lead="Access that was granted and is not used."
      actions={
        list && (
          <AsCommand
            command={`holdfast access unused --since ${days}d --kind ${flags[kind]} --group ${sh(path)}`}
            request={list}
          />
        )
      }
    >
      <Questions now="unused" />
      <Scope path={path} />
      <Filters label="What is not used">
        <Choice name="kind" label="Of" options={kinds} value={kind} />
        <Choice name="since" label="Not used for" options={spans} />
      </Filters>
      {list && (
        <Answer of={found}>
          {({ unused = [], nextPageToken, recordedSince }) => (
            <>
              {kind === "UNUSED_KIND_ROLE_BINDING" && (
                <p class="coverage">
                  Use is recorded since <Time at={recordedSince} />. Earlier use is not known.
                </p>
              )}
              {unused.length === 0 ? (
                <Empty
                  title={nextPageToken ? "No results on this page" : "Everything that you may see is used"}
                  what="the roles of others"
                  needs={["role_bindings.list"]}
                  group={group}
                >
                  {nextPageToken && "Open the next page."}
                </Empty>
              ) : (
                <Table
                  label="Not used"
                  rows={unused}
                  id={(u) => u.uid ?? ""}
                  columns={[
                    {
                      name: "What",
                      cell: (u) =>
                        u.identity ? (
                          <>
                            <Name uid={u.identity.uid} />
                            <small class="line">
                              as <bdi>{u.role?.name}</bdi> of <bdi>{u.group?.name}</bdi>
                            </small>
                          </>
                        ) : (
                          <>
                            <bdi>{u.name || u.uid}</bdi>
                            {u.pullToken && <small class="line">a pull token</small>}
                          </>
                        ),
                    },
                    { name: "Last used", cell: (u) => <Time at={u.lastUseTime} /> },
                    {
                      name: "Would do",
                      cell: (u) =>
                        u.suggestedRole ? (
                          <bdi>{u.suggestedRole.name}</bdi>
                        ) : (u.usedCapabilities ?? []).length > 0 ? (
                          <bdi>{u.usedCapabilities?.join(", ")}</bdi>
                        ) : (
                          <span class="hint">none: delete it</span>
                        ),
                    },
                    { name: "Since", cell: (u) => <Time at={u.createTime} />, wide: true },
                    {
                      name: "Change",
                      hidden: true,
                      cell: (u) =>
                        u.change && (
                          <button type="button" class="small" onClick={() => setAsked(u)}>
                            What would change…
                          </button>
                        ),
                    },
                  ]}
                />
              )}
              <Pager next={nextPageToken} one="page" />
              {asked?.change && (
                <Dialog
                  title={asked.suggestedRole ? `With ${asked.suggestedRole.name} in its place` : "Without it"}
                  onClose={() => setAsked(undefined)}
                >
                  <Consequences of={[asked.change]} />
                  <div class="dialog-foot">
                    <button type="button" onClick={() => setAsked(undefined)}>
                      Close
                    </button>
                  </div>
                </Dialog>
              )}
            </>
          )}
        </Answer>
      )}
    </Page>
  );
}
