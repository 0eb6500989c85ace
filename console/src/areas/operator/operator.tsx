import { get, type Schema } from "../../api/api";
import { useQuery, whoami } from "../../api/query";
import { Answer, AsCommand, bytes, count, Empty, Facts, many, Page, Section, Table, Time } from "../../ui";
import { groupPage } from "../../ui/router";

type Installation = Schema<"holdfast.operator.v1.Installation">;

const installation = get("/operator/v1/installation", {});

/** span makes a duration readable, which the API writes as seconds with an s. */
function span(duration: string | undefined): string {
  const seconds = Number((duration ?? "0s").slice(0, -1));
  if (Math.abs(seconds) < 1) return `${(seconds * 1_000).toFixed(Math.abs(seconds) < 0.01 ? 1 : 0)} ms`;
  for (const [unit, size] of [
    ["day", 86_400],
    ["hour", 3_600],
    ["minute", 60],
  ] as const)
    if (Math.abs(seconds) >= size) return many(Math.round(seconds / size), unit);
  return many(Math.round(seconds), "second");
}

export default function Operator() {
  const who = useQuery(whoami);
  const may = who.data?.operator === true;
  const found = useQuery(may ? installation : null);
  return (
    <Page
      title="Operator"
      lead="The state of the installation, as seen by the server that answers."
      actions={may && <AsCommand command="holdfast operator status" request={installation} />}
    >
      {who.data && !may && (
        <Empty title="You are no operator of this installation">
          Operators are named in the settings of the server, by <code>operators</code>. A session that is limited to
          some groups is not one.
        </Empty>
      )}
      {may && (
        <Answer of={found}>
          {(d) => (
            <>
              <Warnings of={d} />
              <div class="grid">
                <Database of={d} />
                <Work of={d} />
              </div>
              <Replicas of={d} />
              <div class="grid">
                <Keys of={d} />
                <Garbage of={d} />
              </div>
              <Budgets of={d} />
            </>
          )}
        </Answer>
      )}
    </Page>
  );
}

const hourOld = (time: string | undefined) => time !== undefined && Date.now() - new Date(time).getTime() > 3_600_000;

/** Warnings lists problems that need attention. */
function Warnings({ of }: { of: Installation }) {
  const d = of.database;
  const late = Number((of.work?.feedOverdue ?? "0s").slice(0, -1));
  const ends = of.certificateExpireTime ? new Date(of.certificateExpireTime).getTime() - Date.now() : Infinity;
  const said = [
    d?.schema !== d?.knownSchema &&
      "The schema of the database differs from this server's version: an upgrade is in progress, or was undone.",
    Math.abs(Number((d?.clockSkew ?? "0s").slice(0, -1))) > 1 &&
      `The clock of the database is ${span(d?.clockSkew)} from this server's: synchronize both.`,
    (of.replicas ?? []).some((r) => r.live && Number(r.behind ?? 0) > 0) &&
      "A replica is behind the others. If that lasts more than a few seconds, look at its log.",
    of.work?.inspectionsWaiting === undefined && "The state of feeds, webhooks and inspections cannot be read now.",
    (of.work?.subscriptionsFailing ?? 0) > 0 &&
      `${many(of.work?.subscriptionsFailing, "webhook")} did not accept the latest event.`,
    (of.work?.feedsFailing ?? 0) > 0 && `The last read of ${many(of.work?.feedsFailing, "feed")} failed.`,
    hourOld(of.work?.oldestDeliveryTime) && "An event has waited for more than an hour to be delivered.",
    hourOld(of.work?.oldestInspectionTime) && "An image has waited for more than an hour to be inspected.",
    hourOld(of.work?.oldestMailTime) && "A message has waited for more than an hour to be sent.",
    late > 3_600 && `A feed has been due for ${span(of.work?.feedOverdue)}.`,
    ends < 14 * 86_400_000 && "The certificate ends within two weeks.",
    of.collection?.lastError && `Garbage was not collected: ${of.collection.lastError}.`,
    (of.budgets ?? []).some((b) => Number(b.used ?? 0) >= 0.9 * Number(b.limit ?? 0)) &&
      "A budget is used up, or nearly.",
  ].filter(Boolean);
  if (said.length === 0)
    return (
      <p class="verdict good" role="status">
        <strong>All is well</strong>: there are no problems on this page. It does not check upstreams and back-ups.
      </p>
    );
  return (
    <div class="problem" role="status">
      <ul class="plain">
        {said.map((s) => (
          <li key={s as string}>{s}</li>
        ))}
      </ul>
    </div>
  );
}

function Database({ of }: { of: Installation }) {
  const d = of.database;
  return (
    <Section title="Server and database">
      <Facts
        of={[
          ["Version", of.version],
          ["Runs since", <Time at={of.startTime} />],
          ["Database", d?.version],
          ["Schema", d?.schema === d?.knownSchema ? d?.schema : `${d?.schema}, and this version has ${d?.knownSchema}`],
          ["Answers in", span(d?.answers)],
          ["Clock", `${span(d?.clockSkew)} from ours`],
          ["Connections", `${count(d?.connectionsInUse)} of ${count(d?.connectionsLimit)} in use`],
          ["Certificate ends", of.certificateExpireTime && <Time at={of.certificateExpireTime} />],
        ]}
      />
    </Section>
  );
}

function Work({ of }: { of: Installation }) {
  const w = of.work;
  return (
    <Section title="Waiting work">
      <Facts
        of={[
          [
            "Feeds",
            w?.feedOverdue === undefined
              ? "not known now"
              : Number(w.feedOverdue.slice(0, -1)) > 0
                ? `one has been due for ${span(w.feedOverdue)}`
                : "none is due",
          ],
          ["Feeds failing", w?.feedsFailing === undefined ? "not known now" : count(w.feedsFailing)],
          ["Webhooks failing", w?.subscriptionsFailing === undefined ? "not known now" : count(w.subscriptionsFailing)],
          [
            "Images",
            w?.inspectionsWaiting === undefined ? "not known now" : `${many(w.inspectionsWaiting, "image")} to inspect`,
          ],
          [
            "Events",
            <>
              {many(w?.deliveriesWaiting, "event")} to deliver
              {w?.oldestDeliveryTime && (
                <>
                  , the oldest from <Time at={w.oldestDeliveryTime} />
                </>
              )}
            </>,
          ],
          [
            "Messages",
            w?.mailsWaiting === undefined
              ? "not known, or there is no mail server"
              : `${many(w.mailsWaiting, "message")} to send`,
          ],
        ]}
      />
    </Section>
  );
}

function Replicas({ of }: { of: Installation }) {
  const all = of.replicas ?? [];
  return (
    <Section title="Replicas">
      {all.length === 0 ? (
        <Empty title="This server is the only one">
          With PostgreSQL, several servers can share a database. They are listed here.
        </Empty>
      ) : (
        <Table
          label="Replicas"
          rows={all}
          id={(r) => r.id ?? ""}
          columns={[
            { name: "Replica", cell: (r) => <code>{r.id}</code> },
            {
              name: "State",
              cell: (r) => <span class={r.live ? "state active" : "state"}>{r.live ? "serves" : "gone"}</span>,
            },
            { name: "Last heard of", cell: (r) => `${span(r.age)} ago` },
            { name: "Behind", number: true, cell: (r) => many(r.behind, "change") },
          ]}
        />
      )}
    </Section>
  );
}

function Keys({ of }: { of: Installation }) {
  return (
    <Section title="Signing keys">
      <Table
        label="Signing keys"
        rows={of.keys ?? []}
        id={(k) => k.id ?? ""}
        columns={[
          { name: "Key", cell: (k) => <code>{k.id}</code> },
          { name: "Algorithm", cell: (k) => k.algorithm },
          { name: "Made", cell: (k) => <Time at={k.createTime} /> },
          {
            name: "State",
            cell: (k) => (k.signs ? <span class="state active">signs</span> : <span class="state">verifies</span>),
          },
        ]}
      />
      <p class="hint">
        They are replaced at the age of {span(of.keyRotation)}. <code>holdfastd keys rotate</code> does it now.
      </p>
    </Section>
  );
}

function Garbage({ of }: { of: Installation }) {
  const c = of.collection;
  return (
    <Section title="Garbage of the registry">
      <Facts
        of={[
          ["Collected", c?.interval ? `every ${span(c.interval)}` : "only by holdfastd gc"],
          ["Blobs are kept", `${span(c?.grace)} after their last use`],
          ["Last time here", c?.lastTime ? <Time at={c.lastTime} /> : "not since this server started"],
          ["Removed then", c?.lastTime && `${many(c.lastBlobs, "blob")}, ${bytes(c.lastBytes)}`],
        ]}
      />
    </Section>
  );
}

function Budgets({ of }: { of: Installation }) {
  const all = of.budgets ?? [];
  const show = (metric: string | undefined, n: string | undefined) => (metric === "stored_bytes" ? bytes(n) : count(n));
  return (
    <Section
      title="Fullest budgets of organizations"
      actions={<span class="hint">{many(of.budgetCount, "group")} with a budget</span>}
    >
      {all.length === 0 ? (
        <Empty title="No organization has a budget" command="holdfastd budgets set ORGANIZATION stored_bytes=50GB">
          A budget limits the resources of an organization. It is set on the machine of the server.
        </Empty>
      ) : (
        <Table
          label="Budgets"
          rows={all}
          id={(b) => `${b.groupUid} ${b.metric}`}
          columns={[
            {
              name: "Organization",
              cell: (b) => (
                <a href={groupPage(b.groupUid ?? "")}>
                  <bdi>{b.groupName}</bdi>
                </a>
              ),
            },
            { name: "What", cell: (b) => b.metric?.replaceAll("_", " ") },
            { name: "Used", number: true, cell: (b) => show(b.metric, b.used) },
            { name: "Limit", number: true, cell: (b) => show(b.metric, b.limit) },
            {
              name: "Share",
              hidden: true,
              cell: (b) => (
                <meter
                  aria-label={`${b.metric} of ${b.groupName}`}
                  min={0}
                  max={Number(b.limit ?? 0)}
                  high={Number(b.limit ?? 0) * 0.9}
                  value={Number(b.used ?? 0)}
                />
              ),
            },
          ]}
        />
      )}
      {of.budgetsIncomplete && <p class="coverage">More organizations have a budget than were compared.</p>}
    </Section>
  );
}
