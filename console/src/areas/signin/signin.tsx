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
  NoRole,
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

/** State shows whether people can sign in with a provider. */
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
      lead="How the people of an organization sign in, and which roles they get."
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
      <Tabs label="Parts of sign-in" items={tabs} now={tab} href={(id) => withParams({ tab: id })} />
      {nothing && <NoRole />}
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
                what="identity providers"
                needs={["identity_providers.list"]}
                group={group}
                command={`holdfast iam identity-providers create --wizard --parent ${sh(path)}`}
              >
                With a provider, people sign in with their existing accounts at Entra ID, Okta, Google, Keycloak, GitLab
                or another OpenID Connect provider.
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

/** Accounts shows and changes the rule whether local accounts can sign in. */
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
                ? "Switch them off once everybody signs in with a provider. This is refused until an owner has done so."
                : "Owners still can, until an owner has signed in with a provider."}
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
                safe={!on}
                done={on ? "Accounts were switched off" : "Accounts were switched on"}
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
                {on ? (
                  <>
                    Nobody can sign in with a password or a passkey of this server any longer. People without a provider
                    are locked out. Existing sessions stay until they expire.
                  </>
                ) : (
                  "Everybody with a local account can sign in with its password or passkey again."
                )}
              </Confirm>
            )}
          </>
        )}
      </Answer>
    </Section>
  );
}

/** Domain shows who can find the organization by the domain of an e-mail address. */
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
                  The operator has confirmed the name. A person whose verified address ends in{" "}
                  <code>
                    @<bdi>{g.name}</bdi>
                  </code>{" "}
                  finds the organization, and can ask to join. An address alone lets nobody in.
                </>
              ) : (
                <>
                  The operator of this server has not confirmed the organization's name, so nobody can find it by the
                  domain of an address.
                </>
              )}
            </p>
          </>
        )}
      </Answer>
    </Section>
  );
}
