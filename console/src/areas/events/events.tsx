import { useState } from "preact/hooks";
import { del, type Fault, get, post, type Schema } from "../../api/api";
import { nameOf, parentOf, resolve } from "../../api/names";
import { changed, useMay, useMayAnywhere, useQuery } from "../../api/query";
import {
  Answer,
  AsCommand,
  Choice,
  Command,
  Confirm,
  Copy,
  count,
  Dialog,
  Empty,
  eventName,
  Field,
  Filters,
  many,
  Name,
  Page,
  Pager,
  Problem,
  sh,
  Table,
  Tabs,
  Time,
  toast,
  useScope,
} from "../../ui";
import { go, param, withParams } from "../../ui/router";
import { Live } from "./live";

type Subscription = Schema<"holdfast.events.v2beta1.Subscription">;
type Attempt = Schema<"holdfast.deliveries.v1.Attempt">;
type Delivery = Schema<"holdfast.deliveries.v1.Delivery">;

const tabs = [
  { id: "", name: "Subscriptions" },
  { id: "log", name: "Delivery log" },
  { id: "deliveries", name: "Given up" },
  { id: "live", name: "Live" },
];
const page = () => ({ page_size: 50, page_token: param("page") || undefined });
const subscriptions = () =>
  get("/events/v2beta1/subscriptions", { query: { ...page(), "uidp.children_of": param("group") || undefined } });
const attempts = (uid: string) => get("/deliveries/v1/attempts/{uid}", { path: { uid } });
const deliveries = () =>
  get("/deliveries/v1/deliveries", { query: { ...page(), "uidp.children_of": param("subscription") || undefined } });

export default function Events() {
  const tab = param("tab");
  const group = param("group"),
    subscription = param("subscription");
  const path = nameOf(group || subscription).value?.path;
  return (
    <Page
      title="Events"
      lead="Every change is an event. A subscription sends the events of a group and everything below it to a program."
      actions={
        tab === "deliveries" ? (
          <AsCommand
            command={`holdfast events deliveries list${subscription && ` --subscription ${subscription}`}`}
            request={deliveries()}
          />
        ) : tab === "log" ? (
          subscription && (
            <AsCommand command={`holdfast events deliveries log ${subscription}`} request={attempts(subscription)} />
          )
        ) : tab === "live" ? (
          <AsCommand
            command={`holdfast audit --follow${group && ` --group ${sh(path ?? group)}`}`}
            request={get("/audit/v1/entries:watch", { query: { group_uid: group || undefined } })}
          />
        ) : (
          <AsCommand
            command={`holdfast events subscriptions list${group && ` --parent ${sh(path ?? group)}`}`}
            request={subscriptions()}
          />
        )
      }
    >
      <Tabs
        label="Parts of events"
        items={tabs}
        now={tab}
        href={(id) => withParams({ tab: id, subscription: undefined, group: undefined })}
      />
      {tab === "deliveries" ? (
        <Deliveries />
      ) : tab === "log" ? (
        <Log />
      ) : tab === "live" ? (
        <LiveEvents />
      ) : (
        <Subscriptions />
      )}
    </Page>
  );
}

function Subscriptions() {
  const may = useMay();
  const canCreate = useMayAnywhere("subscriptions.create");
  const [creating, setCreating] = useState(false);
  const [deleting, setDeleting] = useState<Subscription>();
  const [trying, setTrying] = useState<Subscription>();
  return (
    <>
      <div class="bar-row">
        <Filters label="Filter subscriptions" names={{ group: ["groups"] }}>
          <Field name="group" label="Directly in the group" placeholder="acme/platform" first />
        </Filters>
        {canCreate && (
          <button type="button" class="primary small" onClick={() => setCreating(true)}>
            Subscribe
          </button>
        )}
      </div>
      <Answer of={useQuery(subscriptions())}>
        {({ subscriptions: rows = [], nextPageToken, totalCount }) => (
          <>
            {rows.length === 0 ? (
              <Empty
                title="No subscription that you may see"
                what="subscriptions"
                needs={["subscriptions.list"]}
                group={param("group")}
                command="holdfast events subscriptions create https://hooks.example.com/holdfast --parent ORGANIZATION"
              >
                It posts signed CloudEvents to an address, in order for each subject, at least once.
              </Empty>
            ) : (
              <Table
                label="Subscriptions"
                rows={rows}
                id={(s) => s.uid ?? ""}
                columns={[
                  {
                    name: "Address",
                    roomy: true,
                    cell: (s) => (
                      <span class="name">
                        <bdi>{s.sink}</bdi>
                        <Copy text={s.uid ?? ""} what="the uid of this subscription" />
                      </span>
                    ),
                  },
                  { name: "Events of", cell: (s) => <Name uid={parentOf(s.uid ?? "")} path /> },
                  { name: "State", cell: (s) => <SinkState of={s} /> },
                  { name: "Given up", number: true, cell: (s) => <Failed of={s.uid ?? ""} /> },
                  { name: "Since", cell: (s) => <Time at={s.createTime} />, wide: true },
                  ...(rows.some((s) => may("subscriptions.update", s.uid ?? ""))
                    ? [
                        {
                          name: "Test",
                          hidden: true,
                          cell: (s: Subscription) =>
                            may("subscriptions.update", s.uid ?? "") && (
                              <button type="button" class="small" onClick={() => setTrying(s)}>
                                Test
                              </button>
                            ),
                        },
                      ]
                    : []),
                  ...(rows.some((s) => may("subscriptions.delete", s.uid ?? ""))
                    ? [
                        {
                          name: "Delete",
                          hidden: true,
                          cell: (s: Subscription) =>
                            may("subscriptions.delete", s.uid ?? "") && (
                              <button type="button" class="danger small" onClick={() => setDeleting(s)}>
                                Delete
                              </button>
                            ),
                        },
                      ]
                    : []),
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="subscription" />
          </>
        )}
      </Answer>
      {trying && <Trial of={trying} onClose={() => setTrying(undefined)} />}
      {creating && <Create onClose={() => setCreating(false)} />}
      {deleting && (
        <Confirm
          title="Delete a subscription?"
          done="The subscription was deleted"
          label="Delete the subscription"
          keep="Keep it"
          command={`holdfast events subscriptions delete ${deleting.uid} --yes`}
          onClose={() => setDeleting(undefined)}
          requests={[true, undefined].map((validate_only) =>
            del("/events/v2beta1/subscriptions/{uid}", { path: { uid: deleting.uid ?? "" }, query: { validate_only } }),
          )}
        >
          <bdi>{deleting.sink}</bdi> gets no more events. What could not be delivered to it is forgotten.
        </Confirm>
      )}
    </>
  );
}

/** LiveEvents shows the events of a group as they happen, with or without a subscription. */
function LiveEvents() {
  return (
    <>
      <Filters label="Filter events" names={{ group: ["groups"] }}>
        <Field name="group" label="In the group" placeholder="acme/platform" first />
      </Filters>
      <Live query={{ group_uid: param("group") || undefined }} />
    </>
  );
}

/** Trial sends a test event, or an earlier event again, to a subscription, and shows the answer of its address. */
function Trial({ of, event, onClose }: { of: Subscription; event?: Attempt; onClose: () => void }) {
  const [answer, setAnswer] = useState<Schema<"holdfast.deliveries.v1.TestSubscriptionResponse">>();
  const [error, setError] = useState<Fault>();
  const [busy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    setError(undefined);
    await post("/deliveries/v1/tests/{uid}", { path: { uid: of.uid ?? "" }, body: { eventId: event?.eventId } })
      .send()
      .then(setAnswer, setError);
    void changed(); // the delivery log has another attempt
    setBusy(false);
  };
  return (
    <Dialog title={event ? "Send an event again" : "Send a test event"} onClose={onClose}>
      <p>
        {event ? "The event of the type " : "One signed event of the type "}
        <code>{event ? eventName(event.type) : "events.subscription.tested"}</code> is sent to <bdi>{of.sink}</bdi>, now
        and once. {event && "It keeps its id, so that the receiver can recognize it."}
      </p>
      <Command
        text={
          event
            ? `holdfast events deliveries resend ${of.uid} ${event.eventId}`
            : `holdfast events subscriptions test ${of.uid}`
        }
      />
      {answer && (
        <p class={answer.taken ? "notice" : "notice wrong"} role="status">
          {answer.taken ? "The event was accepted" : <bdi>{answer.error}</bdi>}, after{" "}
          {Math.round(parseFloat(answer.took ?? "0") * 1000)} ms.
        </p>
      )}
      {error && <Problem error={error} />}
      <div class="dialog-foot">
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button type="button" class="primary" disabled={busy} onClick={() => void send()}>
          {answer ? "Send another" : "Send it"}
        </button>
      </div>
    </Dialog>
  );
}

/** SinkState shows whether the address accepts events, with a link to the delivery log. */
const SinkState = ({ of }: { of: Subscription }) => (
  <>
    {of.failing ? (
      <span class="state failed">
        failing since <Time at={of.failing.sinceTime} />
      </span>
    ) : (
      <span class="state active">not failing</span>
    )}
    <small class="line">
      <bdi>{of.failing?.error}</bdi>{" "}
      <a href={withParams({ tab: "log", subscription: of.uid, group: undefined })}>Delivery log</a>
    </small>
  </>
);

/** Log shows the latest attempts to send events to a subscription. */
function Log() {
  const known = useQuery(get("/events/v2beta1/subscriptions", { query: { page_size: 200 } })).data?.subscriptions ?? [];
  const subscription = param("subscription") || known[0]?.uid || "";
  const of = known.find((s) => s.uid === subscription);
  const found = useQuery(subscription ? attempts(subscription) : null);
  const may = useMay()("subscriptions.update", subscription);
  const [sending, setSending] = useState<Attempt>();
  return (
    <>
      <Filters label="Filter the log">
        <Choice
          name="subscription"
          label="Subscription"
          value={subscription}
          onChange={(uid) => go(withParams({ subscription: uid }))}
          options={known.map((s): [string, string] => [s.uid ?? "", (s.sink ?? "").slice(0, 80)])}
        />
      </Filters>
      {subscription === "" && (
        <Empty title="No subscription that you may see" what="subscriptions" needs={["subscriptions.list"]} />
      )}
      {of?.failing && (
        <p class="problem" role="status">
          It has been failing since <Time at={of.failing.sinceTime} />: <bdi>{of.failing.error}</bdi>
        </p>
      )}
      {subscription !== "" && (
        <Answer of={found}>
          {({ attempts: rows = [] }) =>
            rows.length === 0 ? (
              <Empty title="No event was sent yet">The latest 100 attempts are kept here.</Empty>
            ) : (
              <Table
                label="Attempts"
                rows={rows}
                id={(a) => `${a.time} ${a.eventId}`}
                columns={[
                  { name: "Time", cell: (a) => <Time at={a.time} /> },
                  {
                    name: "Event",
                    roomy: true,
                    cell: (a) => (
                      <>
                        {eventName(a.type)}
                        <small class="line">
                          <Name uid={a.subject} path plain />
                        </small>
                      </>
                    ),
                  },
                  {
                    name: "Result",
                    roomy: true,
                    cell: (a) => (
                      <>
                        <span class={`state ${a.taken ? "active" : "failed"}`}>
                          {a.status || "no response"} {a.taken ? "accepted" : ""}
                        </span>
                        {!a.taken && (
                          <small class="line">
                            <bdi>{a.response || a.error}</bdi>
                          </small>
                        )}
                      </>
                    ),
                  },
                  {
                    name: "Took",
                    number: true,
                    wide: true,
                    cell: (a) => `${Math.round(parseFloat(a.latency ?? "0") * 1_000)} ms`,
                  },
                  {
                    name: "Next attempt",
                    wide: true,
                    cell: (a) => (a.nextTime ? <Time at={a.nextTime} /> : <span class="hint">none</span>),
                  },
                  ...(may
                    ? [
                        {
                          name: "Resend",
                          hidden: true,
                          cell: (a: Attempt) =>
                            eventName(a.type) !== "events.subscription.tested" && (
                              <button type="button" class="small" onClick={() => setSending(a)}>
                                Resend
                              </button>
                            ),
                        },
                      ]
                    : []),
                ]}
              />
            )
          }
        </Answer>
      )}
      {sending && of && <Trial of={of} event={sending} onClose={() => setSending(undefined)} />}
    </>
  );
}

/** Failed shows the number of events of a subscription whose delivery was given up. */
function Failed({ of }: { of: string }) {
  const { data } = useQuery(get("/deliveries/v1/deliveries", { query: { "uidp.children_of": of, page_size: 1 } }));
  if (!data) return <>…</>;
  return Number(data.totalCount ?? 0) === 0 ? (
    <>0</>
  ) : (
    <a href={withParams({ tab: "deliveries", subscription: of, group: undefined })}>{count(data.totalCount)}</a>
  );
}

/** Create is the form that creates a subscription. The server checks it before it writes it. */
function Create({ onClose }: { onClose: () => void }) {
  const { path } = useScope();
  const [group, setGroup] = useState(path),
    [sink, setSink] = useState("");
  const [checked, setChecked] = useState("");
  const [error, setError] = useState<Fault>();
  const send = async (validate_only: boolean) => {
    setError(undefined);
    try {
      const uid = await resolve(group.trim(), "groups");
      await post("/events/v2beta1/subscriptions/{uid}", {
        path: { uid },
        query: { validate_only },
        body: { sink: sink.trim() },
      }).send();
      if (validate_only) return setChecked(uid);
      await changed();
      toast("The subscription was created");
      onClose();
    } catch (failed) {
      setChecked("");
      setError(failed as Fault);
    }
  };
  const change = (set: (v: string) => void) => (v: string) => {
    setChecked("");
    set(v);
  };
  return (
    <Dialog title="Subscribe to events" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send(!checked);
        }}
      >
        <Field
          name="group"
          label="Events of the group"
          value={group}
          onInput={change(setGroup)}
          placeholder="acme/platform"
          required
        />
        <Field
          name="sink"
          label="Address to post them to"
          value={sink}
          onInput={change(setSink)}
          placeholder="https://hooks.example.com/holdfast"
          required
          hint="It may have a secret in its query, which only people who may update the subscription see."
        />
        {checked && (
          <p class="notice" role="status">
            All events of <Name uid={checked} path quiet /> and of everything below it will be sent there, from now on.
          </p>
        )}
        {checked && (
          <Command text={`holdfast events subscriptions create ${sh(sink.trim())} --parent ${sh(group.trim())}`} />
        )}
        {error && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            {checked ? "Create the subscription" : "Check"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Deliveries() {
  const may = useMay();
  const subscription = param("subscription");
  const known = useQuery(get("/events/v2beta1/subscriptions", { query: { page_size: 200 } })).data?.subscriptions ?? [];
  const [replaying, setReplaying] = useState("");
  const found = useQuery(deliveries());
  const one = found.data?.deliveries?.find((d) => d.uid === replaying);
  return (
    <>
      <div class="bar-row">
        <Filters label="Filter deliveries">
          <Choice
            name="subscription"
            label="Subscription"
            options={[["", "all"], ...known.map((s): [string, string] => [s.uid ?? "", (s.sink ?? "").slice(0, 80)])]}
          />
        </Filters>
        {subscription && may("subscriptions.update", subscription) && Number(found.data?.totalCount ?? 0) > 0 && (
          <button type="button" class="small" onClick={() => setReplaying(subscription)}>
            Replay all
          </button>
        )}
      </div>
      <Answer of={found}>
        {({ deliveries: rows = [], nextPageToken, totalCount }) => (
          <>
            {rows.length === 0 && (
              <Empty title="No delivery that you may see was given up" what="deliveries" needs={["subscriptions.list"]}>
                An event that a receiver has not accepted for a day is kept here until it is replayed.
              </Empty>
            )}
            <ul class="entries">
              {rows.map((d) => (
                <li key={d.uid}>
                  <Row
                    of={d}
                    onReplay={may("subscriptions.update", d.uid ?? "") ? () => setReplaying(d.uid ?? "") : undefined}
                  />
                </li>
              ))}
            </ul>
            <Pager next={nextPageToken} total={totalCount} one="failed delivery" more="failed deliveries" />
          </>
        )}
      </Answer>
      {replaying && (
        <Confirm
          title={one ? "Replay a delivery?" : "Replay all deliveries?"}
          safe
          label={one ? "Send it again" : "Send them again"}
          command={`holdfast events deliveries replay ${replaying}`}
          onClose={() => setReplaying("")}
          requests={[post("/deliveries/v1/replays/{uid}", { path: { uid: replaying }, body: {} })]}
        >
          {one ? (
            <>{eventName(one.type)} is tried once more.</>
          ) : (
            <>All {count(found.data?.totalCount)} events that were given up are tried once more, the oldest first.</>
          )}{" "}
          Events that the receiver accepts leave this list. They keep their ids, so that a receiver can recognize events
          that it already has.
        </Confirm>
      )}
    </>
  );
}

function Row({ of, onReplay }: { of: Delivery; onReplay?: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <span class="entry-type">{eventName(of.type)}</span>
        <span class="entry-what wrong">
          <bdi>{of.error}</bdi>
        </span>
        <span class="entry-who">
          {of.replaying ? "in progress" : of.attempts ? `tried ${many(of.attempts, "time")}` : "never tried"}
        </span>
        <Time at={of.eventTime} />
      </summary>
      <div class="entry">
        <p class="entry-links">
          <span>
            about <Name uid={of.subject} path />
          </span>
          <span>
            to <Sink of={parentOf(of.uid ?? "")} />
          </span>
          <span>
            id <code>{of.eventId}</code>
            <Copy text={of.eventId ?? ""} what="the id of the event" />
          </span>
          <span>
            last tried <Time at={of.updateTime} />
          </span>
          <span>
            given up <Time at={of.createTime} />
          </span>
        </p>
        <p class="wrong">
          <bdi>{of.error}</bdi>
        </p>
        {open && <Body of={of} />}
        {onReplay && (
          <p>
            <button type="button" class="small" disabled={of.replaying} onClick={onReplay}>
              Replay
            </button>
          </p>
        )}
      </div>
    </details>
  );
}

function Sink({ of }: { of: string }) {
  const { data } = useQuery(get("/events/v2beta1/subscriptions/{uid}", { path: { uid: of } }));
  return <bdi>{data?.sink ?? "…"}</bdi>;
}

/** Body shows the body of the event, which the audit log has under the same id. */
function Body({ of }: { of: Delivery }) {
  const at = Date.parse(of.eventTime ?? "");
  const near = (ms: number) => (Number.isNaN(at) ? undefined : new Date(at + ms).toISOString());
  const { data, error } = useQuery(
    get("/audit/v1/entries", {
      query: { subject: of.subject, since: near(-1_000), until: near(1_000), page_size: 100 },
    }),
  );
  if (error) return <Problem error={error} />;
  if (!data) return null;
  const entry = data.entries?.find((e) => e.id === of.eventId);
  if (!entry) return <p class="hint">The audit log has no entry about it that you may see.</p>;
  return <pre tabIndex={0}>{JSON.stringify(entry.after ?? entry.before ?? {}, null, 2)}</pre>;
}
