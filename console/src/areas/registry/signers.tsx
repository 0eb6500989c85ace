import { useState } from "preact/hooks";
import { del, type Fault, get, post, type Schema } from "../../api/api";
import { parentOf } from "../../api/names";
import { changed, useMay, useQuery } from "../../api/query";
import {
  Answer,
  Choice,
  Command,
  Confirm,
  Dialog,
  Empty,
  Field,
  Name,
  Problem,
  said,
  sh,
  Table,
  Time,
  unsaid,
} from "../../ui";

type Signer = Schema<"holdfast.oci.v1.Signer">;

/** signersOf requests the signers of a group, which has at most 20. */
export const signersOf = (uid: string) =>
  get("/oci/v1/signers", { query: { "uidp.children_of": uid, order_by: "name", page_size: 50 } });

/** Signers shows the signers of a group, or of the nearest group above it that has signers. */
export function Signers({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const [adding, setAdding] = useState(false);
  return (
    <>
      {may("policies.policy.create", uid) && (
        <div class="bar-row">
          <button type="button" class="small" onClick={() => setAdding(true)}>
            Trust a signer…
          </button>
        </div>
      )}
      <Nearest at={uid} uid={uid} path={path} />
      {adding && <New group={uid} path={path} onClose={() => setAdding(false)} />}
    </>
  );
}

/** Nearest shows the signers of the group at, or of the nearest group above it that has signers. */
function Nearest({ at, uid, path }: { at: string; uid: string; path: string }) {
  const may = useMay();
  const [removing, setRemoving] = useState<Signer>();
  const mayRemove = at === uid && may("policies.policy.delete", uid);
  return (
    <>
      <Answer of={useQuery(signersOf(at))}>
        {({ signers = [] }) => {
          if (signers.length === 0 && parentOf(at)) return <Nearest at={parentOf(at)} uid={uid} path={path} />;
          if (signers.length === 0) {
            return (
              <Empty
                title="There is no signer that you can see"
                what="signers"
                needs={["policies.policy.list"]}
                group={uid}
                command={`holdfast registry signers create release --parent ${sh(path)} --key cosign.pub`}
              >
                A signer is a person or workload whose signatures are accepted. An attached signature alone means
                nothing by itself.
              </Empty>
            );
          }
          return (
            <>
              {at !== uid && (
                <p class="hint">
                  This group has no signer that you can see, so the signers of <Name uid={at} /> apply to it.
                </p>
              )}
              <Table
                label="Signers"
                rows={signers}
                id={(s) => s.uid ?? ""}
                columns={[
                  {
                    name: "Name",
                    cell: (s) => (
                      <>
                        <bdi>{s.name}</bdi>
                        <small class="line">
                          <bdi>{s.description}</bdi>
                        </small>
                      </>
                    ),
                  },
                  {
                    name: "Signs as",
                    cell: (s) =>
                      s.key ? (
                        <>
                          a key
                          <small class="line">
                            <code>{shortKey(s.key)}</code>
                          </small>
                        </>
                      ) : (
                        <>
                          <bdi>{s.subject || s.subjectPattern}</bdi>
                          <small class="line">
                            <bdi>{s.issuer}</bdi>
                          </small>
                        </>
                      ),
                  },
                  { name: "Since", wide: true, cell: (s) => <Time at={s.createTime} /> },
                  ...(mayRemove
                    ? [
                        {
                          name: "Change",
                          hidden: true,
                          cell: (s: Signer) => (
                            <button
                              type="button"
                              class="small"
                              aria-label={`Delete ${s.name}`}
                              onClick={() => setRemoving(s)}
                            >
                              Delete…
                            </button>
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            </>
          );
        }}
      </Answer>
      {removing && (
        <Confirm
          title="Stop trusting the signer?"
          done="The signer was deleted"
          label="Delete"
          keep="Keep it"
          command={`holdfast registry signers delete ${removing.uid} --yes`}
          requests={[del("/oci/v1/signers/{uid}", { path: { uid: removing.uid ?? "" } })]}
          onClose={() => setRemoving(undefined)}
        >
          <p>
            What <bdi>{removing.name}</bdi> has signed is not signed any more, at once. Rules that refuse images without
            a signature refuse them. Without signers, a group uses the signers of the group above.
          </p>
        </Confirm>
      )}
    </>
  );
}

/** shortKey is the end of a public key, because keys of one type share their beginning. */
const shortKey = (pem: string) => `…${pem.replace(/-----[^-]+-----|\s/g, "").slice(-24)}`;

type Draft = {
  name: string;
  description: string;
  by: string;
  key: string;
  issuer: string;
  subject: string;
  pattern: boolean;
  root: string;
};

const ways: [string, string][] = [
  ["key", "its own key"],
  ["identity", "an identity, without a key"],
];

/** New is the form that adds a signer, which cannot be changed later. */
function New({ group, path, onClose }: { group: string; path: string; onClose: () => void }) {
  const [draft, setDraft] = useState<Draft>({
    name: "",
    description: "",
    by: "key",
    key: "",
    issuer: "",
    subject: "",
    pattern: false,
    root: "",
  });
  const [error, setError] = useState<Fault>();
  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const keyed = draft.by === "key";
  const save = async () => {
    setError(undefined);
    const identity = {
      issuer: draft.issuer,
      [draft.pattern ? "subjectPattern" : "subject"]: draft.subject,
      trustedRoot: draft.root,
    };
    const body: Signer = {
      name: draft.name,
      description: draft.description,
      ...(keyed ? { key: draft.key } : identity),
    };
    try {
      await post("/oci/v1/signers/{uid}", { path: { uid: group }, body }).send();
      await changed();
      onClose();
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  const flags = [
    draft.description && `--description ${sh(draft.description)}`,
    keyed && "--key FILE",
    !keyed && `--issuer ${sh(draft.issuer)}`,
    !keyed && `--subject${draft.pattern ? "-pattern" : ""} ${sh(draft.subject)}`,
    !keyed && draft.root && "--trusted-root FILE",
  ]
    .filter(Boolean)
    .join(" ");
  return (
    <Dialog title="Trust a signer" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void save();
        }}
      >
        <Field
          name="signer-name"
          label="Name"
          value={draft.name}
          placeholder="release"
          onInput={(name) => set({ name })}
          required
          error={said(error, "name")}
        />
        <Field
          name="signer-description"
          label="Description"
          value={draft.description}
          onInput={(description) => set({ description })}
          error={said(error, "description")}
        />
        <Choice name="signer-by" label="It signs with" options={ways} value={draft.by} onChange={(by) => set({ by })} />
        {keyed ? (
          <Field
            name="signer-key"
            label="Public key"
            lines={5}
            value={draft.key}
            placeholder="-----BEGIN PUBLIC KEY-----"
            onInput={(key) => set({ key })}
            required
            error={said(error, "key")}
            hint="In PEM, as cosign writes it to cosign.pub."
          />
        ) : (
          <>
            <Field
              name="signer-issuer"
              label="Issuer"
              value={draft.issuer}
              placeholder="https://token.actions.githubusercontent.com"
              onInput={(issuer) => set({ issuer })}
              required
              error={said(error, "issuer")}
            />
            <Field
              name="signer-subject"
              label="Subject"
              value={draft.subject}
              placeholder="https://github.com/acme/app/.github/workflows/release.yml@refs/heads/main"
              onInput={(subject) => set({ subject })}
              required
              error={said(error, "subject") ?? said(error, "subject_pattern")}
            />
            <label class="check">
              <input
                type="checkbox"
                checked={draft.pattern}
                onChange={(e) => set({ pattern: (e.target as HTMLInputElement).checked })}
              />
              It is a regular expression that matches the whole subject
            </label>
            <Field
              name="signer-root"
              label="Trusted root"
              lines={4}
              value={draft.root}
              onInput={(root) => set({ root })}
              error={said(error, "trusted_root")}
              hint="The content of Sigstore's trusted_root.json. If it is empty, the server's own is used."
            />
          </>
        )}
        <Command text={`holdfast registry signers create ${sh(draft.name || "NAME")} --parent ${sh(path)} ${flags}`} />
        {error &&
          unsaid(error, "name", "description", "key", "issuer", "subject", "subject_pattern", "trusted_root") && (
            <Problem error={error} />
          )}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Trust it
          </button>
        </div>
      </form>
    </Dialog>
  );
}
