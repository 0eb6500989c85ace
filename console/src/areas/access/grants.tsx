// The roles on a group, and forms that change one or several of them.
import { useState } from "preact/hooks";
import { del, type Fault, get, patch, post, type Schema } from "../../api/api";
import { identify, nameOf, parentOf, pathOf, suggestions } from "../../api/names";
import { changed, useMay, useQuery } from "../../api/query";
import {
  Answer,
  Choice,
  Command,
  Confirm,
  count,
  Dialog,
  Empty,
  Field,
  many,
  Name,
  Pager,
  Picker,
  Problem,
  Section,
  sh,
  Table,
  Time,
  toast,
  useSelection,
  word,
} from "../../ui";
import { base, param } from "../../ui/router";
import { Consequences } from "./consequences";

type Binding = Schema<"holdfast.iam.v2beta1.RoleBinding">;

export const bindings = (group: string, page?: string) =>
  get("/iam/v2beta1/roleBindings", { query: { group, page_size: 50, page_token: page, order_by: "create_time" } });

/** Grants shows the roles on a group and on the groups above it. */
export function Grants({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const [granting, setGranting] = useState(false);
  const [removing, setRemoving] = useState<Binding[]>();
  const [ending, setEnding] = useState<Binding[]>();
  const found = useQuery(bindings(uid, param("page") || undefined));
  const { chosen, column, clear } = useSelection(
    found.data?.roleBindings ?? [],
    (b) => `${b.role?.name} of ${title(b.identity)}`,
  );
  const canRemove = may("role_bindings.delete", uid),
    canChange = may("role_bindings.update", uid);
  return (
    <>
      <Section
        title="Roles on this group"
        actions={
          <>
            {canChange && chosen.length > 0 && (
              <button type="button" class="small" onClick={() => setEnding(chosen)}>
                Change the end of {chosen.length}…
              </button>
            )}
            {canRemove && chosen.length > 0 && (
              <button type="button" class="danger small" onClick={() => setRemoving(chosen)}>
                Remove {chosen.length}…
              </button>
            )}
            {may("role_bindings.create", uid) && (
              <button type="button" class="primary small" onClick={() => setGranting(true)}>
                Grant a role
              </button>
            )}
          </>
        }
      >
        <Answer of={found}>
          {({ roleBindings = [], nextPageToken, totalCount }) => (
            <>
              {roleBindings.length === 0 ? (
                <Empty
                  title="No role is granted here"
                  what="the roles of others"
                  needs={["role_bindings.list"]}
                  group={uid}
                >
                  Roles on the groups above apply here, too.
                </Empty>
              ) : (
                <Table
                  label="Roles on this group"
                  rows={roleBindings}
                  id={(b) => b.uid ?? ""}
                  columns={[
                    ...(canRemove || canChange ? [column] : []),
                    ...columns,
                    ...(canRemove
                      ? [
                          {
                            name: "Remove",
                            hidden: true,
                            cell: (b: Binding) => (
                              <button
                                type="button"
                                class="danger small"
                                aria-label={`Remove ${b.role?.name} of ${b.identity?.name}`}
                                onClick={() => setRemoving([b])}
                              >
                                Remove
                              </button>
                            ),
                          },
                        ]
                      : []),
                  ]}
                />
              )}
              <Pager next={nextPageToken} total={totalCount} one="binding" />
            </>
          )}
        </Answer>
      </Section>
      {pathOf(parentOf(uid))
        .filter(Boolean)
        .reverse()
        .map((above) => (
          <Inherited key={above} from={above} />
        ))}
      {granting && <Grant uid={uid} path={path} onClose={() => setGranting(false)} />}
      {removing && (
        <Remove
          all={removing}
          onClose={(done) => {
            setRemoving(undefined);
            if (done) clear();
          }}
        />
      )}
      {ending && (
        <End
          all={ending}
          onClose={(done) => {
            setEnding(undefined);
            if (done) clear();
          }}
        />
      )}
    </>
  );
}

const columns = [
  {
    name: "Who",
    cell: (b: Binding) => (
      <>
        <Name uid={b.identity?.uid} />
        <small class="line">
          <bdi>{b.identity?.email || b.identity?.subject}</bdi>
        </small>
      </>
    ),
  },
  { name: "Kind", cell: (b: Binding) => (b.identity?.uid?.includes("/") ? "workload" : "person"), wide: true },
  {
    name: "Role",
    cell: (b: Binding) => (
      <>
        <bdi>{b.role?.name}</bdi>
        <small class="line wide">
          <bdi>{b.role?.description}</bdi>
        </small>
      </>
    ),
  },
  { name: "Since", cell: (b: Binding) => <Time at={b.createTime} />, wide: true },
  { name: "Until", cell: (b: Binding) => <Until of={b} /> },
];

/** Until shows when a binding ends. */
function Until({ of }: { of: Binding }) {
  const state = word(of.state, "ROLE_BINDING_STATE");
  return (
    <>
      {state === "over" ? (
        <span class="hint">
          over, <Time at={of.expireTime} />
        </span>
      ) : of.expireTime ? (
        <Time at={of.expireTime} />
      ) : (
        <span class="hint">no end</span>
      )}
      {state === "deactivated" && <small class="line">deactivated by the directory: no effect</small>}
      {state === "upcoming" && (
        <small class="line">
          from <Time at={of.startTime} />
        </small>
      )}
      {of.reason && (
        <small class="line">
          <bdi>{of.reason}</bdi>
        </small>
      )}
    </>
  );
}

const spans: [string, string][] = [
  ["", "without an end"],
  ["1", "1 hour"],
  ["8", "8 hours"],
  ["24", "1 day"],
  ["168", "7 days"],
  ["720", "30 days"],
];

const until = (hours: string) => (hours ? new Date(Date.now() + Number(hours) * 3_600_000).toISOString() : undefined);

/** Inherited shows the roles on a group above, which also apply here. */
function Inherited({ from }: { from: string }) {
  const { data } = useQuery(bindings(from));
  if (!data?.roleBindings?.length) return null;
  const name = nameOf(from).value?.name ?? "a group above";
  return (
    <Section
      title={`Inherited from ${name}`}
      actions={
        <a href={`${base}/groups/${from}?tab=people`}>
          Open <bdi>{name}</bdi>
        </a>
      }
    >
      <Table label={`Inherited from ${name}`} rows={data.roleBindings} id={(b) => b.uid ?? ""} columns={columns} />
      {data.nextPageToken && (
        <p class="hint">
          The first {count(data.roleBindings.length)} of {count(data.totalCount)} are shown.
        </p>
      )}
    </Section>
  );
}

/** Grant is the form that grants a role. The server checks the grants before it writes them. */
function Grant({ uid, path, onClose }: { uid: string; path: string; onClose: () => void }) {
  const root = uid.split("/")[0] ?? uid;
  const known = useQuery(get("/iam/v2beta1/roleBindings", { query: { "uidp.descendants_of": root, page_size: 200 } }));
  const pipelines = useQuery(
    get("/iam/v2beta1/identities", { query: { "uidp.descendants_of": root, page_size: 200, order_by: "name" } }),
  );
  const choice = useQuery(get("/iam/v2beta1/roles", { query: { page_size: 200, order_by: "name" } }));
  const [who, setWho] = useState(""),
    [also, setAlso] = useState<string[]>([]),
    [role, setRole] = useState("");
  const [hours, setHours] = useState(""),
    [reason, setReason] = useState("");
  const [checked, setChecked] = useState<Binding[]>([]);
  const [error, setError] = useState<Fault>();
  const people = suggestions([
    ...(known.data?.roleBindings ?? []).map((b) => [title(b.identity), b.identity?.uid ?? ""] as const),
    ...(pipelines.data?.identities ?? []).map(
      (i) => [nameOf(i.uid ?? "").value?.path ?? i.name ?? "", i.uid ?? ""] as const,
    ),
  ]);
  const chosen =
    choice.data?.roles?.find((r) => r.uid === role) ??
    choice.data?.roles?.find((r) => r.name === "viewer") ??
    choice.data?.roles?.[0];

  const complete = Boolean(known.data && !known.data.nextPageToken && pipelines.data && !pipelines.data.nextPageToken);
  const send = async (validate_only: boolean) => {
    setError(undefined);
    try {
      const all: Binding[] = [];
      for (const text of new Set([...also, who.trim()].filter(Boolean))) {
        const body = {
          identityUid: await identify(text, people, complete),
          roleUid: chosen?.uid,
          expireTime: until(hours),
          reason: reason || undefined,
        };
        all.push(
          await post("/iam/v2beta1/roleBindings/{uid}", { path: { uid }, query: { validate_only }, body }).send(),
        );
      }
      if (validate_only) return setChecked(all);
      await changed();
      toast(all.length === 1 ? "The role was granted" : `${all.length} roles were granted`);
      onClose();
    } catch (failed) {
      setChecked([]);
      setError(failed as Fault);
      if (!validate_only) void changed(); // some may have been granted
    }
  };
  const change =
    <T,>(set: (v: T) => void) =>
    (v: T) => {
      setChecked([]);
      set(v);
    };
  const ready = checked.length > 0;
  return (
    <Dialog title="Grant a role" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send(!ready);
        }}
      >
        {also.length > 0 && (
          <ul class="chips" aria-label="Who">
            {also.map((text) => (
              <li key={text}>
                <button
                  type="button"
                  class="chip"
                  title="Leave out"
                  onClick={() => change(setAlso)(also.filter((other) => other !== text))}
                >
                  <bdi>{text}</bdi> ✕
                </button>
              </li>
            ))}
          </ul>
        )}
        <Picker
          name="who"
          label="Who"
          value={who}
          onInput={change(setWho)}
          others={[...people.keys()]}
          placeholder="ann@example.com, or acme/platform/ci"
          required={also.length === 0}
          hint="For a new person, create an invite instead: it grants the role."
        />
        {who.trim() && (
          <button
            type="button"
            class="small"
            onClick={() => {
              change(setAlso)([...new Set([...also, who.trim()])]);
              setWho("");
            }}
          >
            And somebody else
          </button>
        )}
        <Choice
          name="role"
          label="Role"
          value={chosen?.uid ?? ""}
          onChange={change(setRole)}
          options={(choice.data?.roles ?? []).map((r) => [r.uid ?? "", r.name ?? ""])}
        />
        {chosen && (
          <p class="hint">
            <bdi>{chosen.description}</bdi> · {many(chosen.capabilities?.length, "capability", "capabilities")}
          </p>
        )}
        <Choice name="for" label="For" value={hours} onChange={change(setHours)} options={spans} />
        <Field
          name="reason"
          label="Why"
          value={reason}
          onInput={change(setReason)}
          hint="Shown to people who review the role later."
        />
        {ready && (
          <p class="notice" role="status">
            {checked.map((b, i) => (
              <span key={b.identity?.uid}>
                {i > 0 && ", "}
                <Name uid={b.identity?.uid} quiet />
              </span>
            ))}{" "}
            will be{" "}
            <strong>
              <bdi>{chosen?.name}</bdi>
            </strong>{" "}
            in <Name uid={uid} path quiet /> and in everything below it
            {checked[0]?.expireTime && (
              <>
                , until <Time at={checked[0].expireTime} />
              </>
            )}
            .
          </p>
        )}
        {ready && (
          <Command
            text={checked
              .map((b) =>
                [
                  `holdfast iam role-bindings create --parent ${sh(path)}`,
                  `--identity ${sh(b.identity?.uid ?? "")} --role ${sh(chosen?.name ?? "")}`,
                  hours && `--for ${hours}h`,
                  reason && `--reason ${sh(reason)}`,
                ]
                  .filter(Boolean)
                  .join(" "),
              )
              .join("\n")}
          />
        )}
        {error && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            {ready ? "Grant" : "Check"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const title = (i: Schema<"holdfast.iam.v2beta1.RoleBindingIdentity"> | undefined) =>
  i?.email || i?.displayName || i?.name || "";

/** twice returns the requests for several changes: all are checked before the first is made. */
const twice = <T,>(all: Binding[], request: (uid: string, validate_only: true | undefined) => T) =>
  ([true, undefined] as const).flatMap((validate_only) => all.map((b) => request(b.uid ?? "", validate_only)));

/** Remove deletes roles, after it has shown who holds them. */
function Remove({ all, onClose }: { all: Binding[]; onClose: (done?: boolean) => void }) {
  return (
    <Confirm
      title={all.length === 1 ? "Remove a role?" : `Remove ${all.length} roles?`}
      done={all.length === 1 ? "The role was removed" : `${all.length} roles were removed`}
      label="Remove"
      keep={all.length === 1 ? "Keep it" : "Keep them"}
      onClose={onClose}
      command={`holdfast iam role-bindings delete ${all.map((b) => b.uid).join(" ")} --yes`}
      requests={twice(all, (uid, validate_only) =>
        del("/iam/v2beta1/roleBindings/{uid}", { path: { uid }, query: { validate_only } }),
      )}
    >
      <Those all={all} /> <Consequences of={all.map((b) => ({ deleteRoleBinding: { uid: b.uid ?? "" } }))} /> This
      counts for <Name uid={all[0]?.group?.uid} path quiet /> and for everything below it. Roles that are granted
      elsewhere stay.
    </Confirm>
  );
}

/** Those lists the identities that a change is about. */
const Those = ({ all }: { all: Binding[] }) => (
  <ul class="rows scroll" tabIndex={0}>
    {all.map((b) => (
      <li key={b.uid}>
        <bdi>{title(b.identity)}</bdi>{" "}
        <strong>
          <bdi>{b.role?.name}</bdi>
        </strong>
      </li>
    ))}
  </ul>
);

/** End changes the end of roles. */
function End({ all, onClose }: { all: Binding[]; onClose: (done?: boolean) => void }) {
  const [hours, setHours] = useState("24");
  const expireTime = until(hours);
  return (
    <Confirm
      title={`Change the end of ${many(all.length, "role")}?`}
      safe
      done={`The end of ${many(all.length, "role")} was changed`}
      label="Change"
      onClose={onClose}
      command={all
        .map((b) => `holdfast iam role-bindings update ${b.uid} ${hours ? `--for ${hours}h` : "--until ''"}`)
        .join("\n")}
      requests={twice(all, (uid, validate_only) =>
        patch("/iam/v2beta1/roleBindings/{uid}", {
          path: { uid },
          query: { validate_only, updateMask: "expire_time" },
          body: { expireTime },
        }),
      )}
    >
      <Those all={all} />
      <Choice name="end" label="From now on for" value={hours} onChange={setHours} options={spans} />
    </Confirm>
  );
}
