// The trend of the open findings of a group, which the server counts every hour.
import { get, type Schema } from "../api/api";
import { useQuery } from "../api/query";
import { useReach } from "../api/reach";
import { StackedArea } from "./chart";
import { findingNeeds, severities } from "./finding";
import { Answer } from "./page";
import { param, withParams } from "./router";
import { Time } from "./time";

type Day = Schema<"holdfast.findings.v1.TrendDay">;

/** lowestFirst is the order in which the areas lie on each other. */
const lowestFirst = [...severities].reverse();
const span = () => (param("days") === "90" ? 90 : 30);

export const trend = (group: string, days = span()) =>
  get("/findings/v1/groups/{uid}/trend", { path: { uid: group }, query: { days } });

/** rowOf are the counts of a day in the order of the areas. */
export const rowOf = (d: Day) => ({ time: d.day ?? "", values: lowestFirst.map((s) => Number(d.open?.[s] ?? 0)) });

/** FindingTrend draws the open findings of a group by severity in the last 30 or 90 days. */
export function FindingTrend({ group, path }: { group: string; path: string }) {
  const may = useReach(findingNeeds, group)?.length;
  const found = useQuery(group && may ? trend(group) : null);
  if (!group || !may) return null;
  return (
    <Answer of={found}>
      {({ days = [], failure }) => (
        <>
          <p class="bar-row trend-head">
            <span class="hint">
              Open in <bdi>{path}</bdi> and below
            </span>
            <span class="switch">
              {[30, 90].map((n) => (
                <a
                  key={n}
                  href={withParams({ days: n === 30 ? undefined : String(n) })}
                  aria-current={n === span() || undefined}
                >
                  {n} days
                </a>
              ))}
            </span>
          </p>
          {days.length > 1 ? (
            <StackedArea
              label={`Open findings in ${path}`}
              series={lowestFirst.map((s) => ({ name: s, look: `bar-${s}` }))}
              rows={days.map(rowOf)}
              days={span()}
            />
          ) : (
            <p class="hint">
              The findings are counted once an hour, and the trend shows the last count of each day.
              {days[0] ? (
                <>
                  {" "}
                  So far, one day was counted, the last time <Time at={days[0].time} />.
                </>
              ) : (
                " Nothing has been counted yet."
              )}
            </p>
          )}
          {failure && <p class="wrong">The last count failed: {failure}</p>}
        </>
      )}
    </Answer>
  );
}
