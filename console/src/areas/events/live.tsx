// Changes as they happen. If the stream is interrupted, it continues from its last position.
import { useEffect, useState } from "preact/hooks";
import { type Fault, watch } from "../../api/api";
import { Empty, type Entry, EntryRow, Problem, Time } from "../../ui";

const most = 200; // entries that are shown
const wait = (ms: number) => new Promise((then) => setTimeout(then, ms));

interface Query {
  group_uid?: string;
  subject?: string;
  identity_uid?: string;
  type?: string;
}

export function Live({ query }: { query: Query }) {
  const [entries, setEntries] = useState<Entry[]>([]);
  const [since, setSince] = useState("");
  const [away, setAway] = useState(false);
  const [error, setError] = useState<Fault>();
  useEffect(() => {
    const stop = new AbortController();
    setEntries([]);
    setSince("");
    setError(undefined);
    void follow(query, stop.signal, {
      begun: () => {
        setAway(false);
        setSince((was) => was || new Date().toISOString());
      },
      told: (e) => setEntries((all) => [e, ...all].slice(0, most)),
      away: () => setAway(true),
      refused: setError,
    });
    return () => stop.abort();
  }, [JSON.stringify(query)]);
  if (error) return <Problem error={error} />;
  return (
    <section class="live" aria-label="Live">
      <p class="live-state" role="status">
        <span class={away || !since ? "live-dot" : "live-dot on"} aria-hidden="true" />
        {away ? (
          "The server cannot be reached. Changes will be shown when it is back."
        ) : since ? (
          <>
            Live since <Time at={since} />
            {entries.length === most && `, the last ${most}`}
          </>
        ) : (
          "Connecting…"
        )}
      </p>
      {since && entries.length === 0 && (
        <Empty title="Nothing has happened since">Every change is shown here within a second.</Empty>
      )}
      <ul class="entries" aria-label="Changes as they happen">
        {entries.map((e) => (
          <li key={e.id}>
            <EntryRow of={e} />
          </li>
        ))}
      </ul>
    </section>
  );
}

interface Listener {
  begun: () => void;
  told: (e: Entry) => void;
  away: () => void;
  refused: (f: Fault) => void;
}

/** follow watches the stream until it is stopped or refused. */
async function follow(query: Query, stop: AbortSignal, to: Listener) {
  let position: string | undefined;
  for (let pause = 1_000; !stop.aborted; pause = Math.min(pause * 2, 30_000)) {
    try {
      await watch(
        "/audit/v1/entries:watch",
        { query: { ...query, position } },
        (m) => {
          if (stop.aborted) return;
          position = m.position;
          pause = 500;
          to.begun();
          if (m.entry) to.told(m.entry);
        },
        stop,
      );
    } catch (failed) {
      if (stop.aborted) return;
      const fault = failed as Fault;
      if (fault.status !== 0 && fault.status !== 429 && fault.status < 500) return to.refused(fault);
      to.away();
    }
    await wait(pause);
  }
}
