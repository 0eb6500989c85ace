import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { del, get, patch, post, type Schema } from "../../api/api";
import { parentOf } from "../../api/names";
import { useMay, useQuery } from "../../api/query";
import { Answer, Command, Confirm, Dialog, Empty, many, Name, Pager, sh, Table, Time } from "../../ui";
import { param } from "../../ui/router";

type Replication = Schema<"holdfast.oci.v1.Replication">;
type Tag = Schema<"holdfast.oci.v1.ReplicationTag">;
type Action = "pause" | "continue" | "run" | "preview" | "pending" | "delete";

/** replicationsOf requests the replications of a group and the groups below it. */
export const replicationsOf = (uid: string) =>
  get("/oci/v1/replications", {
    query: { "uidp.descendants_of": uid, order_by: "name", page_size: 50, page_token: param("page") || undefined },
  });

/** counted is the highest number of tags that the server counts. */
const counted = 10_000;
const atLeast = (n: string | number | undefined) => `${Number(n) >= counted ? "at least " : ""}${many(n, "tag")}`;

/** State shows what is known about a replication. Nothing pending does not mean that anything was ever copied. */
function State({ of }: { of: Replication }) {
  const states: Record<string, [word: string, look: string]> = {
    REPLICATION_STATE_IDLE: of.successTime ? ["nothing is pending", "active"] : ["has copied nothing yet", ""],
    REPLICATION_STATE_PENDING: ["tags are pending", ""],
    REPLICATION_STATE_FAILING: ["failing", "failed"],
    REPLICATION_STATE_PAUSED: ["paused", ""],
  };
  const [word, look] = states[of.state ?? ""] ?? ["not known", ""];
  return (
    <>
      <span class={`state ${look}`}>{word}</span>
      {of.lastError && (
        <small class="line">
          <bdi>{of.lastError}</bdi>, <Time at={of.lastErrorTime} />
        </small>
      )}
      {Number(of.failed ?? 0) > 0 && <small class="line">The last copy of {atLeast(of.failed)} failed</small>}
    </>
  );
}

/** Lag shows the number of pending tags, and since when the oldest waits. */
const Lag = ({ of }: { of: Replication }) =>
  of.pending === undefined ? (
    <span class="hint">not known</span>
  ) : Number(of.pending) === 0 ? (
    "none"
  ) : (
    <>
      {atLeast(of.pending)}
      {of.oldestPendingTime && (
        <small class="line">
          The oldest since <Time at={of.oldestPendingTime} />
        </small>
      )}
    </>
  );

function trigger(of: Replication): string {
  const minutes = Math.round(Number((of.interval ?? "").replace(/s$/, "")) / 60);
  const triggers: Record<string, string> = {
    REPLICATION_TRIGGER_PUSH: "after each push",
    REPLICATION_TRIGGER_SCHEDULE: minutes % 60 ? `every ${minutes} min` : `every ${minutes / 60} h`,
    REPLICATION_TRIGGER_MANUAL: "only on request",
  };
  return triggers[of.trigger ?? ""] ?? "not known";
}

/** Replications shows the registries to which the images of a group, and of the groups below it, are copied. */
export function Replications({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const [doing, setDoing] = useState<{ what: Action; to: Replication }>();
  const found = useQuery(replicationsOf(uid));
  const button = (to: Replication, what: Action, text: string) => (
    <button type="button" class="small" aria-label={`${text} ${to.name}`} onClick={() => setDoing({ what, to })}>
      {text}…
    </button>
  );
  const mayChange = may("groups.update", uid);
  return (
    <>
      <Answer of={found}>
        {({ replications = [], nextPageToken, totalCount }) => (
          <>
            {replications.length === 0 ? (
              <Empty
                title="Nothing here is copied to another registry"
                what="replications"
                needs={["registry.settings.list"]}
                group={uid}
                command={`holdfast registry replications create NAME --group ${sh(path)} --address https://registry.example.com --credentials FILE`}
              >
                A replication copies tags of the repos of a group to another registry, and keeps copying them as they
                change.
              </Empty>
            ) : (
              <Table
                label="Replications"
                rows={replications}
                id={(r) => r.uid ?? ""}
                columns={[
                  {
                    name: "Target",
                    cell: (r) => (
                      <>
                        <bdi>{r.name}</bdi>
                        <small class="line">
                          <bdi>{[r.address, r.path].filter(Boolean).join("/")}</bdi>
                        </small>
                        <small class="line">{trigger(r)}</small>
                      </>
                    ),
                  },
                  { name: "Group", wide: true, cell: (r) => <Name uid={parentOf(r.uid ?? "")} quiet /> },
                  { name: "State", cell: (r) => <State of={r} /> },
                  { name: "Pending", cell: (r) => <Lag of={r} /> },
                  { name: "Last caught up", cell: (r) => <Time at={r.successTime} /> },
                  {
                    name: "Actions",
                    hidden: true,
                    cell: (r) => (
                      <span class="bar-row">
                        {button(r, "pending", "Pending tags")}
                        {button(r, "preview", "Preview")}
                        {mayChange && button(r, "run", "Run now")}
                        {mayChange && (r.paused ? button(r, "continue", "Continue") : button(r, "pause", "Pause"))}
                        {mayChange && button(r, "delete", "Delete")}
                      </span>
                    ),
                  },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="replication" />
          </>
        )}
      </Answer>
      {doing && <Doing {...doing} onClose={() => setDoing(undefined)} />}
    </>
  );
}

/** Doing is the dialog of an action. */
function Doing({ what, to, onClose }: { what: Action; to: Replication; onClose: () => void }) {
  const uid = to.uid ?? "";
  const name = <bdi>{to.name}</bdi>;
  if (what === "pending") return <Pending uid={uid} onClose={onClose} />;
  if (what === "preview") return <Preview uid={uid} onClose={onClose} />;
  const pause = (paused: boolean) =>
    patch("/oci/v1/replications/{uid}", { path: { uid }, query: { updateMask: "paused" }, body: { paused } });
  const dialogs = {
    run: {
      title: "Run it now?",
      done: "The run was requested",
      label: "Run",
      safe: true,
      command: `holdfast registry replications run ${uid}`,
      request: post("/oci/v1/replicationRuns/{uid}", { path: { uid }, body: {} }),
      says: (
        <>All tags that {name} selects are queued. Tags that have not changed since they were copied are skipped.</>
      ),
    },
    pause: {
      title: "Pause it?",
      done: "The replication is paused",
      label: "Pause",
      safe: true,
      command: `holdfast registry replications update ${uid} --paused`,
      request: pause(true),
      says: <>{name} copies nothing until it continues. Changes are still queued.</>,
    },
    continue: {
      title: "Continue?",
      done: "The replication continues",
      label: "Continue",
      safe: true,
      command: `holdfast registry replications update ${uid} --paused=false`,
      request: pause(false),
      says: <>{name} copies what is pending, with your access from now on.</>,
    },
    delete: {
      title: "Stop copying?",
      done: "The replication was deleted",
      label: "Delete",
      safe: false,
      command: `holdfast registry replications delete ${uid} --yes`,
      request: del("/oci/v1/replications/{uid}", { path: { uid } }),
      says: <>The images that {name} has copied stay at the target. What is pending is not copied any more.</>,
    },
  };
  const { request, says, ...rest } = dialogs[what];
  return (
    <Confirm {...rest} requests={[request]} onClose={onClose}>
      <p>{says}</p>
    </Confirm>
  );
}

/** Preview shows which tags a run would copy now. */
function Preview({ uid, onClose }: { uid: string; onClose: () => void }) {
  const found = useQuery(get("/oci/v1/replicationPreviews/{uid}", { path: { uid } }));
  return (
    <Tags
      title="What a run would copy"
      command={`holdfast registry replications run ${uid} --dry-run`}
      onClose={onClose}
    >
      <Answer of={found}>
        {({ tags = [], complete, examined }) => (
          <>
            <p>
              {tags.length === 0
                ? "A run would copy none of the examined tags."
                : `A run would copy ${many(tags.length, "tag")}${complete ? "" : " or more"}.`}{" "}
              {complete
                ? `All selected tags were examined (${many(examined, "tag")}).`
                : `Not all selected tags were examined, only ${many(examined, "tag")}.`}{" "}
              The target was not asked.
            </p>
            {tags.length > 0 && <TagTable tags={tags} />}
          </>
        )}
      </Answer>
    </Tags>
  );
}

/** Pending shows the first pending tags. */
function Pending({ uid, onClose }: { uid: string; onClose: () => void }) {
  const found = useQuery(get("/oci/v1/replicationTags/{uid}", { path: { uid }, query: { page_size: 50 } }));
  return (
    <Tags title="Pending tags" command={`holdfast registry replications status ${uid}`} onClose={onClose}>
      <Answer of={found}>
        {({ tags = [], totalCount, nextPageToken }) => (
          <>
            <p>
              {tags.length === 0
                ? "No tag is pending."
                : nextPageToken
                  ? `The first ${tags.length} of ${atLeast(totalCount)}.`
                  : `${many(tags.length, "tag")}.`}
            </p>
            {tags.length > 0 && <TagTable tags={tags} />}
          </>
        )}
      </Answer>
    </Tags>
  );
}

const TagTable = ({ tags }: { tags: Tag[] }) => (
  <Table
    label="Tags"
    rows={tags}
    id={(g) => `${g.repoUid}:${g.tag}`}
    columns={[
      {
        name: "Tag",
        cell: (g) => (
          <>
            <Name uid={g.repoUid ?? ""} quiet />:<bdi>{g.tag}</bdi>
          </>
        ),
      },
      { name: "Last failure", cell: (g) => (g.error ? <bdi>{g.error}</bdi> : "none") },
      { name: "Next attempt", wide: true, cell: (g) => (g.dueTime ? <Time at={g.dueTime} /> : "none is due") },
    ]}
  />
);

interface TagsProps {
  title: string;
  command: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** Tags is a dialog with a list of tags. */
const Tags = ({ title, command, onClose, children }: TagsProps) => (
  <Dialog title={title} onClose={onClose}>
    {children}
    <Command text={command} />
    <div class="dialog-foot">
      <button type="button" onClick={onClose}>
        Done
      </button>
    </div>
  </Dialog>
);
