import { get } from "../../api/api";
import { byCause } from "../../api/findings";
import { parentOf } from "../../api/names";
import { failedDeliveries, useApprovals } from "../../api/pending";
import { organizations, useMayAnywhere, useQuery, whoami } from "../../api/query";
import { useFolders, useHeld, useReach } from "../../api/reach";
import {
  Answer,
  AsCommand,
  count,
  Empty,
  FindingTrend,
  findingNeeds,
  GroupCoverage,
  many,
  Name,
  NoRole,
  Page,
  Section,
  SeverityBar,
  severities,
  Time,
  Unlisted,
  useScope,
  useUnseenAdvisories,
} from "../../ui";
import { base } from "../../ui/router";
import { Checklist } from "./steps";
import { Urgent } from "./urgent";

const summary = get("/findings/v1/summary", { query: { days: 1, page_size: 1 } });
const feeds = get("/advisories/v1/feeds", { query: { page_size: 50 } });
const ending = get("/access/v1/ending", { query: { page_size: 50 } });
const subscriptions = get("/events/v2beta1/subscriptions", { query: { page_size: 200 } });

export default function Home() {
  const found = useQuery(organizations);
  return (
    <Page
      title="Home"
      lead="Work that waits for you, and your organizations and folders."
      actions={<AsCommand command="holdfast findings summary" request={summary} />}
    >
      <Answer of={found}>{(d) => <Checklist organization={d.groups?.[0]} />}</Answer>
      <div class="home-top">
        <Findings />
        <div>
          <Approvals />
          <Groups />
        </div>
      </div>
      <Urgent />
      <Soon />
      <Troubles />
    </Page>
  );
}

/** Groups lists the organizations of the caller, and the folders in which they have a role. */
function Groups() {
  const found = useQuery(organizations);
  const folders = useFolders();
  const held = useHeld();
  return (
    <Section title="Your organizations and folders">
      <Answer of={found}>
        {({ groups = [], totalCount }) =>
          folders === undefined ? null : groups.length + folders.length === 0 ? (
            held?.length ? (
              <Unlisted />
            ) : (
              <NoRole />
            )
          ) : (
            <>
              <ul class="rows">
                {groups.map((g) => (
                  <li key={g.uid}>
                    <Name uid={g.uid} />
                    <small>
                      {g.description || (
                        <>
                          since <Time at={g.createTime} />
                        </>
                      )}
                    </small>
                  </li>
                ))}
                {folders.slice(0, 20).map((f) => (
                  <li key={f.uid}>
                    <Name uid={f.uid} path />
                    <small>folder</small>
                  </li>
                ))}
              </ul>
              {(Number(totalCount) > groups.length || folders.length > 20) && (
                <p class="hint">
                  and {count(Number(totalCount) - groups.length + Math.max(0, folders.length - 20))} more in the{" "}
                  <a href={`${base}/tree`}>Tree</a>
                </p>
              )}
            </>
          )
        }
      </Answer>
    </Section>
  );
}

function Findings() {
  const reach = useReach(findingNeeds);
  const found = useQuery(reach?.length ? summary : null);
  const unseen = useUnseenAdvisories();
  const { group, path } = useScope();
  return (
    <Section title="Open findings" actions={<a href={`${base}/vulnerabilities`}>All findings</a>}>
      {reach?.length === 0 ? (
        <Empty title="" what="findings" needs={findingNeeds} />
      ) : (
        <Answer of={found}>
          {(s) => {
            const now = s.total?.now;
            return (
              <>
                {s.coverage?.extent === "EXTENT_NOTHING" ? (
                  <p class="big">
                    unknown <small>nothing was compared with advisories</small>
                  </p>
                ) : (
                  <p class="big">
                    {count(now?.open)}{" "}
                    <small>
                      {unseen && "that you may see, "}
                      {count(s.total?.fixable)} can be fixed
                    </small>
                  </p>
                )}
                <SeverityBar of={now} />
                <ul class="legend">
                  {severities.map((v) => (
                    <li key={v}>
                      <a href={`${base}/vulnerabilities?severity=${v}`}>
                        <span class={`severity ${v}`}>{v}</span> {count(now?.[v])}
                      </a>
                    </li>
                  ))}
                </ul>
                <FindingTrend group={group} path={path} />
                <GroupCoverage of={s.coverage} />
              </>
            );
          }}
        </Answer>
      )}
    </Section>
  );
}

/** Approvals shows the newest requests for roles that the caller may decide. */
function Approvals() {
  const waiting = useApprovals();
  if (waiting.length === 0) return null;
  return (
    <Section title="Requests to approve" actions={<a href={`${base}/access?show=requests`}>All requests</a>}>
      <ul class="rows">
        {waiting.slice(0, 10).map((r) => (
          <li key={r.uid}>
            <span>
              <Name uid={r.identityUid} quiet />{" "}
              <small>
                as <Name uid={r.roleUid} quiet /> in <Name uid={parentOf(r.uid ?? "")} path quiet />
              </small>
            </span>
            <small>
              <bdi>{r.reason}</bdi> <Time at={r.createTime} />
            </small>
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** soon reports whether a time is within the next three days. */
const soon = (at: string | undefined) => {
  const left = new Date(at ?? 0).getTime() - Date.now();
  return left > 0 && left < 3 * 86_400_000;
};

/** Soon shows identities that stop matching, and roles and invites that end within three days. */
function Soon() {
  const me = useQuery(whoami).data?.subject;
  const grants = useQuery(useMayAnywhere("role_bindings.list") ? ending : null).data;
  const others = (grants?.grants ?? []).filter((g) => g.identity?.uid !== me);
  const mine =
    useQuery(
      me ? get("/iam/v2beta1/roleBindings", { query: { identity: me, page_size: 200 } }) : null,
    ).data?.roleBindings?.filter((b) => soon(b.expireTime)) ?? [];
  const identities = useMayAnywhere("identity.list"),
    invites = useMayAnywhere("group_invites.list");
  const endangered =
    useQuery(identities ? get("/federation/v1/issuers", { query: {} }) : null).data?.issuers?.flatMap((i) =>
      (i.endangered ?? []).map((e) => ({ ...e, issuer: i.issuer })),
    ) ?? [];
  const listed = useQuery(invites ? get("/iam/v2beta1/groupInvites", { query: { page_size: 200 } }) : null).data;
  const invited = (listed?.groupInvites ?? []).filter((i) => soon(i.expirationTime));
  if (endangered.length === 0 && invited.length === 0 && mine.length === 0 && others.length === 0) return null;
  return (
    <div class="grid">
      {endangered.length > 0 && <Endangered of={endangered} />}
      {mine.length > 0 && (
        <Section title="Your roles that end soon" actions={<a href={`${base}/access?show=requests`}>Ask for one</a>}>
          <ul class="rows">
            {mine.slice(0, 10).map((b) => (
              <li key={b.uid}>
                <span>
                  <bdi>{b.role?.name}</bdi>{" "}
                  <small>
                    of <Name uid={b.group?.uid} path quiet />
                  </small>
                </span>
                <small>
                  ends <Time at={b.expireTime} />
                </small>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {others.length > 0 && (
        <Section
          title="Roles of others that end soon"
          actions={<AsCommand command="holdfast access ending" request={ending} />}
        >
          <ul class="rows">
            {others.slice(0, 10).map((g) => (
              <li key={g.bindingUid}>
                <span>
                  <Name uid={g.identity?.uid} quiet />{" "}
                  <small>
                    as <bdi>{g.role?.name}</bdi> of <Name uid={g.group?.uid} path quiet />
                  </small>
                </span>
                <small>
                  ends <Time at={g.expireTime} />
                </small>
              </li>
            ))}
          </ul>
          {(others.length > 10 || grants?.more) && (
            <p class="hint">
              and {grants?.more ? "many" : count(others.length - 10)} more: <code>holdfast access ending</code>
            </p>
          )}
        </Section>
      )}
      {invited.length > 0 && (
        <Section title="Invites that end soon" actions={<a href={`${base}/people?tab=invites`}>All invites</a>}>
          <ul class="rows">
            {invited.slice(0, 10).map((i) => (
              <li key={i.uid}>
                <span>
                  {i.email ? <bdi>{i.email}</bdi> : "whoever has the link"}{" "}
                  <small>
                    as <bdi>{i.role?.name}</bdi>
                  </small>
                </span>
                <small>
                  ends <Time at={i.expirationTime} />
                </small>
              </li>
            ))}
          </ul>
          {listed?.nextPageToken && <p class="hint">Only the first 200 invites were examined.</p>}
        </Section>
      )}
    </div>
  );
}

const shownCauses = 10;

/** Endangered shows one line for each cause, which lists the workloads. */
function Endangered({ of }: { of: Parameters<typeof byCause>[0] }) {
  const causes = byCause(of);
  return (
    <Section
      title="Workloads that cannot sign in, or soon cannot"
      actions={<a href={`${base}/workloads`}>All workloads</a>}
    >
      <ul class="rows">
        {causes.slice(0, shownCauses).map((c) => (
          <li key={`${c.issuer} ${c.reason}`}>
            <details class="cause">
              <summary>
                <strong>{many(c.uids.length, "workload")}</strong>{" "}
                <span class="wrong">
                  <bdi>{c.reason}</bdi>
                </span>{" "}
                <small class="line">
                  issuer <bdi>{c.issuer}</bdi>
                </small>
              </summary>
              <ul class="rows">
                {c.uids.map((uid) => (
                  <li key={uid}>
                    <Name uid={uid} path quiet />
                  </li>
                ))}
              </ul>
            </details>
          </li>
        ))}
      </ul>
      {causes.length > shownCauses && (
        <p class="hint">
          and {many(causes.length - shownCauses, "more cause")}: <code>holdfast iam issuers</code>
        </p>
      )}
    </Section>
  );
}

/** Troubles shows failing feeds, subscriptions and deliveries that the caller may list. */
function Troubles() {
  const failing = useQuery(feeds).data?.feeds?.filter((f) => f.last?.error) ?? [];
  const givenUp = useQuery(failedDeliveries).data;
  const sinks = useQuery(subscriptions).data?.subscriptions?.filter((s) => s.failing) ?? [];
  if (failing.length === 0 && sinks.length === 0 && Number(givenUp?.totalCount ?? 0) === 0) return null;
  return (
    <div class="grid">
      {failing.length > 0 && (
        <Section title="Failing feeds" actions={<a href={`${base}/vulnerabilities?tab=feeds`}>All feeds</a>}>
          <ul class="rows">
            {failing.map((f) => (
              <li key={f.uid}>
                <span>
                  <bdi>{f.name}</bdi>{" "}
                  <small>
                    <Time at={f.last?.time} />
                  </small>
                </span>
                <small class="wrong">{f.last?.error}</small>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {sinks.length > 0 && (
        <Section title="Failing subscriptions" actions={<a href={`${base}/events`}>All subscriptions</a>}>
          <ul class="rows">
            {sinks.slice(0, 10).map((s) => (
              <li key={s.uid}>
                <span>
                  <a href={`${base}/events?tab=log&subscription=${s.uid}`}>
                    <bdi>{s.sink}</bdi>
                  </a>{" "}
                  <small>
                    since <Time at={s.failing?.sinceTime} />
                  </small>
                </span>
                <small class="wrong">{s.failing?.error}</small>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {Number(givenUp?.totalCount ?? 0) > 0 && (
        <Section title="Failing deliveries" actions={<a href={`${base}/events?tab=deliveries`}>All deliveries</a>}>
          <ul class="rows">
            {givenUp?.deliveries?.map((d) => (
              <li key={d.uid}>
                <span>
                  {d.type}{" "}
                  <small>
                    <Time at={d.createTime} />
                  </small>
                </span>
                <small class="wrong">{d.error}</small>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </div>
  );
}
