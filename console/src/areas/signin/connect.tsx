// Connecting an identity provider, step by step. The address contains what was typed, except the secret.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Fault, post, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { changed, useMay, useQuery, whoami } from "../../api/query";
import { rolesHere } from "../../api/roles";
import {
  Above,
  AsCommand,
  Choice,
  Command,
  Empty,
  Field,
  Page,
  Problem,
  Section,
  said,
  sh,
  unsaid,
  useScope,
} from "../../ui";
import { go, param, providerPage, withParams } from "../../ui/router";
import recipes from "./recipes.json";

type Provider = Schema<"holdfast.iam.v2beta1.IdentityProvider">;
type Tested = Schema<"holdfast.signin.v1.TestIdentityProviderResponse">;
type Oidc = Schema<"holdfast.iam.v2beta1.IdentityProvider.OIDC">;

const test = (parent: string, oidc: Oidc) =>
  post("/signin/v1/providers:test", {
    body: { parent, identityProvider: { name: "wizard", defaultRole: parent, oidc } },
  }); // any name and role: later steps ask for them

const note = (name: string) => (value: string) => go(withParams({ [name]: value }), { replace: true });

export default function Connect() {
  const { group, path } = useScope();
  const may = useMay();
  const recipe = recipes.find((r) => r.name === param("recipe"));
  const issuer = param("issuer"),
    client = param("client");
  const [secret, setSecret] = useState("");
  const [known, setKnown] = useState(""); // the issuer that was tested
  const [accepted, setAccepted] = useState(""); // the client that was tested
  const oidc: Oidc = {
    issuer,
    clientId: client,
    clientSecret: secret || undefined,
    pkceEnabled: secret === "" || undefined,
    additionalScopes: recipe?.scopes,
    groupsClaim: recipe?.groups || undefined,
    correlationRule: recipe?.oid ? "CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID" : undefined,
  };
  const origin = useQuery(whoami).data?.issuer ?? location.origin;
  if (group && !may("identity_providers.create", group))
    return (
      <Page title="Connect a provider" above={<Above uid={`${group}/`} />}>
        <Empty title="You may not connect a provider here">That needs the capability identity_providers.create.</Empty>
      </Page>
    );
  return (
    <Page
      title="Connect a provider"
      above={<Above uid={`${group}/`} />}
      lead="The server tests each step before the next. Nobody can sign in with the provider until you have tested it."
      actions={
        group && (
          <AsCommand
            command="holdfast iam identity-providers redirect-address"
            request={test(group, {
              issuer: issuer || "https://login.example.com",
              clientId: "holdfast-wizard",
              pkceEnabled: true,
            })}
          />
        )
      }
    >
      <ol class="steps wizard">
        <Step n={1} title="Register Holdfast at the provider" done={!!recipe}>
          <div class="stack">
            <Choice
              name="recipe"
              label="The provider"
              value={recipe?.name ?? ""}
              onChange={note("recipe")}
              options={[["", "choose…"], ...recipes.map((r): [string, string] => [r.name, r.title])]}
            />
          </div>
          {recipe && (
            <>
              <p>Register a web client there, with this redirect address:</p>
              <Command text={`${origin}/oauth/callback`} />
              <ol class="plain">
                {recipe.steps.map((s) => (
                  <li key={s}>{s}</li>
                ))}
              </ol>
              {recipe.traps.map((t) => (
                <p key={t} class="coverage">
                  Note: {t}.
                </p>
              ))}
            </>
          )}
        </Step>
        {recipe && (
          <Step n={2} title="Its issuer" done={known !== "" && known === issuer}>
            <Trial
              label="Test the issuer"
              names={["discovery", "code", "keys"]}
              request={() => test(group, { issuer, clientId: "holdfast-wizard", pkceEnabled: true })}
              onGood={() => setKnown(issuer)}
              fields={["issuer"]}
            >
              {(fault) => (
                <Field
                  name="issuer"
                  label="Issuer"
                  value={issuer}
                  onInput={note("issuer")}
                  placeholder={recipe.issuer}
                  required
                  hint={
                    <>
                      Of the form <code>{recipe.issuer}</code>
                    </>
                  }
                  error={said(fault, "issuer")}
                />
              )}
            </Trial>
          </Step>
        )}
        {known !== "" && known === issuer && (
          <Step n={3} title="The client" done={accepted !== "" && accepted === client}>
            <Trial
              label="Test the client"
              names={["pkce", "scopes", "redirect", "client"]}
              request={() => test(group, oidc)}
              onGood={() => setAccepted(client)}
              fields={["client_id", "client_secret"]}
            >
              {(fault) => (
                <>
                  <Field
                    name="client"
                    label="Client ID"
                    value={client}
                    onInput={note("client")}
                    required
                    error={said(fault, "client_id")}
                  />
                  <Field
                    name="secret"
                    label="Client secret"
                    type="password"
                    value={secret}
                    onInput={(v) => {
                      setSecret(v);
                      setAccepted("");
                    }}
                    hint="It is stored encrypted, and never shown again. A client without a secret uses PKCE."
                    error={said(fault, "client_secret")}
                  />
                </>
              )}
            </Trial>
          </Step>
        )}
        {accepted !== "" && accepted === client && recipe && (
          <Rest group={group} path={path} recipe={recipe.name} oidc={oidc} />
        )}
      </ol>
    </Page>
  );
}

function Step({ n, title, done, children }: { n: number; title: string; done: boolean; children: ComponentChildren }) {
  return (
    <li class={done ? "done" : undefined}>
      <span class="tick" aria-hidden="true">
        {done ? "✓" : n}
      </span>
      <div>
        <Section title={title}>{children}</Section>
      </div>
    </li>
  );
}

interface TrialProps {
  label: string;
  names: string[]; // the checks of this step
  fields: string[];
  request: () => ReturnType<typeof test>;
  onGood: () => void;
  children: (fault?: Fault) => ComponentChildren;
}

/** Trial is a form whose values the server tests. */
function Trial({ label, names, fields, request, onGood, children }: TrialProps) {
  const [found, setFound] = useState<Tested>();
  const [error, setError] = useState<Fault>();
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setError(undefined);
    setBusy(true);
    try {
      const answer = await request().send();
      setFound(answer);
      const wrong = (answer.checks ?? []).filter(
        (c) => names.includes(c.name ?? "") && !c.ok && !mild.includes(c.name ?? ""),
      );
      if (wrong.length === 0) onGood();
    } catch (failed) {
      setFound(undefined);
      setError(failed as Fault);
    }
    setBusy(false);
  };
  return (
    <form
      class="stack"
      onSubmit={(e) => {
        e.preventDefault();
        void run();
      }}
    >
      {children(error)}
      <p>
        <button type="submit" class="primary small" disabled={busy}>
          {busy ? "Testing…" : label}
        </button>
      </p>
      {error && unsaid(error, ...fields) && <Problem error={error} />}
      {found && <Checked of={found} names={names} />}
    </form>
  );
}

const mild = ["scopes", "redirect"]; // problems in these checks are not failures

/** Checked shows the checks of a provider: all, or the ones with the given names. */
export function Checked({ of, names }: { of: Tested; names?: string[] }) {
  const shown = (of.checks ?? []).filter((c) => !names || names.includes(c.name ?? ""));
  return (
    <div role="status">
      <ul class="rows checks">
        {shown.map((c) => (
          <li key={c.name}>
            <span>
              <span class={c.ok ? "state active" : mild.includes(c.name ?? "") ? "hint" : "wrong"}>
                {c.ok ? "✓" : mild.includes(c.name ?? "") ? "!" : "✗"}
                <span class="sr">{c.ok ? " passed" : " failed"}</span>
              </span>{" "}
              {c.name}
            </span>
            <small>
              <bdi>{c.detail}</bdi>
            </small>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Rest asks for the name and the role, and creates the provider, which is disabled. */
function Rest({ group, path, recipe, oidc }: { group: string; path: string; recipe: string; oidc: Oidc }) {
  const roles = useQuery(rolesHere).data?.roles ?? [];
  const [error, setError] = useState<Fault>();
  const name = param("name") || recipe;
  const role = roles.find((r) => r.name === (param("role") || "viewer"));
  const create = async () => {
    setError(undefined);
    const body: Provider = { name, defaultRole: role?.uid ?? "", disabled: true, oidc };
    try {
      await post("/iam/v2beta1/identityProviders/{uid}", {
        path: { uid: group },
        query: { validate_only: true },
        body,
      }).send();
      const made = await post("/iam/v2beta1/identityProviders/{uid}", { path: { uid: group }, body }).send();
      await changed();
      go(providerPage(made.uid ?? ""));
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  return (
    <Step n={4} title="What its people get" done={false}>
      <form
        class="stack"
        onSubmit={(e) => {
          e.preventDefault();
          void create();
        }}
      >
        <Field
          name="name"
          label="Name"
          value={param("name") || recipe}
          onInput={note("name")}
          required
          error={said(error, "name")}
        />
        <Choice
          name="role"
          label="Role at the first sign-in"
          value={role?.name ?? ""}
          onChange={note("role")}
          options={roles.map((r) => [r.name ?? "", r.name ?? ""])}
        />
        <p>
          Everybody whom the provider lets in gets{" "}
          <strong>
            <bdi>{role?.name}</bdi>
          </strong>{" "}
          of <bdi>{nameOf(group).value?.path ?? path}</bdi> and of everything below it. Decide at the provider who may
          use the application.
        </p>
        {said(error, "default_role") && (
          <p class="wrong" role="alert">
            {said(error, "default_role")}
          </p>
        )}
        <Command
          text={[
            "holdfast iam identity-providers create",
            sh(name),
            "--wizard --recipe",
            recipe,
            "--parent",
            sh(path),
            "--issuer",
            sh(oidc.issuer ?? ""),
            "--client-id",
            sh(oidc.clientId ?? ""),
            oidc.clientSecret ? "--client-secret-file secret.txt" : "--pkce",
            "--default-role",
            sh(role?.name ?? "viewer"),
            "--disabled",
          ].join(" ")}
        />
        {error && unsaid(error, "name", "default_role") && <Problem error={error} />}
        <p>
          <button type="submit" class="primary small">
            Create it, disabled
          </button>
        </p>
      </form>
    </Step>
  );
}
