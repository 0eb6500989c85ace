// The members of a group: one row for each person.

import { type Binding, type Member, useMembers } from "../../api/people";
import { contains } from "../../api/repos";
import { Avatar, Empty, Field, Filters, many, Name, Problem, Table, Time, Waiting } from "../../ui";
import { param, personPage, withParams } from "../../ui/router";

const shown = 50;

export function Members({ group }: { group: string }) {
  const { people, complete, loading, error } = useMembers(group);
  if (error) return <Problem error={error} />;
  if (loading) return <Waiting />;
  const text = param("who");
  const found = people.filter((p) => contains([p.name, ...p.emails].join(" "), text));
  const from = Math.max(0, Number(param("from")) || 0);
  return (
    <>
      <Filters label="Filter people">
        <Field name="who" label="Name or e-mail address" placeholder="ann" />
      </Filters>
      {!complete && (
        <p class="coverage">
          These are the people among the first 1,000 roles. There are more: choose a group below this one.
        </p>
      )}
      {found.length === 0 ? (
        <Empty
          title={text ? "Nobody that you may see matches" : "No role is granted here or below"}
          what="the roles of people"
          needs={["role_bindings.list"]}
          group={group}
        >
          Roles on the groups above apply here, too.
        </Empty>
      ) : (
        <Table label="Members" rows={found.slice(from, from + shown)} id={(p) => p.uid} columns={columns} />
      )}
      <p class="pager">
        <span class="hint">{many(found.length, "person", "people")}</span>
        {from > 0 && (
          <a class="button small" href={withParams({ from: from > shown ? String(from - shown) : undefined })}>
            Previous
          </a>
        )}
        {from + shown < found.length && (
          <a class="button small" href={withParams({ from: String(from + shown) })}>
            Next
          </a>
        )}
      </p>
    </>
  );
}

const columns = [
  {
    name: "Who",
    roomy: true,
    cell: (p: Member) => (
      <span class="who-cell">
        <Avatar name={p.name} />
        <span>
          <a href={personPage(p.uid)}>
            <bdi>{p.name || p.uid.slice(0, 12)}</bdi>
          </a>
          {p.emails.map((e) => (
            <small key={e} class="line">
              <bdi>{e}</bdi>
            </small>
          ))}
        </span>
      </span>
    ),
  },
  {
    name: "Roles",
    roomy: true,
    cell: (p: Member) => (
      <>
        {p.roles.slice(0, mostRoles).map((b) => (
          <RoleLine key={b.uid} of={b} />
        ))}
        {p.roles.length > mostRoles && (
          <details>
            <summary>{many(p.roles.length - mostRoles, "more role")}</summary>
            {p.roles.slice(mostRoles).map((b) => (
              <RoleLine key={b.uid} of={b} />
            ))}
          </details>
        )}
      </>
    ),
  },
  {
    name: "Last seen",
    cell: (p: Member) => (p.seen ? <Time at={p.seen} /> : <span class="hint">not known</span>),
  },
];
const mostRoles = 3;

/** RoleLine is one role: what, where, and until when. */
const RoleLine = ({ of }: { of: Binding }) => (
  <span class="line">
    <strong>
      <bdi>{of.role?.name}</bdi>
    </strong>{" "}
    on <Name uid={of.group?.uid} path quiet />
    {of.expireTime && (
      <small>
        {" "}
        ends <Time at={of.expireTime} />
      </small>
    )}
  </span>
);
