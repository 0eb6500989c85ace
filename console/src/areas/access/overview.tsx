// What is in a group and below it, in numbers.
import { get } from "../../api/api";
import { useQuery } from "../../api/query";
import { useReach } from "../../api/reach";
import { bytes, count, FindingTrend, findingNeeds, Section, SeverityBar, SeverityCounts, Stat } from "../../ui";
import { base, withParams } from "../../ui/router";

export function Overview({ uid, path }: { uid: string; path: string }) {
  const may = Boolean(useReach(findingNeeds, uid)?.length);
  const inside = useQuery(get("/access/v1/children", { query: { uid, page_size: 1 } })).data?.counts;
  const stored = useQuery(get("/budgets/v1/budgets/{uid}", { path: { uid } })).data?.usage?.storedBytes;
  const found = useQuery(
    may ? get("/findings/v1/summary", { query: { group_uid: uid, days: 1, page_size: 1 } }) : null,
  ).data;
  const tab = (id: string) => withParams({ tab: id, order: undefined });
  const numbers: [string, string | undefined, string?][] = [
    ["Folders", inside?.groups?.all],
    ["Repos", inside?.repos?.all, `${base}/repos?group=${uid}`],
    ["Workloads", inside?.identities?.all, `${base}/workloads?group=${uid}`],
    ["Role bindings", inside?.roleBindings?.all, tab("people")],
  ];
  return (
    <>
      <dl class="stats">
        {numbers.map(
          ([name, n, href]) => n !== undefined && <Stat key={name} name={name} value={count(n)} href={href} />,
        )}
        {stored !== undefined && <Stat name="Stored" value={bytes(stored)} href={tab("budget")} />}
      </dl>
      {may && found && (
        <Section
          title="Open findings"
          actions={<a href={`${base}/vulnerabilities?group=${uid}`}>All findings of this group</a>}
        >
          <SeverityCounts of={found.total?.now} coverage={found.coverage} />
          <SeverityBar of={found.total?.now} />
          <FindingTrend group={uid} path={path} />
        </Section>
      )}
    </>
  );
}
