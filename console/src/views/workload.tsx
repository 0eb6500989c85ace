import { get, type Schema } from "../api";
import { nameOf } from "../names";
import { useQuery } from "../query";
import { base, param, withParams } from "../router";
import { Checks, Debugger } from "../token";
import { Above, Answer, AsCommand, Copy, Empty, Facts, Page, Problem, Section, sh, Tabs, Time } from "../ui";
import { Did, Held } from "./person";

type Identity = Schema<"holdfast.iam.v2beta1.Identity">;

const tabs = [{ id: "", name: "Rule and roles" }, { id: "denials", name: "Denials" }, { id: "token", name: "Token debugger" }];
const denials = (identity_uid: string) => get("/federation/v1/denials", { query: { identity_uid } });

export default function Workload({ uid }: { uid: string }) {
  const request = get("/iam/v2beta1/identities/{uid}", { path: { uid } });
  const identity = useQuery(request);
  const path = nameOf(uid).value?.path ?? uid;
  const tab = param("tab");
  if (identity.error) return <Page title="Workload" above={<Above uid={uid} />}><Problem error={identity.error} /></Page>;
  return (
    <Page thing={!!identity.data} title={identity.data?.displayName || identity.data?.name || "…"} mark={<Copy text={uid} what="the uid of this workload" />} above={<Above uid={uid} />} lead={identity.data?.description || "A workload"}
      actions={<>
        <a class="button small" href={`${base}/access?identity=${uid}`}>Can it…</a>
        <AsCommand command={tab === "denials" ? `holdfast iam identities denials ${sh(path)}` : `holdfast iam identities get ${sh(path)}`} request={tab === "denials" ? denials(uid) : request} />
      </>}>
      <Tabs label="Of this workload" items={tabs} now={tab} href={(id) => withParams({ tab: id })} />
      {tab === "" && <>{identity.data && <Rule of={identity.data} />}<Held of={uid} who="it" /><Did of={uid} who="it" /></>}
      {tab === "denials" && <Denials of={uid} />}
      {tab === "token" && <Debugger identity={uid} path={sh(path)} />}
    </Page>
  );
}

const pattern = (text: string | undefined) => (text ? <code>/<bdi>{text}</bdi>/</code> : undefined);
const exactly = (text: string | undefined) => (text ? <code><bdi>{text}</bdi></code> : undefined);

/** Rule is what a token must have to be exchanged. Patterns stand between slashes. */
function Rule({ of }: { of: Identity }) {
  const c = of.claimMatch, k = of.staticKeys, a = of.awsIdentity;
  const further = [...Object.entries(c?.claims ?? {}).map(([n, v]) => [n, exactly(String(v))] as const), ...Object.entries(c?.claimPatterns ?? {}).map(([n, v]) => [n, pattern(String(v))] as const)];
  return (
    <Section title="Rule" actions={<a href={withParams({ tab: "token" })}>Try a token</a>}>
      <Facts of={[
        ["Issuer", exactly(c?.issuer || k?.issuer) ?? pattern(c?.issuerPattern)],
        ["Subject", exactly(c?.subject || k?.subject) ?? pattern(c?.subjectPattern)],
        ["Audience", exactly(c?.audience || k?.audiences?.join(", ")) ?? pattern(c?.audiencePattern)],
        ["Keys end", k?.expirationTime && <Time at={k.expirationTime} />],
        ["AWS account", exactly(a?.awsAccount)],
        ["AWS resource", exactly(a?.arn) ?? pattern(a?.arnPattern)],
        ["AWS user", exactly(a?.userId) ?? pattern(a?.userIdPattern)],
        ...further.map(([n, v]): [string, typeof v] => [`Claim ${n}`, v]),
        ["Last seen", <Time at={of.lastSeenTime} />],
        ["Created", <Time at={of.createTime} />],
      ]} />
    </Section>
  );
}

/** Denials are the last tokens that were refused for a workload, claim by claim. */
function Denials({ of }: { of: string }) {
  return (
    <Answer of={useQuery(denials(of))}>{({ denials: rows = [] }) => rows.length === 0
      ? <Empty title="No token was refused lately">The last twenty refusals of thirty days are kept. One that names another identity is not among them.</Empty>
      : <>{rows.map((d) => (
        <Section key={`${d.requestId} ${d.time}`} title={d.message ?? "Refused"} actions={<Time at={d.time} />}>
          <p class="entry-links">
            {d.remoteAddress && <span>from <code>{d.remoteAddress}</code></span>}
            {d.requestId && <span>request <code>{d.requestId}</code><Copy text={d.requestId} what="the request id" /></span>}
          </p>
          {!d.signatureVerified && <p class="coverage">The issuer had not signed it, or its keys could not be read. Whoever sent it may have made up what was received.</p>}
          <Checks of={d.checks ?? []} label="Claims" />
        </Section>
      ))}</>}
    </Answer>
  );
}
