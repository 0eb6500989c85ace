// Requests for temporary roles: asking, approving, refusing, handing back.
import { useState } from "preact/hooks";
import { type Fault, get, post, type Request, type Schema } from "../../api/api";
import { nameOf, parentOf } from "../../api/names";
import { changed, useMay, useQuery, whoami } from "../../api/query";
import {
  Answer,
  Choice,
  Command,
  Confirm,
  Dialog,
  Empty,
  Field,
  many,
  Name,
  Pager,
  Problem,
  sh,
  Table,
  Time,
  word,
} from "../../ui";
import { param, withParams } from "../../ui/router";

export type AccessRequest = Schema<"holdfast.access.v1.AccessRequest">;
type Rule = Schema<"holdfast.access.v1.AccessRule">;

export const requests = (mine: boolean, size = 50) =>
  get("/access/v1/requests", {
    query: {
      mine: mine || undefined,
      page_size: size,
      page_token: (size === 50 && param("page")) || undefined,
      order_by: "create_time desc",
    },
  });
const rules = get("/access/v1/rules", { query: { page_size: 200 } });

export const isPending = (r: AccessRequest) => r.state === "ACCESS_REQUEST_STATE_PENDING";
const stateOf = (r: AccessRequest) => word(r.state, "ACCESS_REQUEST_STATE").replace(/_/g, " ");

/** span makes a number of seconds readable: 8 hours. */
function span(text?: string) {
  const seconds = parseFloat(text ?? "0");
  for (const [one, name] of [
    [86_400, "day"],
    [3_600, "hour"],
    [60, "minute"],
  ] as const)
    if (seconds >= one && seconds % one === 0) return many(seconds / one, name);
  return many(seconds, "second");
}
const flag = (text?: string) => `${Math.round(parseFloat(text ?? "0") / 60)}m`;

type Act = "approve" | "deny" | "hand-back";
const paths = {
  approve: "/access/v1/approvals/{uid}",
  deny: "/access/v1/denials/{uid}",
  "hand-back": "/access/v1/returns/{uid}",
} as const;

/** Requests shows the requests that the caller may see, or has made. */
export function Requests() {
  const mine = param("mine") !== "";
  const me = useQuery(whoami).data?.subject;
  const may = useMay();
  const [asking, setAsking] = useState(false);
  const [acting, setActing] = useState<{ on: AccessRequest; act: Act }>();
  const actions = (r: AccessRequest) => [
    ...(isPending(r) && r.identityUid !== me && may("role_bindings.create", parentOf(r.uid ?? ""))
      ? (["approve", "deny"] as Act[])
      : []),
    ...((r.state === "ACCESS_REQUEST_STATE_GRANTED" || (isPending(r) && r.identityUid === me)) &&
    (r.identityUid === me || may("role_bindings.delete", parentOf(r.uid ?? "")))
      ? (["hand-back"] as Act[])
      : []),
  ];
  return (
    <>
      <div class="bar-row">
        <p class="chips">
          <a class="chip" href={withParams({ mine: mine ? undefined : "1", page: undefined })}>
            {mine ? "Of everybody" : "Only mine"}
          </a>
        </p>
        <button type="button" class="primary small" onClick={() => setAsking(true)}>
          Ask for a role
        </button>
      </div>
      <Answer of={useQuery(requests(mine))}>
        {({ accessRequests: rows = [], nextPageToken, totalCount }) => (
          <>
            {rows.length === 0 ? (
              <Empty
                title="Nobody has asked for a role"
                command="holdfast access rules create ROLE --on GROUP --max 8h"
              >
                A rule says which role can be asked for on a group and for how long. Others approve, and the role ends
                by itself.
              </Empty>
            ) : (
              <Table
                label="Requests"
                rows={rows}
                id={(r) => r.uid ?? ""}
                columns={[
                  {
                    name: "Who",
                    cell: (r) => (
                      <>
                        <Name uid={r.identityUid} quiet />
                        <small class="line">
                          asked <Time at={r.createTime} />
                        </small>
                      </>
                    ),
                  },
                  {
                    name: "Role",
                    cell: (r) => (
                      <>
                        <Name uid={r.roleUid} quiet />
                        <small class="line">
                          in <Name uid={parentOf(r.uid ?? "")} path quiet />, for {span(r.duration)}
                        </small>
                      </>
                    ),
                  },
                  { name: "Why", cell: (r) => <bdi>{r.reason}</bdi>, wide: true },
                  {
                    name: "State",
                    cell: (r) => (
                      <>
                        {stateOf(r)}
                        {isPending(r) && (r.approvers ?? 0) > 1 && (
                          <small class="line">
                            {r.approvals?.length ?? 0} of {r.approvers} approvals
                          </small>
                        )}
                        {r.expireTime && (
                          <small class="line">
                            until <Time at={r.expireTime} />
                          </small>
                        )}
                      </>
                    ),
                  },
                  ...(rows.some((r) => actions(r).length > 0)
                    ? [
                        {
                          name: "Decide",
                          hidden: true,
                          cell: (r: AccessRequest) => (
                            <span class="actions">
                              {actions(r).map((act) => (
                                <button key={act} type="button" class="small" onClick={() => setActing({ on: r, act })}>
                                  {labels[act]}
                                </button>
                              ))}
                            </span>
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="request" />
          </>
        )}
      </Answer>
      {asking && <Ask onClose={() => setAsking(false)} />}
      {acting && <Decide {...acting} onClose={() => setActing(undefined)} />}
    </>
  );
}

const labels: Record<Act, string> = { approve: "Approve", deny: "Deny", "hand-back": "Hand back" };

const done: Record<Act, string> = { approve: "Approved", deny: "Denied", "hand-back": "Handed back" };

function Decide({ on, act, onClose }: { on: AccessRequest; act: Act; onClose: () => void }) {
  const uid = on.uid ?? "";
  const all: Request<unknown>[] = [true, undefined].map((validate_only) =>
    post(paths[act], { path: { uid }, body: { validateOnly: validate_only } } as never),
  );
  const group = <Name uid={parentOf(uid)} path quiet />;
  return (
    <Confirm
      title={`${labels[act]}?`}
      label={labels[act]}
      safe={act === "approve"}
      done={done[act]}
      keep="Not now"
      command={`holdfast access requests ${act} ${uid}`}
      requests={all}
      onClose={onClose}
    >
      {act === "approve" ? (
        <>
          <Name uid={on.identityUid} quiet /> will be{" "}
          <strong>
            <Name uid={on.roleUid} quiet />
          </strong>{" "}
          in {group} and in everything below it for {span(on.duration)}, from the last approval on.
        </>
      ) : act === "deny" ? (
        <>
          <Name uid={on.identityUid} quiet /> is not given the role, and can ask again.
        </>
      ) : isPending(on) ? (
        <>The request is withdrawn.</>
      ) : (
        <>The role in {group} ends now.</>
      )}
    </Confirm>
  );
}

/** Ask is the form that requests a role which a rule allows. */
function Ask({ onClose }: { onClose: () => void }) {
  const found = useQuery(rules);
  const all = found.data?.accessRules ?? [];
  const [uid, setUID] = useState("");
  const [hours, setHours] = useState("");
  const [reason, setReason] = useState("");
  const [glass, setGlass] = useState(false);
  const [error, setError] = useState<Fault>();
  const rule = all.find((r) => r.uid === uid) ?? all[0];
  const most = parseFloat(rule?.maxDuration ?? "0") / 3_600;
  const group = parentOf(rule?.uid ?? ""),
    seconds = `${Math.round((parseFloat(hours) || Math.min(most, 1)) * 3_600)}s`;
  const path = nameOf(group).value?.path ?? group,
    role = nameOf(rule?.roleUid ?? "").value?.path ?? rule?.roleUid ?? "";
  const label = (r: Rule) => {
    const parent = parentOf(r.uid ?? "");
    return `${nameOf(r.roleUid ?? "").value?.name ?? r.roleUid} in ${nameOf(parent).value?.path ?? parent}`;
  };
  const command = [
    `holdfast access request ${sh(role)} --on ${sh(path)} --for ${flag(seconds)}`,
    reason && `--reason ${sh(reason)}`,
    glass && "--break-glass",
  ];
  const send = async () => {
    setError(undefined);
    try {
      await post("/access/v1/requests/{uid}", {
        path: { uid: group },
        body: { roleUid: rule?.roleUid, duration: seconds, reason, breakGlass: glass || undefined },
      }).send();
      await changed();
      onClose();
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  return (
    <Dialog title="Ask for a role" onClose={onClose}>
      {found.data && all.length === 0 ? (
        <Empty title="No role can be asked for">No group that you may see has a rule for it.</Empty>
      ) : (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            void send();
          }}
        >
          <Choice
            name="rule"
            label="Role"
            value={rule?.uid ?? ""}
            onChange={setUID}
            options={all.map((r): [string, string] => [r.uid ?? "", label(r)])}
          />
          <Field
            name="hours"
            label="For how many hours"
            value={hours}
            onInput={setHours}
            placeholder={String(Math.min(most, 1))}
            hint={`At most ${span(rule?.maxDuration)}.`}
          />
          <Field name="reason" label="Why" value={reason} onInput={setReason} required={rule?.reasonRequired} />
          {rule?.breakGlass && (
            <label class="check">
              <input type="checkbox" checked={glass} onChange={(e) => setGlass(e.currentTarget.checked)} /> Take it at
              once. Everybody who watches the group is told.
            </label>
          )}
          <Command text={command.filter(Boolean).join(" ")} />
          {error && <Problem error={error} />}
          <div class="dialog-foot">
            <button type="button" onClick={onClose}>
              Cancel
            </button>
            <button type="submit" class="primary" disabled={!rule}>
              {glass ? "Take the role" : "Ask"}
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}
