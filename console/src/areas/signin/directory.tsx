// The company directory of a provider: its state, the changes that it holds, and how to connect one.
import { useState } from "preact/hooks";
import { get, patch, type Schema } from "../../api/api";
import { useMay, useQuery } from "../../api/query";
import { Answer, Command, Confirm, Facts, many, Section, sh, Table, Time, word } from "../../ui";

type State = Schema<"holdfast.access.v1.Directory">;
type Held = Schema<"holdfast.access.v1.HeldChange">;

const steps = [
  {
    name: "Microsoft Entra ID",
    steps: [
      "Enterprise applications, your application, Provisioning: choose Automatic.",
      "Tenant URL is the address, and Secret token is the token. Test the connection.",
      "Mappings: map externalId to objectId. The default, mailNickname, is wrong.",
      "Assign the people and the groups whose members get roles, and start the provisioning.",
    ],
  },
  {
    name: "Okta",
    steps: [
      "Applications, your application, General: enable SCIM provisioning.",
      "Provisioning, Integration: Base URL is the address, and the unique identifier is userName.",
      "Authentication mode is HTTP Header, with the token.",
      "Choose Push New Users, Push Profile Updates and Push Groups, and select the groups on the tab Push Groups.",
    ],
  },
];

export function Directory({ uid, path }: { uid: string; path: string }) {
  return (
    <Answer of={useQuery(get("/access/v1/directories/{uid}", { path: { uid } }))}>
      {(d) => (
        <>
          {Number(d.heldCount ?? 0) > 0 && <HeldChanges of={d} uid={uid} path={path} />}
          <About of={d} />
          <Connect of={d} path={path} />
        </>
      )}
    </Answer>
  );
}

const About = ({ of }: { of: State }) => (
  <Section title="Directory">
    <Facts
      of={[
        ["State", of.enabled ? "enabled" : "disabled: its calls are refused"],
        ["Token", word(of.credentialState, "CREDENTIAL_STATE")],
        ["Used", of.tokenUseTime ? <Time at={of.tokenUseTime} /> : "never"],
        ["Users", many(Number(of.userCount ?? 0), "user")],
        ["Teams", many(Number(of.teamCount ?? 0), "team")],
        ["Mappings apply to", of.roleSource === "ROLE_SOURCE_TEAMS" ? "its teams" : "the groups in claims"],
        [
          "Who can sign in",
          of.required ? "only active users of the directory" : "everybody whom the directory has not deactivated",
        ],
        [
          "Changes are held",
          `if more than ${of.holdPercent} % of its people, and at least ${of.holdMinimum}, would lose access in an hour`,
        ],
      ]}
    />
  </Section>
);

const kinds: Record<string, string> = {
  KIND_DEACTIVATION: "deactivate",
  KIND_DELETION: "delete",
  KIND_UNLINKING: "change the external id",
};

/** HeldChanges shows changes that wait for a decision. Nothing of them is done. */
function HeldChanges({ of, uid, path }: { of: State; uid: string; path: string }) {
  const may = useMay();
  const [asking, setAsking] = useState<"CONFIRM" | "DISCARD">();
  const rows = of.heldChanges ?? [];
  const total = Number(of.heldCount ?? 0);
  const confirms = asking === "CONFIRM";
  return (
    <Section
      title="Held changes"
      actions={
        may("identity_providers.scim.manage", uid) && (
          <>
            <button type="button" class="small" onClick={() => setAsking("DISCARD")}>
              Discard
            </button>
            <button type="button" class="danger small" onClick={() => setAsking("CONFIRM")}>
              Confirm
            </button>
          </>
        )
      }
    >
      <p class="verdict bad" role="status">
        <strong>The directory takes away the access of many people.</strong> {many(total, "change")} wait for an owner.
        Nothing of them is done: the people still have access.
      </p>
      <Table
        label="Held changes"
        rows={rows}
        id={(h: Held) => h.externalId ?? ""}
        columns={[
          { name: "Person", roomy: true, cell: (h) => <bdi>{h.identityName || "hidden from you"}</bdi> },
          { name: "The directory wants to", cell: (h) => kinds[h.kind ?? ""] ?? "take away the access" },
          { name: "Sent", cell: (h) => <Time at={h.createTime} /> },
        ]}
      />
      {total > rows.length && <p class="hint">The {rows.length} oldest ones are shown.</p>}
      {asking && (
        <Confirm
          title={confirms ? "Take away the access of these people?" : "Discard the held changes?"}
          label={confirms ? "Take it away" : "Discard them"}
          safe={!confirms}
          done={confirms ? "The changes were made" : "The changes were discarded"}
          command={`holdfast iam identity-providers scim held ${sh(path)} --${asking.toLowerCase()}`}
          onClose={() => setAsking(undefined)}
          requests={[
            patch("/access/v1/directories/{uid}", {
              path: { uid },
              query: { held_decision: confirms ? "HELD_DECISION_CONFIRM" : "HELD_DECISION_DISCARD" },
              body: { etag: of.etag },
            }),
          ]}
        >
          {confirms
            ? "The 500 oldest changes are made. The sessions and tokens of these people end."
            : "The people keep their access. Correct the directory first: it may send the changes again."}
        </Confirm>
      )}
    </Section>
  );
}

const Connect = ({ of, path }: { of: State; path: string }) => (
  <Section title="Connect a directory">
    <p>Create a token, which is shown once, and enable the directory:</p>
    <Command text={`holdfast iam identity-providers scim token ${sh(path)}`} />
    <Command text={`holdfast iam identity-providers scim enable ${sh(path)}`} />
    <p>Enter the token and this address at the directory:</p>
    <Command text={of.endpointUrl ?? ""} />
    {steps.map((s) => (
      <section key={s.name}>
        <h3>{s.name}</h3>
        <ol>
          {s.steps.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ol>
      </section>
    ))}
  </Section>
);
