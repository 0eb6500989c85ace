import { useEffect, useState } from "preact/hooks";
import { get, patch, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { changed, useMay, useQuery, whoami } from "../../api/query";
import {
  Above,
  Answer,
  AsCommand,
  Command,
  Confirm,
  Copy,
  count,
  Empty,
  Facts,
  many,
  Page,
  Problem,
  Section,
  sh,
  Table,
  Tabs,
  Time,
} from "../../ui";
import { base, param, withParams } from "../../ui/router";
import { Did, Held } from "../people/person";
import { type Match, platformOf, seenTime } from "./platforms";
import { Checks, Debugger } from "./token";

type Identity = Schema<"holdfast.iam.v2beta1.Identity">;

const tabs = [
  { id: "", name: "Rule and roles" },
  { id: "setup", name: "Set up" },
  { id: "exchanges", name: "Exchanges" },
  { id: "denials", name: "Denials" },
  { id: "token", name: "Token debugger" },
];
const exchanges = (identity_uid: string) => get("/federation/v1/exchanges", { query: { identity_uid } });
const denials = (identity_uid: string) => get("/federation/v1/denials", { query: { identity_uid } });

export default function Workload({ uid }: { uid: string }) {
  const request = get("/iam/v2beta1/identities/{uid}", { path: { uid } });
  const identity = useQuery(request);
  const path = nameOf(uid).value?.path ?? uid;
  const tab = param("tab");
  if (identity.error)
    return (
      <Page title="Workload" above={<Above uid={uid} />}>
        <Problem error={identity.error} />
      </Page>
    );
  return (
    <Page
      thing={!!identity.data}
      title={identity.data?.displayName || identity.data?.name || "…"}
      mark={<Copy text={uid} what="the uid of this workload" />}
      above={<Above uid={uid} />}
      lead={identity.data?.description || "A workload"}
      actions={
        <>
          <a class="button small" href={`${base}/access?identity=${uid}`}>
            Can it…
          </a>
          <AsCommand
            command={`holdfast iam identities ${tab === "exchanges" || tab === "denials" ? tab : "get"} ${sh(path)}`}
            request={tab === "exchanges" ? exchanges(uid) : tab === "denials" ? denials(uid) : request}
          />
        </>
      }
    >
      <Tabs label="Parts of this workload" items={tabs} now={tab} href={(id) => withParams({ tab: id })} />
      {tab === "" && (
        <>
          {identity.data && <Rule of={identity.data} />}
          <Held of={uid} who="it" />
          <Did of={uid} who="it" />
        </>
      )}
      {tab === "setup" && identity.data && <Setup of={identity.data} />}
      {tab === "exchanges" && <Exchanges of={uid} />}
      {tab === "denials" && identity.data && <Denials of={identity.data} path={path} />}
      {tab === "token" && <Debugger identity={uid} path={sh(path)} />}
    </Page>
  );
}

const pattern = (text: string | undefined) =>
  text ? (
    <code>
      /<bdi>{text}</bdi>/
    </code>
  ) : undefined;
const exactly = (text: string | undefined) =>
  text ? (
    <code>
      <bdi>{text}</bdi>
    </code>
  ) : undefined;

/** Rule shows what a token needs to be exchanged. Patterns are written between slashes. */
function Rule({ of }: { of: Identity }) {
  const c = of.claimMatch,
    k = of.staticKeys,
    a = of.awsIdentity;
  const further = [
    ...Object.entries(c?.claims ?? {}).map(([n, v]) => [n, exactly(String(v))] as const),
    ...Object.entries(c?.claimPatterns ?? {}).map(([n, v]) => [n, pattern(String(v))] as const),
  ];
  return (
    <Section title="Rule" actions={<a href={withParams({ tab: "token" })}>Try a token</a>}>
      <Facts
        of={[
          ["Issuer", exactly(c?.issuer || k?.issuer) ?? pattern(c?.issuerPattern)],
          ["Subject", exactly(c?.subject || k?.subject) ?? pattern(c?.subjectPattern)],
          ["Audience", exactly(c?.audience || k?.audiences?.join(", ")) ?? pattern(c?.audiencePattern)],
          ["Keys end", k?.expirationTime && <Time at={k.expirationTime} />],
          ["AWS account", exactly(a?.awsAccount)],
          ["AWS resource", exactly(a?.arn) ?? pattern(a?.arnPattern)],
          ["AWS user", exactly(a?.userId) ?? pattern(a?.userIdPattern)],
          ...further.map(([n, v]): [string, typeof v] => [`Claim ${n}`, v]),
          ["Last seen", <Time at={seenTime(of)} />],
          ["Created", <Time at={of.createTime} />],
        ]}
      />
    </Section>
  );
}

/** Setup shows the text to paste where the workload runs, and whether it has exchanged a token. */
function Setup({ of }: { of: Identity }) {
  const platform = platformOf(of),
    uid = of.uid ?? "";
  const registry = useQuery(get("/oci/v1/registry", {})).data?.host ?? "";
  const api = useQuery(whoami).data?.issuer ?? location.origin;
  const refused = useQuery(denials(uid)).data?.denials ?? [];
  const seen = seenTime(of);
  useEffect(() => {
    if (seen) return;
    const timer = setInterval(() => document.visibilityState === "visible" && void changed(), 2_000);
    return () => clearInterval(timer);
  }, [seen]);
  return (
    <>
      <Section title={`For ${platform.title}`}>
        <p class="hint">Paste this where the workload is defined. It contains no secrets.</p>
        <Command text={platform.paste({ api, identity: uid, registry })} />
      </Section>
      {seen ? (
        <p class="verdict good" role="status">
          <strong>It works</strong>: a token of it was exchanged, last <Time at={seen} />.
        </p>
      ) : (
        <p class="verdict" role="status">
          <strong>Waiting</strong> for its first token. This page updates itself.{" "}
          {refused.length > 0 && (
            <>
              {many(refused.length, "token")} {refused.length === 1 ? "was" : "were"} refused:{" "}
              <a href={withParams({ tab: "denials" })}>see why</a>.
            </>
          )}
        </p>
      )}
    </>
  );
}

/** Exchanges shows the last tokens that were accepted for a workload. */
function Exchanges({ of }: { of: string }) {
  return (
    <Answer of={useQuery(exchanges(of))}>
      {({ exchanges: rows = [] }) =>
        rows.length === 0 ? (
          <Empty title="No token was exchanged lately">
            The last twenty exchanges of thirty days are kept, at most one per second.
          </Empty>
        ) : (
          <Table
            label="Exchanges"
            rows={rows}
            id={(e) => `${e.requestId} ${e.time}`}
            columns={[
              {
                name: "When",
                cell: (e) => (
                  <>
                    <Time at={e.time} />
                    {(e.count ?? 0) > 1 && <small class="line">the last of {count(e.count)} in that second</small>}
                  </>
                ),
              },
              {
                name: "Token of",
                cell: (e) => (
                  <>
                    <bdi>{e.subject}</bdi>
                    <small class="line">
                      <bdi>{e.issuer || "its own keys"}</bdi>
                    </small>
                  </>
                ),
              },
              { name: "For", cell: (e) => <bdi>{e.audience?.join(", ")}</bdi>, wide: true },
              { name: "From", cell: (e) => <code>{e.remoteAddress}</code> },
              {
                name: "Request",
                cell: (e) => (
                  <>
                    <code>{e.requestId?.slice(0, 8)}</code>
                    <Copy text={e.requestId ?? ""} what="the request id" />
                  </>
                ),
                wide: true,
              },
            ]}
          />
        )
      }
    </Answer>
  );
}

interface Fix {
  label: string;
  says: string;
  claimMatch: Match;
}

const exact = (text: string) => text.replace(/[\\.+*?()|[\]{}^$]/g, "\\$&");

/** fixes are changes of the rule that admit a refused token, if its issuer signed it and only one claim differs. */
function fixes(of: Identity, d: Schema<"holdfast.federation.v1.Denial">): Fix[] {
  const wrong = (d.checks ?? []).filter((c) => !c.ok),
    [check] = wrong;
  const rule = of.claimMatch as Match | undefined;
  if (!d.signatureVerified || !rule || wrong.length !== 1 || !check?.claim || !check.received) return [];
  const { claim, received } = check;
  if (claim === "sub" && rule.subject) {
    const rest = { ...rule };
    delete rest.subject;
    return [
      {
        label: "Expect it instead",
        says: `Tokens with the subject ${received} are exchanged, and tokens with ${rule.subject} no longer.`,
        claimMatch: { ...rest, subject: received },
      },
      {
        label: "Accept both",
        says: `Tokens with the subject ${received} are exchanged, too.`,
        claimMatch: { ...rest, subjectPattern: `${exact(rule.subject)}|${exact(received)}` },
      },
    ];
  }
  if (claim === "sub" && rule.subjectPattern)
    return [
      {
        label: "Accept both",
        says: `Tokens with the subject ${received} are exchanged, too.`,
        claimMatch: { ...rule, subjectPattern: `(${rule.subjectPattern})|${exact(received)}` },
      },
    ];
  if (rule.claims?.[claim])
    return [
      {
        label: "Expect it instead",
        says: `Tokens whose ${claim} is ${received} are exchanged, and tokens with ${rule.claims[claim]} no longer.`,
        claimMatch: { ...rule, claims: { ...rule.claims, [claim]: received } },
      },
    ];
  return [];
}

/** Denials shows the last tokens that were refused for a workload, with the result for each claim. */
function Denials({ of, path }: { of: Identity; path: string }) {
  const may = useMay();
  const uid = of.uid ?? "";
  const [fix, setFix] = useState<Fix>();
  const flag = (m: Fix["claimMatch"]) =>
    [
      m.subject && `--subject ${sh(m.subject)}`,
      m.subjectPattern && `--subject-pattern ${sh(m.subjectPattern)}`,
      ...Object.entries(m.claims ?? {}).map(([k, v]) => `--claim ${sh(`${k}=${v}`)}`),
    ]
      .filter(Boolean)
      .join(" ");
  return (
    <>
      {fix && (
        <Confirm
          title="Change the rule?"
          safe
          done="The rule was changed"
          label="Change the rule"
          keep="Leave it"
          command={`holdfast iam identities update ${sh(path)} ${flag(fix.claimMatch)}`}
          onClose={() => setFix(undefined)}
          requests={[true, undefined].map((validate_only) =>
            patch("/iam/v2beta1/identities/{uid}", {
              path: { uid },
              query: { validate_only, updateMask: "claim_match" },
              body: { claimMatch: fix.claimMatch } as Identity,
            }),
          )}
        >
          <bdi>{fix.says}</bdi> Whoever comes with such a token has all roles of this workload.
        </Confirm>
      )}
      <Answer of={useQuery(denials(uid))}>
        {({ denials: rows = [] }) =>
          rows.length === 0 ? (
            <Empty title="No token was refused lately">
              The last twenty refusals of thirty days are kept. Refusals of other identities are not shown.
            </Empty>
          ) : (
            rows.map((d) => (
              <Section key={`${d.requestId} ${d.time}`} title={d.message ?? "Refused"} actions={<Time at={d.time} />}>
                <p class="entry-links">
                  {d.remoteAddress && (
                    <span>
                      from <code>{d.remoteAddress}</code>
                    </span>
                  )}
                  {d.requestId && (
                    <span>
                      request <code>{d.requestId}</code>
                      <Copy text={d.requestId} what="the request id" />
                    </span>
                  )}
                </p>
                {!d.signatureVerified && (
                  <p class="coverage">
                    The signature is not valid, or the issuer's keys could not be read. The sender may have made up what
                    was received.
                  </p>
                )}
                <Checks of={d.checks ?? []} label={`Claims of the request ${d.requestId}`} />
                {may("identity.update", uid) && fixes(of, d).length > 0 && (
                  <p class="actions">
                    Only one claim differs:{" "}
                    {fixes(of, d).map((f) => (
                      <button key={f.label} type="button" class="small" onClick={() => setFix(f)}>
                        {f.label}…
                      </button>
                    ))}
                  </p>
                )}
              </Section>
            ))
          )
        }
      </Answer>
    </>
  );
}
