import { useState } from "preact/hooks";
import { del, get, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { useMayAnywhere, useQuery, whoami } from "../../api/query";
import {
  Answer,
  AsCommand,
  Confirm,
  Copy,
  Empty,
  End,
  eventName,
  Name,
  Page,
  Pager,
  Section,
  Table,
  Time,
} from "../../ui";
import { base, param } from "../../ui/router";

type Session = Schema<"holdfast.signin.v1.Session">;

export const held = (identity: string) =>
  get("/iam/v2beta1/roleBindings", { query: { identity, page_size: 50, page_token: param("page") || undefined } });
const did = (identity_uid: string) => get("/audit/v1/entries", { query: { identity_uid, page_size: 20 } });

export default function Person({ uid }: { uid: string }) {
  const name = nameOf(uid).value;
  const me = useQuery(whoami).data;
  const bindings = useQuery(held(uid));
  const identity = bindings.data?.roleBindings?.[0]?.identity;
  const title = name?.displayName || name?.name || identity?.displayName || identity?.name;
  const manages = useMayAnywhere("identity.update");
  return (
    <Page
      thing={!!title}
      title={title || "A person"}
      mark={<Copy text={uid} what="the uid of this person" />}
      lead={identity?.email || "A person"}
      actions={
        <>
          <a class="button small" href={`${base}/access?identity=${uid}`}>
            Can they…
          </a>
          <AsCommand command={`holdfast iam role-bindings list --identity ${uid}`} request={held(uid)} />
        </>
      }
    >
      <Held of={uid} />
      {(manages || me?.subject === uid) && <Sessions of={uid} />}
      <Did of={uid} />
    </Page>
  );
}

/** Held shows the roles of an identity, in the groups whose bindings the caller may list. */
export function Held({ of, who = "they" }: { of: string; who?: "they" | "it" }) {
  return (
    <Section title={`What ${who} may do`}>
      <Answer of={useQuery(held(of))}>
        {({ roleBindings = [], nextPageToken, totalCount }) => (
          <>
            {roleBindings.length === 0 ? (
              <Empty title="No role that you may see">A role on a group applies to everything below it.</Empty>
            ) : (
              <Table
                label="Roles"
                rows={roleBindings}
                id={(b) => b.uid ?? ""}
                columns={[
                  {
                    name: "Role",
                    cell: (b) => (
                      <>
                        <bdi>{b.role?.name}</bdi>
                        <small class="line">
                          <bdi>{b.role?.description}</bdi>
                        </small>
                      </>
                    ),
                  },
                  { name: "On", cell: (b) => <Name uid={b.group?.uid} path /> },
                  { name: "Since", cell: (b) => <Time at={b.createTime} />, wide: true },
                  { name: "Until", cell: (b) => <End at={b.expireTime} /> },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="role" />
          </>
        )}
      </Answer>
    </Section>
  );
}

/** Did shows the last changes by an identity that the caller may see. */
export function Did({ of, who = "they" }: { of: string; who?: "they" | "it" }) {
  return (
    <Section title={`What ${who} did`} actions={<a href={`${base}/audit?identity=${of}`}>All of it</a>}>
      <Answer of={useQuery(did(of))}>
        {({ entries = [] }) =>
          entries.length === 0 ? (
            <Empty title="Nothing that you may see">Changes are kept in the audit log.</Empty>
          ) : (
            <ul class="rows">
              {entries.map((e) => (
                <li key={e.id}>
                  <span>
                    <span class="entry-type">{eventName(e.type)}</span>{" "}
                    {e.subject && <Name uid={e.subject} path quiet />}
                  </span>
                  <small>
                    <Time at={e.time} />
                  </small>
                </li>
              ))}
            </ul>
          )
        }
      </Answer>
    </Section>
  );
}

/** Sessions shows the sessions of a person. A caller that may list them may also end them. */
function Sessions({ of }: { of: string }) {
  const [ending, setEnding] = useState<Session>();
  return (
    <Section title="Sessions">
      <Answer of={useQuery(get("/signin/v1/sessions", { query: { identity_uid: of } }))}>
        {({ sessions = [] }) =>
          sessions.length === 0 ? (
            <Empty title="Not signed in anywhere">A session that has ended or expired is not shown.</Empty>
          ) : (
            <Table
              label="Sessions"
              rows={sessions}
              id={(s) => s.id ?? ""}
              columns={[
                {
                  name: "Program",
                  cell: (s) => (
                    <>
                      <bdi>{s.program}</bdi>
                      {s.current && <small class="line">this one</small>}
                    </>
                  ),
                },
                { name: "From", cell: (s) => <code>{s.address}</code>, wide: true },
                { name: "Began", cell: (s) => <Time at={s.createTime} />, wide: true },
                { name: "Used", cell: (s) => <Time at={s.useTime} /> },
                { name: "Ends", cell: (s) => <Time at={s.expireTime} />, wide: true },
                {
                  name: "End",
                  hidden: true,
                  cell: (s) =>
                    !s.current && (
                      <button type="button" class="danger small" onClick={() => setEnding(s)}>
                        End
                      </button>
                    ),
                },
              ]}
            />
          )
        }
      </Answer>
      {ending && (
        <Confirm
          title="End a session?"
          done="The session was ended"
          label="End the session"
          keep="Keep it"
          command={`holdfast auth sessions end ${ending.id} --identity ${of}`}
          onClose={() => setEnding(undefined)}
          requests={[
            del("/signin/v1/sessions/{uid}", {
              path: { uid: ending.id ?? "" },
              query: { identity_uid: of },
            }),
          ]}
        >
          <bdi>{ending.program}</bdi> is signed out. Its tokens are void from the next request on.
        </Confirm>
      )}
    </Section>
  );
}
