// The effect of a change of access. The server makes the change in a transaction and rolls it back.
import { post, type Schema } from "../../api/api";
import { useQuery } from "../../api/query";
import { count, many, Name, Time } from "../../ui";

type Change = Schema<"holdfast.access.v1.SimulatedChange">;
type Found = Schema<"holdfast.access.v1.SimulateResponse">;

/** most is the maximum number of changes in one simulation. */
const most = 20;

/** Consequences shows which identities would gain and lose which capabilities. */
export function Consequences({ of }: { of: Change[] }) {
  const { data, error, loading } = useQuery(
    of.length > 0 && of.length <= most ? post("/access/v1/simulate", { body: { changes: of } }) : null,
  );
  if (of.length > most)
    return (
      <p class="hint">
        What {count(of.length)} changes would do is not worked out; it is for up to {most}.
      </p>
    );
  if (loading) return <p class="hint">Working out what it would do…</p>;
  if (error) return <p class="hint">What it would do is not known: {error.message}</p>;
  if (!data) return null;
  return (
    <div class="notice" role="status">
      <Side all={data.lost} total={data.lostTotal} people={data.lostIdentities} verb="lose" />
      {(data.lostUsedTotal ?? 0) > 0 && (
        <p>
          <strong>
            {count(data.lostUsedTotal)} of these {data.lostUsedTotal === 1 ? "was" : "were"} used in the last 30 days.
          </strong>
        </p>
      )}
      <Side all={data.gained} total={data.gainedTotal} people={data.gainedIdentities} verb="gain" />
      {(data.workloadsTotal ?? 0) > 0 && (
        <p>{many(data.workloadsTotal, "workload")} could no longer exchange a token.</p>
      )}
      {(data.sessionsTotal ?? 0) > 0 && <p>{many(data.sessionsTotal, "session")} would end.</p>}
      {(data.pullsTotal ?? 0) > 0 && (
        <p>{many(data.pullsTotal, "pull")} of the last 30 days would have been refused.</p>
      )}
      {!data.lostTotal && !data.gainedTotal && <p>Nobody gains or loses a capability.</p>}
      {!data.complete && (
        <p class="hint">
          Not everything was examined: {data.reasons?.map((r) => r.replace(/^[A-Z_]+: /, "")).join("; ")}
        </p>
      )}
    </div>
  );
}

function Side({
  all = [],
  total = 0,
  people = 0,
  verb,
}: {
  all: Found["lost"];
  total?: number;
  people?: number;
  verb: "lose" | "gain";
}) {
  if (total === 0) return null;
  return (
    <details>
      <summary>
        {many(people, "identity", "identities")} {people === 1 ? `${verb}s` : verb}{" "}
        {many(total, "capability", "capabilities")}
      </summary>
      <ul class="rows scroll" tabIndex={0}>
        {all.map((c) => (
          <li key={`${c.identity?.uid} ${c.capability} ${c.group?.uid}`}>
            <span>
              <Name uid={c.identity?.uid} quiet /> <code>{c.capability}</code> on <bdi>{c.group?.name}</bdi>
            </span>
            {c.lastUseTime && (
              <small>
                used <Time at={c.lastUseTime} />
              </small>
            )}
          </li>
        ))}
      </ul>
      {total > all.length && <p class="hint">and {count(total - all.length)} more</p>}
    </details>
  );
}
