import { useState } from "preact/hooks";
import { get, patch, type Schema } from "../../api/api";
import { parentOf, pathOf } from "../../api/names";
import { useMay, useQuery } from "../../api/query";
import {
  Answer,
  AsCommand,
  Confirm,
  Copy,
  Empty,
  Facts,
  Name,
  Page,
  Pager,
  Scope,
  Section,
  sh,
  Table,
  Tabs,
  Time,
  useScope,
} from "../../ui";
import { base, param, providerPage, withParams } from "../../ui/router";

type Provider = Schema<"holdfast.iam.v2beta1.IdentityProvider">;

const tabs = [
  { id: "", name: "Providers" },
  { id: "rules", name: "Rules and domain" },
];
const providers = (group: string) =>
  get("/iam/v2beta1/identityProviders", {
    query: {
      "uidp.descendants_of": group,
      order_by: param("order") || "name",
      page_size: 50,
      page_token: param("page") || undefined,
    },
  });
const rules = (uid: string) => get("/signin/v1/rules/{uid}", { path: { uid } });

/** State says whether people can sign in with a provider. */
export const State = ({ of }: { of: Provider }) => (
  <span class={`state ${of.disabled ? "" : "active"}`}>
    {of.disabled ? "disabled" : "in use"}
    {of.trusted ? ", trusted by the operator" : ""}
  </span>
);

export default function SignIn() {
  const { group, path, nothing } = useScope();
  const tab = param("tab");
  const organization = pathOf(group)[0] ?? "";
  const name = path.split("/")[0] ?? "";
  return (
    <Page
      title="Sign-in"
      lead="How the people of an organization prove who they are, and what they get for it."
      actions={
        group &&
        (tab === "rules" ? (
          <AsCommand request={rules(organization)} />
        ) : (
          <AsCommand command={`holdfast iam identity-providers list --parent ${sh(path)}`} request={providers(group)} />
        ))
      }
    >
      <Scope path={path} />
      <Tabs label="Of signing in" items={tabs} now={tab} href={(id) => withParams({ tab: id })} />
      {nothing && <Empty title="You are in no organization yet">Ask somebody who owns one for an invite.</Empty>}
      {group &&
        (tab === "rules" ? (
          <>
            <Accounts uid={organization} name={name} />
            <Domain uid={organization} />
          </>
        ) : (
          <Providers group={group} path={path} />
        ))}
    </Page>
  );
}

function Providers({ group, path }: { group: string; path: string }) {
  const may = useMay();
  return (
    <>
      {may("identity_providers.create", group) && (
        <p>
          <a class="button primary small" href={`${base}/sign-in/new?group=${group}`}>
            Connect a provider
          </a>
        </p>
      )}
      <Answer of={useQuery(providers(group))}>
        {({ identityProviders = [], nextPageToken, totalCount }) => (
          <>
            {identityProviders.length === 0 ? (
              <Empty
                title="No provider is connected"
                command={`holdfast iam identity-providers create --wizard --parent ${sh(path)}`}
              >
                With one, people sign in with the account that they have at Entra ID, Okta, Google, Keycloak, GitLab or
                another OpenID Connect provider.
              </Empty>
            ) : (
              <Table
                label="Providers"
                rows={identityProviders}
                id={(p) => p.uid ?? ""}
                columns={[
                  {
                    name: "Name",
                    order: "name",
                    cell: (p) => (
                      <span class="name">
                        <a href={providerPage(p.uid ?? "")}>
                          <bdi>{p.name}</bdi>
                        </a>
                        <Copy text={p.uid ?? ""} what={`the uid of ${p.name?.slice(0, 40)}`} />
                      </span>
                    ),
                  },
                  { name: "Issuer", roomy: true, cell: (p) => <bdi>{p.oidc?.issuer}</bdi> },
                  { name: "People get", cell: (p) => <Name uid={p.defaultRole} quiet /> },
                  { name: "State", cell: (p) => <State of={p} /> },
                  { name: "In", cell: (p) => <Name uid={parentOf(p.uid ?? "")} path quiet />, wide: true },
                  { name: "Changed", order: "update_time", cell: (p) => <Time at={p.updateTime} />, wide: true },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="provider" />
          </>
        )}
      </Answer>
    </>
  );
}

/** Accounts is the rule whether passwords and passkeys that are kept here are good for signing in. */
function Accounts({ uid, name }: { uid: string; name: string }) {
  const may = useMay();
  const [switching, setSwitching] = useState(false);
  return (
    <Section title="Accounts of this server">
      <Answer of={useQuery(rules(uid))}>
        {({ localAccounts: on = false }) => (
          <>
            <Facts of={[["Can sign in", on ? "yes, with a password or a passkey" : "no, only through a provider"]]} />
            <p class="hint">
              {on
                ? "Switch them off once everybody comes through a provider. That is refused until an owner has."
                : "An owner still can, as long as no owner has come through a provider."}
            </p>
            {may("identity_providers.update", uid) && (
              <p>
                <button type="button" class={on ? "danger small" : "small"} onClick={() => setSwitching(true)}>
                  {on ? "Switch accounts off" : "Switch accounts on"}
                </button>
              </p>
            )}
            {switching && (
              <Confirm
                title={on ? "Switch accounts off?" : "Switch accounts on?"}
                label={on ? "Switch them off" : "Switch them on"}
                command={`holdfast iam accounts ${on ? "disable" : "enable"} ${sh(name)}`}
                onClose={() => setSwitching(false)}
                requests={[true, undefined].map((validate_only) =>
                  patch("/signin/v1/rules/{uid}", {
                    path: { uid },
                    query: { validate_only },
                    body: { localAccounts: !on },
                  }),
                )}
              >
                {on
                  ? "Passwords and passkeys that are kept here stop being good for signing in. Whoever has no provider is locked out. Sessions go on until they end."
                  : "Whoever has an account here can sign in with its password or passkey again."}
              </Confirm>
            )}
          </>
        )}
      </Answer>
    </Section>
  );
}

/** Domain says who finds the organization by the domain of their address. */
function Domain({ uid }: { uid: string }) {
  return (
    <Section title="Domain">
      <Answer of={useQuery(get("/iam/v2beta1/groups/{uid}", { path: { uid } }))}>
        {(g) => (
          <>
            <Facts
              of={[
                ["Name", <bdi>{g.name}</bdi>],
                ["Verified", g.verified ? "yes" : "no"],
              ]}
            />
            <p class="hint">
              {g.verified ? (
                <>
                  The operator has confirmed the name. Somebody whose verified address ends in{" "}
                  <code>
                    @<bdi>{g.name}</bdi>
                  </code>{" "}
                  finds the organization, and can ask to be let in; nobody is let in by an address alone.
                </>
              ) : (
                "The operator of this server has not confirmed that the organization is who its name says. So nobody finds it by the domain of their address."
              )}
            </p>
          </>
        )}
      </Answer>
    </Section>
  );
}
