import { useEffect, useState } from "preact/hooks";
import { get, type Schema } from "../../api/api";
import { nameOf, resolve } from "../../api/names";
import { useQuery, whoami } from "../../api/query";
import { rolesHere } from "../../api/roles";
import {
  Answer,
  AsCommand,
  Choice,
  Empty,
  End,
  Field,
  Filters,
  Name,
  Page,
  Pager,
  Problem,
  Section,
  sh,
  Table,
  Time,
  useScope,
} from "../../ui";
import { go, here, param, withParams } from "../../ui/router";
import { Changed, instant, Questions, Unused } from "./past";
import { Requests, requests } from "./requests";

type Grant = Schema<"holdfast.access.v1.Grant">;

export default function Access() {
  const place = param("place"),
    identity = param("identity"),
    capability = param("capability") || "groups.list";
  if (param("show") === "requests") return <Asked />;
  if (param("show") === "diff") return <Changed />;
  if (param("show") === "unused") return <Unused />;
  if (param("show") === "reach") return <Reach identity={identity} capability={param("capability")} />;
  const capabilities = useQuery(get("/access/v1/capabilities", {}));
  const scope = useScope();
  const at = place || scope.group;
  const then = instant("at");
  const path = (uid: string) => (uid ? (nameOf(uid).value?.path ?? uid) : "");
  return (
    <Page
      title="Access"
      lead="See who has access, and why."
      actions={
        at && (
          <AsCommand
            command={
              (identity
                ? `holdfast iam can ${sh(path(identity))} ${capability} ${sh(path(at))}`
                : `holdfast iam who-can ${capability} ${sh(path(at))}`) + (then ? ` --as-of ${then}` : "")
            }
            request={identity ? check(identity, capability, at) : grants(capability, at)}
          />
        )
      }
    >
      <Questions now="" />
      <Question
        answered={{ place: at, identity }}
        place={path(at)}
        identity={path(identity)}
        capability={capability}
        capabilities={capabilities.data?.capabilities?.map((c) => c.name ?? "") ?? []}
      />
      {at === "" ? (
        scope.nothing && (
          <Empty title="Name a group" what="access" needs={["groups.list"]}>
            Everybody who holds a role on it, or above it, is listed here.
          </Empty>
        )
      ) : identity ? (
        <Why identity={identity} capability={capability} place={at} />
      ) : (
        <Who capability={capability} place={at} />
      )}
    </Page>
  );
}

/** Asked shows the requests for roles. */
function Asked() {
  const mine = param("mine") !== "";
  return (
    <Page
      title="Access"
      lead="Roles for a time: who asks, and who decides."
      actions={<AsCommand command={`holdfast access requests list${mine ? " --mine" : ""}`} request={requests(mine)} />}
    >
      <Questions now="requests" />
      <Requests />
    </Page>
  );
}
const bindings = (identity: string) =>
  get("/iam/v2beta1/roleBindings", { query: { identity, page_size: 200, page_token: param("page") || undefined } });

/** Reach shows the groups on which an identity holds a capability, each with everything below it. */
function Reach({ identity, capability }: { identity: string; capability: string }) {
  const me = useQuery(whoami).data?.subject ?? "";
  const of = identity || me;
  const all = useQuery(get("/access/v1/capabilities", {})).data?.capabilities?.map((c) => c.name ?? "") ?? [];
  const path = nameOf(of).value?.path ?? of;
  const roles = useQuery(rolesHere).data?.roles;
  const named = useQuery(get("/access/v1/capabilities", {})).data?.capabilities?.find(
    (c) => c.name === capability,
  )?.capability;
  const has = (role?: string) => {
    const found = roles?.find((r) => r.uid === role);
    return !capability || !found || (found.capabilities ?? []).some((c) => c === named);
  };
  return (
    <Page
      title="Access"
      lead="See who has access, and why."
      actions={
        of && (
          <AsCommand
            command={`holdfast iam role-bindings list --identity ${of.includes("/") ? sh(path) : of}`}
            request={bindings(of)}
          />
        )
      }
    >
      <Questions now="reach" />
      <Filters label="Whose reach" names={{ identity: ["identities"] }}>
        <Field
          key={path}
          name="identity"
          label="Identity"
          value={of.includes("/") ? path : of === me ? "me" : of}
          placeholder="me, or acme/platform/ci"
          first
        />
        <Choice
          name="capability"
          label="That gives"
          options={[["", "any capability"], ...all.map((c): [string, string] => [c, c])]}
        />
      </Filters>
      {of && (
        <Section title="Where, and everything below it">
          <Answer of={useQuery(bindings(of))}>
            {({ roleBindings = [], nextPageToken, totalCount }) => {
              const rows = roleBindings.filter((b) => has(b.role?.uid));
              return (
                <>
                  <p class="coverage">Roles on groups whose role bindings you may list. Other grants are not shown.</p>
                  {rows.length === 0 ? (
                    <Empty title="No role that you may see" what="roles" needs={["role_bindings.list"]}>
                      {capability
                        ? `No role of theirs gives ${capability}.`
                        : "Roles on groups whose role bindings you may not list are not shown."}
                    </Empty>
                  ) : (
                    <Table
                      label="Reach"
                      rows={rows}
                      id={(b) => b.uid ?? ""}
                      columns={[
                        { name: "Group", roomy: true, cell: (b) => <Name uid={b.group?.uid} path /> },
                        {
                          name: "As",
                          cell: (b) => (
                            <>
                              <bdi>{b.role?.name}</bdi>
                              <small class="line">
                                <bdi>{b.role?.description}</bdi>
                              </small>
                            </>
                          ),
                        },
                        { name: "Since", cell: (b) => <Time at={b.createTime} />, wide: true },
                        { name: "Until", cell: (b) => <End at={b.expireTime} /> },
                        ...(capability
                          ? [
                              {
                                name: "Why",
                                cell: (b: (typeof rows)[0]) => (
                                  <a href={withParams({ show: undefined, identity: of, place: b.group?.uid })}>why</a>
                                ),
                                wide: true,
                              },
                            ]
                          : []),
                      ]}
                    />
                  )}
                  <Pager next={nextPageToken} total={capability ? undefined : totalCount} one="role" />
                </>
              );
            }}
          </Answer>
        </Section>
      )}
    </Page>
  );
}

interface Asking {
  place: string;
  identity: string;
  capability: string;
  at: string;
}

/** Question is the form. It keeps what a person enters until the answer to it is shown. */
function Question({
  answered,
  place,
  identity,
  capability,
  capabilities,
}: {
  answered: { place: string; identity: string }; // uids
  place: string;
  identity: string;
  capability: string;
  capabilities: string[];
}) {
  const [error, setError] = useState<Error>();
  const [entered, setEntered] = useState<Partial<Asking>>({});
  const values: Asking = { place, identity, capability, at: param("at"), ...entered };
  const search = here.value.search;
  useEffect(() => setEntered({}), [search]); // the address has the answered question
  const enter = (field: keyof Asking) => (text: string) => setEntered((all) => ({ ...all, [field]: text }));
  const submit = async (asked: Asking) => {
    try {
      setError(undefined);
      const address = withParams({
        place: asked.place === place ? answered.place : await resolve(asked.place.trim(), "groups", "repos"),
        identity: asked.identity === identity ? answered.identity : await resolve(asked.identity.trim(), "identities"),
        capability: asked.capability,
        at: asked.at,
      });
      if (new URL(address, location.href).search === search) setEntered({});
      else go(address);
    } catch (failed) {
      setError(failed as Error);
    }
  };
  return (
    <form
      class="filters"
      role="search"
      aria-label="Question"
      onSubmit={(e) => {
        e.preventDefault();
        void submit(values);
      }}
    >
      <Field
        name="place"
        label="Group or repo"
        value={values.place}
        onInput={enter("place")}
        placeholder="acme/platform"
        first
        required
      />
      <Choice
        name="capability"
        label="Capability"
        value={values.capability}
        options={(capabilities.length ? capabilities : [capability]).map((c) => [c, c])}
        onChange={(c) => {
          enter("capability")(c);
          if (values.place) void submit({ ...values, capability: c });
        }}
      />
      <Field
        name="identity"
        label="Identity, or everybody"
        value={values.identity}
        onInput={enter("identity")}
        placeholder="me, ann@example.com or acme/platform/ci"
      />
      <Field name="at" label="As of, or now" type="datetime-local" value={values.at} onInput={enter("at")} />
      <button type="submit" class="small">
        Answer
      </button>
      {error && <Problem error={error} />}
    </form>
  );
}

const grants = (capability: string, place: string) =>
  get("/access/v1/grants", {
    query: {
      capability,
      place_uid: place,
      as_of: instant("at"),
      page_size: 50,
      page_token: param("page") || undefined,
    },
  });
const check = (identity: string, capability: string, place: string) =>
  get("/access/v1/check", {
    query: {
      identity_uid: identity,
      capability,
      place_uid: place,
      as_of: instant("at"),
      explain: instant("at") ? undefined : true,
    },
  });

const incomplete = <p class="coverage">There are groups above that you may not list. Their grants are not shown.</p>;

function Who({ capability, place }: { capability: string; place: string }) {
  return (
    <Section title={`Who ${instant("at") ? "could" : "can"} ${capability} in ${nameOf(place).value?.path ?? place}`}>
      <Answer of={useQuery(grants(capability, place))}>
        {(d) => (
          <>
            {d.incomplete && incomplete}
            {(d.grants ?? []).length === 0 ? (
              <Empty
                title="Nobody that you may see"
                what="the roles of others"
                needs={["role_bindings.list"]}
                group={place}
              >
                Grant a role that has {capability} on this group or on one above it.
              </Empty>
            ) : (
              <Table
                label="Grants"
                rows={d.grants ?? []}
                id={(g) => g.bindingUid || `${g.team?.mappingUid} ${g.team?.teamUid} ${g.identity?.uid}`}
                columns={[
                  {
                    name: "Identity",
                    cell: (g) => (
                      <>
                        <Name uid={g.identity?.uid} />
                        <small class="line">
                          <bdi>{g.identity?.email || g.identity?.subject}</bdi>
                        </small>
                        {g.deactivated && <small class="line">deactivated by the directory: no effect</small>}
                      </>
                    ),
                  },
                  { name: "Role", cell: (g) => <bdi>{g.role?.name}</bdi> },
                  { name: "From", cell: (g) => <From grant={g} place={place} /> },
                  {
                    name: "Through",
                    cell: (g) => <bdi>{g.team ? `team ${g.team.teamName}` : "binding"}</bdi>,
                    wide: true,
                  },
                  { name: "Since", cell: (g) => <Time at={g.createTime} />, wide: true },
                  { name: "Until", cell: (g) => <End at={g.expireTime} /> },
                  { name: "Why", cell: (g) => <a href={withParams({ identity: g.identity?.uid })}>why</a>, wide: true },
                ]}
              />
            )}
            <Pager next={d.nextPageToken} total={d.totalCount} one="grant" />
          </>
        )}
      </Answer>
    </Section>
  );
}

const From = ({ grant, place }: { grant: Grant; place: string }) =>
  grant.group?.uid === place ? (
    <span class="hint">here</span>
  ) : (
    <span class="inherited">
      inherited from <Name uid={grant.group?.uid} quiet />
    </span>
  );

/** why explains why an identity lacks a capability. */
function why(lack: Schema<"holdfast.access.v1.Lack"> | undefined, capability: string) {
  const role = (
      <strong>
        <bdi>{lack?.nearest?.role?.name}</bdi>
      </strong>
    ),
    group = <Name uid={lack?.nearest?.group?.uid} path />;
  switch (lack?.kind) {
    case "LACK_KIND_ROLE":
      return <>This identity holds no role on this group or above it.</>;
    case "LACK_KIND_CAPABILITY":
      return (
        <>
          This identity is {role} of {group}, which does not have <code>{capability}</code>.
        </>
      );
    case "LACK_KIND_START":
      return (
        <>
          This identity will be {role} of {group}, which has <code>{capability}</code>, but is not yet.
        </>
      );
    case "LACK_KIND_TIME":
      return (
        <>
          This identity was {role} of {group}, which has <code>{capability}</code>, and it ended{" "}
          <Time at={lack.nearest?.expireTime} />.
        </>
      );
    case "LACK_KIND_DEACTIVATED":
      return (
        <>The company directory has deactivated this identity. Its roles have no effect until it is activated again.</>
      );
  }
  return (
    <>
      No role that this identity held on this group, or above it, had <code>{capability}</code>.
    </>
  );
}

function Why({ identity, capability, place }: { identity: string; capability: string; place: string }) {
  const may = useQuery(grants(capability, place)).data?.grants ?? [];
  const who = nameOf(identity).value;
  const where = nameOf(place).value?.path ?? place;
  const title = `${who?.displayName || who?.path || "This identity"}: ${capability} in ${where}`;
  return (
    <>
      <h2 class="answer">
        <bdi>{title}</bdi>
      </h2>
      <Answer of={useQuery(check(identity, capability, place))}>
        {(d) => (
          <>
            <p class={d.allowed ? "verdict good" : "verdict bad"} role="status">
              <strong>{d.allowed ? "Yes" : "No"}</strong>: <Name uid={identity} quiet />{" "}
              {instant("at") ? (d.allowed ? "could" : "could not") : d.allowed ? "can" : "cannot"}{" "}
              <code>{capability}</code> in <Name uid={place} path quiet />
              {instant("at") && (
                <>
                  {" "}
                  <Time at={instant("at")} />
                </>
              )}
              .
            </p>
            {d.incomplete && incomplete}
            {(d.grants ?? []).map((g) => (
              <Section key={g.bindingUid} title={`Through ${g.role?.name}`}>
                <ol class="why">
                  <li>
                    <span>identity</span>
                    <div>
                      <Name uid={g.identity?.uid} />
                      <small>
                        <bdi>{g.identity?.email || g.identity?.subject}</bdi>
                      </small>
                    </div>
                  </li>
                  {g.identity?.issuer && (
                    <li>
                      <span>proved by</span>
                      <div>
                        <bdi>{g.identity.issuer}</bdi>
                        <small>
                          <bdi>{g.identity.subject}</bdi>
                        </small>
                      </div>
                    </li>
                  )}
                  <li>
                    <span>binding</span>
                    <div>
                      <Time at={g.createTime} /> on <Name uid={g.group?.uid} quiet />
                      <small>
                        until <End at={g.expireTime} />
                      </small>
                    </div>
                  </li>
                  <li>
                    <span>role</span>
                    <div>
                      <bdi>{g.role?.name}</bdi>
                      <small>
                        <bdi>{g.role?.description}</bdi>
                      </small>
                    </div>
                  </li>
                  <li>
                    <span>group</span>
                    <div>
                      <Name uid={place} path />{" "}
                      {g.group?.uid !== place && (
                        <small>
                          below <Name uid={g.group?.uid} quiet />
                        </small>
                      )}
                    </div>
                  </li>
                </ol>
              </Section>
            ))}
            {!d.allowed && (
              <Section title="Why not, and how to get it">
                <p>{why(d.lack, capability)}</p>
                {d.lack?.role && (
                  <p>
                    The role{" "}
                    <strong>
                      <bdi>{d.lack.role.name}</bdi>
                    </strong>{" "}
                    would do.{" "}
                    {(d.lack.givers ?? []).length > 0 && (
                      <>
                        It can be granted by{" "}
                        {d.lack.givers?.map((g, i) => (
                          <span key={g.identity?.uid}>
                            {i > 0 && ", "}
                            <Name uid={g.identity?.uid} />
                          </span>
                        ))}
                        .
                      </>
                    )}
                  </p>
                )}
                {may.length > 0 && (
                  <>
                    <p class="hint">These have it here:</p>
                    <ul class="rows">
                      {may.slice(0, 5).map((g) => (
                        <li key={g.bindingUid}>
                          <Name uid={g.identity?.uid} />
                          <small>
                            as {g.role?.name} of <Name uid={g.group?.uid} quiet />
                          </small>
                        </li>
                      ))}
                    </ul>
                  </>
                )}
              </Section>
            )}
            <p>
              <a href={withParams({ identity: undefined })}>Who can {capability} there?</a>
            </p>
          </>
        )}
      </Answer>
    </>
  );
}
