import { useState } from "preact/hooks";
import { del, type Fault, get, patch, post, type Schema } from "../../api/api";
import { nameOf, parentOf, pathOf } from "../../api/names";
import { changed, useMay, useQuery } from "../../api/query";
import { rolesHere } from "../../api/roles";
import {
  Above,
  Answer,
  AsCommand,
  Choice,
  Command,
  Confirm,
  Copy,
  Dialog,
  Empty,
  Facts,
  Field,
  Filters,
  many,
  Name,
  Page,
  Pager,
  Problem,
  Section,
  said,
  sh,
  Table,
  Tabs,
  Time,
  unsaid,
  word,
} from "../../ui";
import { base, go, param, params, withParams } from "../../ui/router";
import { Checked } from "./connect";
import { Directory } from "./directory";
import { State } from "./signin";

type Provider = Schema<"holdfast.iam.v2beta1.IdentityProvider">;
type Mapping = Schema<"holdfast.iam.v2beta1.ExternalGroupRoleMapping">;

const tabs = [
  { id: "", name: "Provider" },
  { id: "mappings", name: "Group mappings" },
  { id: "preview", name: "Who gets what" },
  { id: "directory", name: "Directory" },
];
const mappings = (identity_provider_uid: string, page_size = 50) =>
  get("/iam/v2beta1/externalGroupRoleMappings", {
    query: { identity_provider_uid, order_by: "create_time", page_size, page_token: param("page") || undefined },
  });
const test = (uid: string) => post("/signin/v1/providers:test", { body: { uid } });

export default function ProviderPage({ uid }: { uid: string }) {
  const request = get("/iam/v2beta1/identityProviders/{uid}", { path: { uid } });
  const found = useQuery(request);
  const tab = param("tab");
  const path = nameOf(uid).value?.path ?? uid;
  if (found.error)
    return (
      <Page title="Provider" above={<Above uid={uid} />}>
        <Problem error={found.error} />
      </Page>
    );
  return (
    <Page
      thing={!!found.data}
      title={found.data?.name ?? "…"}
      mark={<Copy text={uid} what="the uid of this provider" />}
      above={<Above uid={uid} />}
      lead={found.data?.description || "An identity provider"}
      actions={
        tab === "mappings" || tab === "preview" ? (
          <AsCommand command={`holdfast iam group-mappings list --provider ${sh(path)}`} request={mappings(uid)} />
        ) : tab === "directory" ? (
          <AsCommand
            command={`holdfast iam identity-providers scim status ${sh(path)}`}
            request={get("/access/v1/directories/{uid}", { path: { uid } })}
          />
        ) : (
          <AsCommand command={`holdfast iam identity-providers get ${sh(path)}`} request={request} />
        )
      }
    >
      <Tabs label="Parts of this provider" items={tabs} now={tab} href={(id) => withParams({ tab: id, in: [] })} />
      {found.data &&
        (tab === "mappings" ? (
          <Mappings of={found.data} path={path} />
        ) : tab === "preview" ? (
          <Preview of={found.data} />
        ) : tab === "directory" ? (
          <Directory uid={uid} path={path} />
        ) : (
          <>
            <About of={found.data} path={path} />
            <Test of={found.data} path={path} />
          </>
        ))}
    </Page>
  );
}

function About({ of, path }: { of: Provider; path: string }) {
  const may = useMay();
  const [asking, setAsking] = useState<"switch" | "delete">();
  const uid = of.uid ?? "";
  const off = !of.disabled;
  return (
    <Section
      title="Settings"
      actions={
        <>
          {may("identity_providers.update", uid) && (
            <button type="button" class={off ? "small" : "primary small"} onClick={() => setAsking("switch")}>
              {off ? "Disable" : "Enable"}
            </button>
          )}
          {may("identity_providers.delete", uid) && (
            <button type="button" class="danger small" onClick={() => setAsking("delete")}>
              Delete
            </button>
          )}
        </>
      }
    >
      <Facts
        of={[
          ["State", <State of={of} />],
          [
            "Issuer",
            <code>
              <bdi>{of.oidc?.issuer}</bdi>
            </code>,
          ],
          [
            "Client ID",
            <code>
              <bdi>{of.oidc?.clientId}</bdi>
            </code>,
          ],
          ["Scopes", of.oidc?.additionalScopes?.join(", ")],
          [
            "Claim with groups",
            of.oidc?.groupsClaim ? (
              <>
                the claim{" "}
                <code>
                  <bdi>{of.oidc.groupsClaim}</bdi>
                </code>
              </>
            ) : (
              "none: the provider's groups are not read"
            ),
          ],
          [
            "People are identified by",
            word(of.oidc?.correlationRule, "CORRELATION_RULE") === "oid equals external id"
              ? "their object id"
              : "their subject",
          ],
          ["PKCE", of.oidc?.pkceEnabled ? "always" : "if the provider supports it"],
          [
            "Newcomers get",
            <>
              <Name uid={of.defaultRole} quiet /> of <Name uid={parentOf(uid)} path quiet />
            </>,
          ],
          ["Changed", <Time at={of.updateTime} />],
        ]}
      />
      {asking === "switch" && (
        <Confirm
          title={off ? "Disable the provider?" : "Enable the provider?"}
          label={off ? "Disable it" : "Enable it"}
          safe={!off}
          done={off ? "The provider was disabled" : "The provider was enabled"}
          command={`holdfast iam identity-providers update ${sh(path)} --disabled=${off}`}
          onClose={() => setAsking(undefined)}
          requests={[true, undefined].map((validate_only) =>
            patch("/iam/v2beta1/identityProviders/{uid}", {
              path: { uid },
              query: { validate_only, updateMask: "disabled" },
              body: { disabled: off },
            }),
          )}
        >
          {off ? (
            "Nobody can sign in with it until it is enabled again. Existing sessions stay until they expire."
          ) : (
            <>
              From now on, all of its people can sign in, and get{" "}
              <strong>
                <Name uid={of.defaultRole} plain />
              </strong>{" "}
              of <Name uid={parentOf(uid)} path plain /> at the first time.
            </>
          )}
        </Confirm>
      )}
      {asking === "delete" && (
        <Confirm
          title="Delete the provider?"
          done="The provider was deleted"
          label="Delete it"
          keep="Keep it"
          command={`holdfast iam identity-providers delete ${sh(path)} --yes`}
          onClose={() => setAsking(undefined)}
          onLeave={() => go(`${base}/sign-in?group=${parentOf(uid)}`)}
          requests={[true, undefined].map((validate_only) =>
            del("/iam/v2beta1/identityProviders/{uid}", { path: { uid }, query: { validate_only } }),
          )}
        >
          Nobody can sign in with it any longer, and its client secret is deleted. A provider that has group mappings is
          not deleted.
        </Confirm>
      )}
    </Section>
  );
}

/** Test runs the checks that need no person, and links a trial sign-in that grants nothing. */
function Test({ of, path }: { of: Provider; path: string }) {
  return (
    <Section title="Does it work?">
      <Answer of={useQuery(test(of.uid ?? ""))}>
        {(t) => (
          <>
            <p class={t.ready ? "verdict good" : "verdict bad"} role="status">
              <strong>{t.ready ? "Yes" : "No"}</strong>:{" "}
              {t.ready ? "people can sign in with it." : "people cannot sign in with it."}
            </p>
            <Checked of={t} />
            <p>
              Try a complete sign-in. It shows the provider's claims about you and the roles that you would get, and
              grants nothing.
            </p>
            <p>
              <a class="button small" href={t.trialUrl} target="_blank" rel="noopener noreferrer">
                Try a sign-in
              </a>
            </p>
            <p class="hint">The redirect address to register there:</p>
            <Command text={t.redirectUri ?? ""} />
            <p class="hint">The same in a terminal:</p>
            <Command text={`holdfast iam identity-providers test ${sh(path)}`} />
          </>
        )}
      </Answer>
    </Section>
  );
}

function Mappings({ of, path }: { of: Provider; path: string }) {
  const may = useMay();
  const uid = of.uid ?? "";
  const [adding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState<Mapping>();
  const canDelete = may("identity_providers.delete", uid);
  return (
    <>
      {!of.oidc?.groupsClaim && (
        <p class="coverage">
          The provider's groups are not read, because no claim with groups is set:{" "}
          <code>holdfast iam identity-providers update {sh(path)} --groups-claim groups</code>
        </p>
      )}
      {may("identity_providers.create", uid) && may("role_bindings.create", uid) && (
        <p>
          <button type="button" class="primary small" onClick={() => setAdding(true)}>
            Map a group
          </button>
        </p>
      )}
      <Answer of={useQuery(mappings(uid))}>
        {({ externalGroupRoleMappings: rows = [], nextPageToken, totalCount }) => (
          <>
            {rows.length === 0 ? (
              <Empty
                title="No group of the provider is mapped"
                command={`holdfast iam group-mappings create platform-admins --provider ${sh(path)} --role editor`}
              >
                A mapping gives a role to the members of a group at the provider. It is granted and removed at each
                sign-in.
              </Empty>
            ) : (
              <Table
                label="Group mappings"
                rows={rows}
                id={(m) => m.uid ?? ""}
                columns={[
                  {
                    name: "Group at the provider",
                    roomy: true,
                    cell: (m) => (
                      <span class="name">
                        <bdi>{m.externalGroupId}</bdi>
                        <Copy
                          text={m.uid ?? ""}
                          what={`the uid of the mapping of ${m.externalGroupId?.slice(0, 40)}`}
                        />
                      </span>
                    ),
                  },
                  { name: "Role", cell: (m) => <Name uid={m.roleUid} quiet /> },
                  { name: "On", cell: (m) => <Name uid={m.scope} path quiet /> },
                  { name: "Since", cell: (m) => <Time at={m.createTime} />, wide: true },
                  {
                    name: "Who",
                    cell: (m) => <a href={withParams({ tab: "preview", in: m.externalGroupId })}>what they get</a>,
                    wide: true,
                  },
                  ...(canDelete
                    ? [
                        {
                          name: "Delete",
                          hidden: true,
                          cell: (m: Mapping) => (
                            <button
                              type="button"
                              class="danger small"
                              aria-label={`Delete the mapping of ${m.externalGroupId}`}
                              onClick={() => setDeleting(m)}
                            >
                              Delete
                            </button>
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="mapping" />
          </>
        )}
      </Answer>
      {adding && <Add of={of} path={path} onClose={() => setAdding(false)} />}
      {deleting && (
        <Confirm
          title="Delete a mapping?"
          done="The mapping was deleted"
          label="Delete the mapping"
          keep="Keep it"
          command={`holdfast iam group-mappings delete ${deleting.uid} --yes`}
          onClose={() => setDeleting(undefined)}
          requests={[true, undefined].map((validate_only) =>
            del("/iam/v2beta1/externalGroupRoleMappings/{uid}", {
              path: { uid: deleting.uid ?? "" },
              query: { validate_only },
            }),
          )}
        >
          Those in <bdi>{deleting.externalGroupId}</bdi> do not get{" "}
          <strong>
            <Name uid={deleting.roleUid} plain />
          </strong>{" "}
          any more, and those who have it through the mapping lose it at their next sign-in, unless another mapping
          gives it, too.
        </Confirm>
      )}
    </>
  );
}

/** Add is the form that maps a group. It shows the effect before it creates the mapping. */
function Add({ of, path, onClose }: { of: Provider; path: string; onClose: () => void }) {
  const roles = useQuery(rolesHere).data?.roles ?? [];
  const [group, setGroup] = useState(""),
    [role, setRole] = useState("");
  const [error, setError] = useState<Fault>();
  const [checked, setChecked] = useState(false);
  const uid = of.uid ?? "",
    organization = pathOf(uid)[0] ?? "";
  const chosen = roles.find((r) => r.uid === role) ?? roles.find((r) => r.name === "viewer");
  const send = async () => {
    setError(undefined);
    const create = (validate_only?: boolean) =>
      post("/iam/v2beta1/externalGroupRoleMappings/{uid}", {
        path: { uid },
        query: { validate_only },
        body: { externalGroupId: group.trim(), roleUid: chosen?.uid, scope: organization },
      }).send();
    try {
      await create(!checked || undefined);
      if (!checked) return setChecked(true);
      await changed();
      onClose();
    } catch (failed) {
      setChecked(false);
      setError(failed as Fault);
    }
  };
  return (
    <Dialog title="Map a group" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <Field
          name="external"
          label="Group at the provider"
          value={group}
          onInput={(v) => {
            setGroup(v);
            setChecked(false);
          }}
          required
          hint="Its name or id, exactly as in the claim. A trial sign-in shows your groups."
          error={said(error, "external_group_id")}
        />
        <Choice
          name="role"
          label="Role"
          value={chosen?.uid ?? ""}
          onChange={(v) => {
            setRole(v);
            setChecked(false);
          }}
          options={roles.map((r) => [r.uid ?? "", r.name ?? ""])}
        />
        {chosen && (
          <p class="hint">
            <bdi>{chosen.description}</bdi>
          </p>
        )}
        {checked && (
          <p class="notice" role="status">
            Everybody who is in{" "}
            <strong>
              <bdi>{group.trim()}</bdi>
            </strong>{" "}
            when they sign in with <bdi>{of.name}</bdi> gets{" "}
            <strong>
              <bdi>{chosen?.name}</bdi>
            </strong>{" "}
            of <Name uid={organization} plain /> and of everything below it:{" "}
            {many(chosen?.capabilities?.length, "capability", "capabilities")}. Whoever leaves the group loses it at the
            next sign-in.
          </p>
        )}
        <Command
          text={[
            `holdfast iam group-mappings create ${sh(group.trim() || "GROUP")}`,
            `--provider ${sh(path)} --role ${sh(chosen?.name ?? "viewer")}`,
          ].join(" ")}
        />
        {error && unsaid(error, "external_group_id") && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            {checked ? "Map it" : "Check"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Preview shows the roles of a person with some groups. The address contains the groups. */
function Preview({ of }: { of: Provider }) {
  const groups = params("in")
    .flatMap((g) => g.split(","))
    .map((g) => g.trim())
    .filter(Boolean);
  const found = useQuery(mappings(of.uid ?? "", 200));
  const organization = pathOf(of.uid ?? "")[0] ?? "";
  return (
    <>
      <Filters label="Somebody">
        <Field
          key={groups.join()}
          name="in"
          label="Groups of the person at the provider"
          value={groups.join(", ")}
          placeholder="platform-admins, everyone"
          first
          hint="Names exactly as in the claim, separated by commas."
        />
      </Filters>
      <Answer of={found}>
        {({ externalGroupRoleMappings: all = [], nextPageToken }) => {
          const theirs = all.filter((m) => groups.includes(m.externalGroupId ?? ""));
          const unknown = groups.filter((g) => !all.some((m) => m.externalGroupId === g));
          const rows = [
            { role: of.defaultRole, on: parentOf(of.uid ?? ""), why: "at the first sign-in, like everybody" },
            ...theirs.map((m) => ({
              role: m.roleUid,
              on: m.scope ?? "",
              why: `while they are in ${m.externalGroupId}`,
            })),
          ];
          return (
            <>
              <Table
                label="What they get"
                rows={rows}
                id={(r) => `${r.role} ${r.why}`}
                columns={[
                  { name: "Role", cell: (r) => <Name uid={r.role} quiet /> },
                  { name: "On", cell: (r) => <Name uid={r.on} path quiet /> },
                  { name: "Why", roomy: true, cell: (r) => <bdi>{r.why}</bdi> },
                ]}
              />
              {groups.length > 0 && unknown.length > 0 && (
                <p class="coverage">
                  No mapping names <bdi>{unknown.join(", ")}</bdi>: such groups give nothing.
                </p>
              )}
              {groups.length > 0 && !of.oidc?.groupsClaim && (
                <p class="coverage">The provider's groups are not read, because no claim with groups is set.</p>
              )}
              {nextPageToken && <p class="coverage">There are more mappings than were examined.</p>}
              <p class="hint">
                Everybody who holds these roles now:{" "}
                <a href={`${base}/groups/${organization}?tab=people`}>
                  people of <Name uid={organization} plain />
                </a>
                .
              </p>
            </>
          );
        }}
      </Answer>
    </>
  );
}
