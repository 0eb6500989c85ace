import { useState } from "preact/hooks";
import { del, type Fault, get, post, put, type Schema } from "../../api/api";
import { changed, useMay, useQuery } from "../../api/query";
import {
  Answer,
  bytes,
  Command,
  Confirm,
  count,
  Dialog,
  Digest,
  Empty,
  Facts,
  Field,
  many,
  Name,
  Problem,
  Section,
  said,
  sh,
  Table,
  Time,
  unsaid,
  word,
} from "../../ui";

type Rules = Schema<"holdfast.oci.v1.Retention">;
type Draft = Record<string, string | boolean>;

/** retentionOf asks for the rules that apply to a place. */
export const retentionOf = (uid: string) => get("/oci/v1/retention/{uid}", { path: { uid } });
const preview = (uid: string) => get("/oci/v1/retentionPreviews/{uid}", { path: { uid } });

/** numbers are the rules with a number, and their flags, whose values end in d for days. */
const numbers = [
  { key: "keepNewest", flag: "keep-newest", label: "Number of newest images", days: false },
  { key: "keepYoungerDays", flag: "keep-younger", label: "Younger than this many days", days: true },
  { key: "keepPulledDays", flag: "keep-pulled", label: "Pulled within this many days", days: true },
  { key: "keepMinors", flag: "keep-minors", label: "Number of last minor versions", days: false },
  { key: "everyDays", flag: "every", label: "Run automatically every this many days", days: true },
] as const;
const marks = [
  { key: "keepDeployed", flag: "keep-deployed", label: "that run" },
  { key: "keepSigned", flag: "keep-signed", label: "that are signed" },
  { key: "keepNeeded", flag: "keep-needed", label: "that other images are based on" },
] as const;

/** Retention shows which images of a repo are kept, and which would be deleted now. */
export function Retention({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const found = useQuery(retentionOf(uid));
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const mayChange = may("repo.update", uid) && may("manifest.delete", uid) && may("tag.delete", uid);
  const none = found.error?.status === 404;
  const own = !none && found.data?.sourceUid === uid;
  return (
    <>
      <Section
        title="Which images are kept"
        actions={
          mayChange && (
            <>
              {own && (
                <button type="button" class="small" onClick={() => setRemoving(true)}>
                  Remove the rules…
                </button>
              )}
              <button type="button" class="small" onClick={() => setEditing(true)}>
                {own ? "Change the rules…" : "Set rules…"}
              </button>
            </>
          )
        }
      >
        {none ? (
          <Empty
            title="Everything is kept"
            command={`holdfast registry retention set ${sh(path)} --keep-newest 10 --keep-matching 'v*'`}
          >
            Rules decide which images are kept. All others go to the trash when the rules run.
          </Empty>
        ) : (
          <Answer of={found}>
            {(r) => (
              <>
                {!own && (
                  <p class="hint">
                    These are the rules of <Name uid={r.sourceUid} path quiet />.
                  </p>
                )}
                <Facts of={facts(r)} />
              </>
            )}
          </Answer>
        )}
      </Section>
      {found.data && !none && mayChange && <Going uid={uid} path={path} />}
      {editing && <Edit uid={uid} path={path} now={(own && found.data) || {}} onClose={() => setEditing(false)} />}
      {removing && (
        <Confirm
          title="Remove the rules?"
          done="The rules were removed"
          label="Remove them"
          keep="Keep them"
          command={`holdfast registry retention delete ${sh(path)} --yes`}
          requests={[del("/oci/v1/retention/{uid}", { path: { uid } })]}
          onClose={() => setRemoving(false)}
        >
          <p>Then the rules of the group above apply, if it has any.</p>
        </Confirm>
      )}
    </>
  );
}

function facts(r: Rules): [string, preact.ComponentChildren][] {
  const all: [string, preact.ComponentChildren][] = [];
  for (const n of numbers) if (r[n.key]) all.push([n.label, count(r[n.key])]);
  if (r.keepMatching?.length) all.push(["With a tag that matches", <bdi key="m">{r.keepMatching.join(", ")}</bdi>]);
  for (const m of marks) if (r[m.key]) all.push([`Images ${m.label}`, "kept"]);
  all.push(["Changed", <Time key="t" at={r.updateTime} />]);
  return all;
}

/** Going shows the images that a run would delete now. A run deletes exactly these, or fails if they have changed. */
function Going({ uid, path }: { uid: string; path: string }) {
  const found = useQuery(preview(uid));
  const [running, setRunning] = useState(false);
  return (
    <Section
      title="Images that would be deleted now"
      actions={
        found.data?.going?.length ? (
          <button type="button" class="danger small" onClick={() => setRunning(true)}>
            Run the rules…
          </button>
        ) : undefined
      }
    >
      <Answer of={found}>
        {(plan) => (
          <>
            <p>
              {many(plan.going?.length, "image")} of {count(plan.images)} with {many(plan.tags, "tag")},{" "}
              {bytes(plan.bytes)}
              {plan.more && "; the next run deletes more"}.
            </p>
            {plan.kept?.length ? (
              <p class="hint">
                Kept: {plan.kept.map((k) => `${count(k.images)} ${word(k.reason, "KEEP_REASON")}`).join(", ")}.
              </p>
            ) : undefined}
            {plan.going?.length ? (
              <Table
                label="Images that would be deleted"
                rows={plan.going}
                id={(i) => i.digest ?? ""}
                columns={[
                  { name: "Image", cell: (i) => <Digest of={i.digest} repo={uid} /> },
                  {
                    name: "Tags",
                    cell: (i) => (
                      <bdi>
                        {(i.tags ?? []).slice(0, 3).join(", ") || "none"}
                        {(i.tags?.length ?? 0) > 3 && `, and ${count((i.tags?.length ?? 0) - 3)} more`}
                      </bdi>
                    ),
                  },
                  { name: "With it", number: true, wide: true, cell: (i) => count(i.withDigests?.length) },
                  { name: "Size", number: true, wide: true, cell: (i) => bytes(i.size) },
                  { name: "Pushed", cell: (i) => <Time at={i.pushTime} /> },
                  {
                    name: "Last pulled",
                    wide: true,
                    cell: (i) =>
                      i.pullTime ? (
                        <>
                          <Time at={i.pullTime} />
                          {i.pullerUid && (
                            <small class="line">
                              by <Name uid={i.pullerUid} quiet />
                            </small>
                          )}
                        </>
                      ) : (
                        "not known"
                      ),
                  },
                ]}
              />
            ) : (
              <Empty title="Nothing would be deleted" />
            )}
            {running && (
              <Confirm
                title={`Delete ${many(plan.going?.length, "image")}?`}
                label="Delete"
                keep="Keep them"
                command={`holdfast registry retention run ${sh(path)} --fingerprint ${plan.fingerprint} --yes`}
                requests={[
                  post("/oci/v1/retentionRuns/{uid}", { path: { uid }, body: { fingerprint: plan.fingerprint ?? "" } }),
                ]}
                onClose={() => setRunning(false)}
              >
                <p>
                  {many(plan.going?.length, "image")} with {many(plan.tags, "tag")} are deleted, exactly as shown.{" "}
                  {plan.restorableDays
                    ? `They can be restored from the trash for ${many(plan.restorableDays, "day")}.`
                    : "They cannot be restored."}
                </p>
              </Confirm>
            )}
          </>
        )}
      </Answer>
    </Section>
  );
}

/** Edit is the form that sets all rules of a group or repo. */
function Edit({ uid, path, now, onClose }: { uid: string; path: string; now: Rules; onClose: () => void }) {
  const [draft, setDraft] = useState<Draft>(() => ({
    keepMatching: (now.keepMatching ?? []).join(" "),
    ...Object.fromEntries(numbers.map((n) => [n.key, now[n.key] ? String(now[n.key]) : ""])),
    ...Object.fromEntries(marks.map((m) => [m.key, now[m.key] ?? false])),
  }));
  const [error, setError] = useState<Fault>();
  const matching = String(draft.keepMatching).split(/\s+/).filter(Boolean);
  const flags = [
    ...numbers.filter((n) => draft[n.key]).map((n) => `--${n.flag} ${sh(String(draft[n.key]))}${n.days ? "d" : ""}`),
    ...matching.map((m) => `--keep-matching ${sh(m)}`),
    ...marks.filter((m) => draft[m.key]).map((m) => `--${m.flag}`),
  ];
  const save = async () => {
    setError(undefined);
    const body = {
      keepMatching: matching,
      ...Object.fromEntries(numbers.map((n) => [n.key, Number(draft[n.key] || 0)])),
      ...Object.fromEntries(marks.map((m) => [m.key, draft[m.key] === true])),
    } as Rules;
    try {
      await put("/oci/v1/retention/{uid}", { path: { uid }, body }).send();
      await changed();
      onClose();
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  const fields = ["keep_matching", ...numbers.map((n) => snake(n.key))];
  return (
    <Dialog title="Which images are kept" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void save();
        }}
      >
        <p>An image is kept if at least one rule keeps it.</p>
        <Field
          name="matching"
          label="With a tag that matches one of these patterns"
          value={String(draft.keepMatching)}
          placeholder="v* latest"
          onInput={(v) => setDraft({ ...draft, keepMatching: v })}
          error={said(error, "keep_matching")}
        />
        {numbers.map((n) => (
          <Field
            key={n.key}
            name={n.flag}
            label={n.label}
            value={String(draft[n.key])}
            placeholder="0"
            onInput={(v) => setDraft({ ...draft, [n.key]: v.replace(/\D/g, "") })}
            error={said(error, snake(n.key))}
          />
        ))}
        {marks.map((m) => (
          <label key={m.key} class="check">
            <input
              type="checkbox"
              checked={draft[m.key] === true}
              onChange={(e) => setDraft({ ...draft, [m.key]: (e.target as HTMLInputElement).checked })}
            />
            Keep images {m.label}
          </label>
        ))}
        <Command text={`holdfast registry retention set ${sh(path)} ${flags.join(" ")}`} />
        {error && unsaid(error, ...fields) && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Set the rules
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** snake is the name of a field in errors. */
const snake = (key: string) => key.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
