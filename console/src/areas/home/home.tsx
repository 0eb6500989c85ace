import type { ComponentChildren } from "preact";
import { get, type Schema } from "../../api/api";
import { parentOf } from "../../api/names";
import { organizations, useMay, useMayAnywhere, useQuery, whoami } from "../../api/query";
import { useFolders, useHeld, useReach } from "../../api/reach";
import {
  Answer,
  AsCommand,
  addGitHub,
  Command,
  count,
  Empty,
  Exploited,
  findingNeeds,
  GroupCoverage,
  Name,
  NoFindings,
  NoRole,
  Page,
  Problem,
  Section,
  Severity,
  SeverityBar,
  severities,
  sh,
  Table,
  Time,
  Unlisted,
  useUnseenAdvisories,
} from "../../ui";
import { advisoryPage, base, groupPage, imagePage } from "../../ui/router";
import { isPending, requests } from "../access/requests";

const summary = get("/findings/v1/summary", { query: { days: 1, page_size: 1 } });
const worst = get("/findings/v1/findings", {
  query: { severities: ["SEVERITY_CRITICAL"], states: ["STATE_OPEN"], page_size: 8 },
});
const feeds = get("/advisories/v1/feeds", { query: { page_size: 50 } });
const ending = get("/access/v1/ending", { query: { page_size: 50 } });
const subscriptions = get("/events/v2beta1/subscriptions", { query: { page_size: 200 } });
const deliveries = get("/deliveries/v1/deliveries", { query: { page_size: 5 } });

export default function Home() {
  const found = useQuery(organizations);
  return (
    <Page
      title="Home"
      lead="Work that waits for you, and your organizations and folders."
      actions={<AsCommand command="holdfast findings summary" request={summary} />}
    >
      <Answer of={found}>{(d) => <Checklist organization={d.groups?.[0]} />}</Answer>
      <div class="grid">
        <Findings />
        <Groups />
      </div>
      <Approvals />
      <Critical />
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
  return (
    <Section title="Open findings" actions={<a href={`${base}/vulnerabilities?tab=findings`}>All findings</a>}>
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
                      <a href={`${base}/vulnerabilities?tab=findings&severity=${v}`}>
                        <span class={`severity ${v}`}>{v}</span> {count(now?.[v])}
                      </a>
                    </li>
                  ))}
                </ul>
                <GroupCoverage of={s.coverage} />
              </>
            );
          }}
        </Answer>
      )}
    </Section>
  );
}

function Critical() {
  const found = useQuery(worst);
  return (
    <Section title="Most urgent critical findings">
      <Answer of={found}>
        {({ findings = [], coverage }) =>
          findings.length === 0 ? (
            <NoFindings of={coverage} title="No critical finding is open">
              Every pushed image is compared with the advisories of its organization, within seconds.
            </NoFindings>
          ) : (
            <Table
              label="Critical findings"
              id={(f) => `${f.advisoryId} ${f.package?.purl}`}
              rows={findings}
              columns={[
                {
                  name: "Advisory",
                  cell: (f) => (
                    <>
                      <a href={advisoryPage(f.advisoryId ?? "")}>{f.advisoryId}</a>
                      <small class="line">{f.summary}</small>
                    </>
                  ),
                },
                {
                  name: "Package",
                  cell: (f) => (
                    <>
                      <bdi>{f.package?.name}</bdi>
                      <small class="line">
                        {f.package?.version}
                        {f.fixedVersions?.length ? `, fixed in ${f.fixedVersions.join(", ")}` : ", no fix"}
                      </small>
                    </>
                  ),
                },
                { name: "Severity", cell: (f) => <Severity of={f.severity} score={f.score} />, wide: true },
                { name: "Exploited", cell: (f) => <Exploited of={f} />, wide: true },
                { name: "Images", roomy: true, cell: (f) => <Images of={f} /> },
                { name: "Seen", cell: (f) => <Time at={f.firstSeenTime} />, wide: true },
              ]}
            />
          )
        }
      </Answer>
    </Section>
  );
}

function Images({ of }: { of: Schema<"holdfast.findings.v1.Finding"> }) {
  const first = of.images?.[0];
  if (!first) return <>{count(of.imageCount)}</>;
  return (
    <>
      <a href={imagePage(first.repoUid ?? "", first.digest ?? "")}>
        <bdi>
          {first.repo}
          {first.tags?.[0] ? `:${first.tags[0]}` : ""}
        </bdi>
      </a>
      {(of.imageCount ?? 0) > 1 && <small class="line">and {count((of.imageCount ?? 0) - 1)} more</small>}
    </>
  );
}

/** Approvals shows the newest requests for roles that the caller may decide. */
function Approvals() {
  const may = useMay(),
    me = useQuery(whoami).data?.subject;
  const waiting = (useQuery(requests(false, 51)).data?.accessRequests ?? []).filter(
    (r) => isPending(r) && r.identityUid !== me && may("role_bindings.create", parentOf(r.uid ?? "")),
  );
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
      {endangered.length > 0 && (
        <Section title="Workloads that cannot sign in" actions={<a href={`${base}/workloads`}>All workloads</a>}>
          <ul class="rows">
            {endangered.slice(0, 10).map((e) => (
              <li key={`${e.identityUid} ${e.reason}`}>
                <Name uid={e.identityUid} path quiet />
                <small class="wrong">
                  <bdi>{e.reason}</bdi>
                </small>
              </li>
            ))}
          </ul>
          {endangered.length > 10 && (
            <p class="hint">
              and {count(endangered.length - 10)} more: <code>holdfast iam issuers</code>
            </p>
          )}
        </Section>
      )}
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

/** Troubles shows failing feeds, subscriptions and deliveries that the caller may list. */
function Troubles() {
  const failing = useQuery(feeds).data?.feeds?.filter((f) => f.last?.error) ?? [];
  const givenUp = useQuery(deliveries).data;
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

/** Checklist shows the first steps in a new organization until all of them are done. */
function Checklist({ organization }: { organization?: Schema<"holdfast.iam.v2beta1.Group"> }) {
  const may = useMay();
  const uid = organization?.uid ?? "";
  const owner = uid !== "" && may("group_invites.create", uid) && may("identity_providers.create", uid);
  const below = { "uidp.descendants_of": uid, page_size: 1 };
  const invites = useQuery(owner ? get("/iam/v2beta1/groupInvites", { query: below }) : null);
  const bindings = useQuery(owner ? get("/iam/v2beta1/roleBindings", { query: { group: uid, page_size: 50 } }) : null);
  const providers = useQuery(owner ? get("/iam/v2beta1/identityProviders", { query: below }) : null);
  const repos = useQuery(owner ? get("/registry/v2beta1/tags", { query: below }) : null);
  const workloads = useQuery(owner ? get("/iam/v2beta1/identities", { query: below }) : null);
  const registry = useQuery(owner ? get("/oci/v1/registry", {}) : null);
  const all = [invites, bindings, providers, repos, workloads, registry];
  const failed = all.find((q) => q.error)?.error;
  if (failed) return <Problem error={failed} />;
  if (!owner || all.some((q) => q.data === undefined)) return null;
  const people = new Set(
    bindings.data?.roleBindings?.map((b) => b.identity?.uid ?? "").filter((u) => u && !u.includes("/")),
  );
  const name = sh(organization?.name ?? "");
  const steps: { title: string; done: boolean; why: ComponentChildren; command: string }[] = [
    {
      title: "Invite somebody",
      done: Number(invites.data?.totalCount) > 0 || people.size > 1,
      why: "A second owner can let you in again.",
      command: `holdfast iam invites create --parent ${name} --role owner --ttl 7d --single-use --mail`,
    },
    {
      title: "Register an identity provider",
      done: Number(providers.data?.totalCount) > 0,
      why: "People sign in with their existing accounts.",
      command: `holdfast iam identity-providers create sso --parent ${name} --wizard`,
    },
    {
      title: "Push an image",
      done: Number(repos.data?.totalCount) > 0,
      why: "It is inspected within seconds.",
      command: `holdfast auth configure-docker && docker push ${registry.data?.host}/${organization?.name}/app:v1`,
    },
    {
      title: "Add a workload",
      done: Number(workloads.data?.totalCount) > 0,
      why: "A pipeline pushes without a stored secret.",
      command: addGitHub(name),
    },
  ];
  if (steps.every((s) => s.done)) return null;
  return (
    <Section
      title="First steps"
      actions={
        <span class="hint">
          {steps.filter((s) => s.done).length} of {steps.length} done in{" "}
          <a href={groupPage(uid)}>
            <bdi>{organization?.name}</bdi>
          </a>
        </span>
      }
    >
      <ol class="steps">
        {steps.map((s) => (
          <li key={s.title} class={s.done ? "done" : undefined}>
            <span class="tick" aria-hidden="true">
              {s.done ? "✓" : ""}
            </span>
            <div>
              <strong>{s.title}</strong> <span class="hint">{s.done ? "done" : s.why}</span>
              {!s.done && <Command text={s.command} />}
            </div>
          </li>
        ))}
      </ol>
    </Section>
  );
}
