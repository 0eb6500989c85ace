// How many findings are open, for how long, and how that has changed.
import { get } from "../../api/api";
import { nameOf } from "../../api/names";
import { useQuery } from "../../api/query";
import { useReach } from "../../api/reach";
import { Bars, count, FindingTrend, findingNeeds, Section, Sparkline, Stat, Time, trend, useScope } from "../../ui";
import { withParams } from "../../ui/router";

const summary = (group: string) =>
  get("/findings/v1/summary", { query: { group_uid: group || undefined, days: 1, page_size: 1 } });
const exploited = (group: string) =>
  get("/findings/v1/findings", {
    query: { group_uid: group || undefined, kev: true, states: ["STATE_OPEN"], page_size: 1 },
  });

/** days is a number of days from a duration of the API, which has seconds. */
const days = (duration: string) => Math.round(Number(duration.slice(0, -1)) / 86_400);

/** Overview is about a group, or about everything that the caller may list. */
export function Overview({ group }: { group: string }) {
  const reach = useReach(findingNeeds, group);
  const scope = useScope();
  const of = useQuery(reach?.length ? summary(group) : null).data;
  const kev = useQuery(reach?.length ? exploited(group) : null).data;
  const place = group || scope.group;
  const past = useQuery(reach?.length && place ? trend(place) : null).data?.days ?? [];
  if (!of || of.coverage?.extent === "EXTENT_NOTHING") return null; // the list says so
  const t = of.total;
  const fixed = Number(t?.fixed ?? 0);
  return (
    <>
      <dl class="stats">
        <Stat name="Open" value={count(t?.now?.open)}>
          <span class="hint">{count(t?.fixable)} can be fixed</span>
        </Stat>
        <Stat
          name="Known to be exploited"
          value={kev ? count(kev.totalCount) : "…"}
          look={Number(kev?.totalCount ?? 0) > 0 ? "wrong" : undefined}
          href={withParams({ kev: "true", state: "open" })}
        >
          <Sparkline
            label="Known to be exploited, day by day"
            values={past.filter((d) => d.kev !== undefined).map((d) => Number(d.kev))}
          />
        </Stat>
        <Overdue limited={Number(t?.limited ?? 0)} overdue={Number(t?.overdue?.open ?? 0)} />
        <Stat name="Oldest" value={t?.oldest ? <Time at={t.oldest.openTime} /> : "none"}>
          <span class="hint">{t?.oldest?.advisoryId}</span>
        </Stat>
        <Stat name="Fixed in 90 days" value={count(fixed)}>
          <span class="hint">
            {t?.meanTimeToFix && fixed > 0 ? `after ${count(days(t.meanTimeToFix))} days on average` : ""}
          </span>
        </Stat>
      </dl>
      <div class="home-top">
        <Section title="Trend">
          <FindingTrend group={place} path={nameOf(place).value?.path ?? scope.path} />
        </Section>
        <Section title="Open for">
          <Bars
            label="Open findings by age"
            head={["Age", "Findings"]}
            rows={[
              { name: "less than 7 days", value: Number(t?.days7 ?? 0), look: "bar-low" },
              { name: "7 to 30 days", value: Number(t?.days30 ?? 0), look: "bar-medium" },
              { name: "30 to 90 days", value: Number(t?.days90 ?? 0), look: "bar-high" },
              { name: "90 days or more", value: Number(t?.older ?? 0), look: "bar-critical" },
            ]}
          />
        </Section>
      </div>
    </>
  );
}

/** Overdue shows how many findings are open for longer than the group allows, if it sets a limit. */
const Overdue = ({ limited, overdue }: { limited: number; overdue: number }) =>
  limited === 0 ? (
    <Stat name="Overdue" value="–">
      <span class="hint">no open finding has a time limit</span>
    </Stat>
  ) : (
    <Stat name="Overdue" value={count(overdue)} look={overdue > 0 ? "wrong" : undefined}>
      <span class="hint">of {count(limited)} with a time limit</span>
    </Stat>
  );
