// The report about the findings of a group, which a person gets by e-mail every week.
import { useState } from "preact/hooks";
import { del, get, post } from "../../api/api";
import { nameOf } from "../../api/names";
import { useMay, useQuery } from "../../api/query";
import { Confirm, findingNeeds, Section, sh, Time, useScope } from "../../ui";

const subscriptions = get("/findings/v1/report_subscriptions", {});

/** WeeklyReport turns the report of a group on and off. Repos have no reports. */
export function WeeklyReport({ group }: { group: string }) {
  const may = useMay();
  const scope = useScope();
  const [asking, setAsking] = useState(false);
  const of = useQuery(subscriptions).data;
  const place = group || scope.group;
  const name = nameOf(place).value;
  const now = of?.items?.find((s) => s.groupUid === place);
  if (!of || !place || name?.kind === "repos" || (!now && !findingNeeds.every((c) => may(c, place)))) return null;
  const path = name?.path ?? place;
  const request = { path: { uid: place } };
  return (
    <Section
      title="Weekly report"
      actions={
        <button type="button" class="small" onClick={() => setAsking(true)}>
          {now ? "Stop the report…" : "Get it by e-mail…"}
        </button>
      }
    >
      {now ? (
        <p class="hint">
          You get the report about <bdi>{path}</bdi> by e-mail every week, next <Time at={now.nextTime} />.
          {now.problem && <span class="line wrong">The last one was not sent: {now.problem}</span>}
        </p>
      ) : (
        <p class="hint">
          The open, overdue and fixed findings of <bdi>{path}</bdi>, their owners and what to update first.
        </p>
      )}
      {asking &&
        (now ? (
          <Confirm
            title="Stop the weekly report?"
            label="Stop it"
            done="You no longer get the report"
            command={`holdfast findings report unsubscribe ${sh(path)}`}
            onClose={() => setAsking(false)}
            requests={[del("/findings/v1/groups/{uid}/report_subscription", request)]}
          >
            You get no further e-mail about <bdi>{path}</bdi>. Other people still get theirs.
          </Confirm>
        ) : (
          <Confirm
            title="Get the report by e-mail?"
            safe
            label="Send it every week"
            done="The first report is on its way"
            command={`holdfast findings report subscribe ${sh(path)}`}
            onClose={() => setAsking(false)}
            requests={[post("/findings/v1/groups/{uid}/report_subscription", { ...request, body: {} })]}
          >
            The server sends the report about <bdi>{path}</bdi> to the address of your account, now and then every week.
            It checks each time whether you may still see the findings.
          </Confirm>
        ))}
    </Section>
  );
}
