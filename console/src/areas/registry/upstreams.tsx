import { useState } from "preact/hooks";
import { del, type Fault, get, patch, post, type Schema } from "../../api/api";
import { parentOf } from "../../api/names";
import { changed, useMay, useQuery } from "../../api/query";
import {
  Answer,
  Command,
  Confirm,
  Dialog,
  Empty,
  Field,
  Name,
  Pager,
  Problem,
  said,
  sh,
  Table,
  Time,
  unsaid,
} from "../../ui";
import { param } from "../../ui/router";

type Upstream = Schema<"holdfast.oci.v1.Upstream">;

/** upstreamsOf requests the upstreams of a group and the groups below it. */
export const upstreamsOf = (uid: string) =>
  get("/oci/v1/upstreams", {
    query: { "uidp.descendants_of": uid, order_by: "name", page_size: 50, page_token: param("page") || undefined },
  });

/** Upstreams shows the registries that a group, and the groups below it, fetch images from. */
export function Upstreams({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const [editing, setEditing] = useState<Upstream>();
  const [removing, setRemoving] = useState<Upstream>();
  const found = useQuery(upstreamsOf(uid));
  const own = found.data?.upstreams?.some((u) => parentOf(u.uid ?? "") === uid);
  const mayChange = may("groups.update", uid);
  return (
    <>
      {mayChange && found.data && !own && (
        <div class="bar-row">
          <button type="button" class="small" onClick={() => setEditing({})}>
            Fetch from a registry…
          </button>
        </div>
      )}
      <Answer of={found}>
        {({ upstreams = [], nextPageToken, totalCount }) => (
          <>
            {upstreams.length === 0 ? (
              <Empty
                title="Nothing here is fetched from another registry"
                what="upstreams"
                needs={["registry.settings.list"]}
                group={uid}
                command={`holdfast registry upstreams create docker.io --group ${sh(path)} --names 'library/*'`}
              >
                A group with an upstream fetches images from that registry when they are pulled, and stores them.
                Nothing can be pushed to it.
              </Empty>
            ) : (
              <Table
                label="Upstreams"
                rows={upstreams}
                id={(u) => u.uid ?? ""}
                columns={[
                  {
                    name: "Registry",
                    cell: (u) => (
                      <>
                        <bdi>{u.name}</bdi>
                        <small class="line">
                          <bdi>{u.address}</bdi>
                        </small>
                      </>
                    ),
                  },
                  { name: "Group", cell: (u) => <Name uid={parentOf(u.uid ?? "")} quiet /> },
                  {
                    name: "Last asked",
                    cell: (u) =>
                      u.lastFailure ? (
                        <>
                          <span class="state failed">failed</span>
                          <small class="line">
                            <bdi>{u.lastFailure}</bdi>, <Time at={u.lastFailureTime} />
                          </small>
                        </>
                      ) : (
                        "no failure"
                      ),
                  },
                  { name: "Repos", wide: true, cell: (u) => <bdi>{(u.names ?? []).join(", ") || "all"}</bdi> },
                  { name: "Tags cached for", wide: true, cell: (u) => period(u.freshFor) },
                  {
                    name: "Signs in",
                    wide: true,
                    cell: (u) => (u.identity ? "as an identity" : u.hasCredentials ? "with a password" : "no"),
                  },
                  ...(mayChange
                    ? [
                        {
                          name: "Change",
                          hidden: true,
                          cell: (u: Upstream) => (
                            <span class="bar-row">
                              <button
                                type="button"
                                class="small"
                                aria-label={`Change ${u.name}`}
                                onClick={() => setEditing(u)}
                              >
                                Change…
                              </button>
                              <button
                                type="button"
                                class="small"
                                aria-label={`Delete ${u.name}`}
                                onClick={() => setRemoving(u)}
                              >
                                Delete…
                              </button>
                            </span>
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="upstream" />
          </>
        )}
      </Answer>
      {editing && <Edit group={uid} path={path} now={editing} onClose={() => setEditing(undefined)} />}
      {removing && (
        <Confirm
          title="Stop fetching from it?"
          done="The upstream was deleted"
          label="Delete"
          keep="Keep it"
          command={`holdfast registry upstreams delete ${removing.uid} --yes`}
          requests={[del("/oci/v1/upstreams/{uid}", { path: { uid: removing.uid ?? "" } })]}
          onClose={() => setRemoving(undefined)}
        >
          <p>
            Images that were fetched from <bdi>{removing.name}</bdi> stay. Other images are no longer found, and images
            can be pushed to the group.
          </p>
        </Confirm>
      )}
    </>
  );
}

/** minutes is a duration of the API, such as 3600s, in minutes. */
const minutes = (duration?: string) => Math.round(Number((duration ?? "").replace(/s$/, "")) / 60);
const period = (duration?: string) => {
  const m = minutes(duration);
  return m % 60 || m === 0 ? `${m} min` : `${m / 60} h`;
};

type Draft = {
  name: string;
  address: string;
  names: string;
  fresh: string;
  realm: string;
  credentials: string;
  anyone: boolean;
  forget: boolean;
};

/** Edit creates or changes an upstream. Credentials can be entered, but are never shown. */
function Edit({ group, path, now, onClose }: { group: string; path: string; now: Upstream; onClose: () => void }) {
  const [read] = useState(now); // the upstream when the dialog was opened
  const [draft, setDraft] = useState<Draft>(() => ({
    name: read.name ?? "",
    address: read.address ?? "",
    names: (read.names ?? []).join(" "),
    fresh: read.freshFor ? String(minutes(read.freshFor)) : "",
    realm: read.realm ?? "",
    credentials: "",
    anyone: read.anyone ?? false,
    forget: false,
  }));
  const [error, setError] = useState<Fault>();
  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const names = draft.names.split(/\s+/).filter(Boolean);
  const isNew = !read.uid;
  const moves =
    !isNew &&
    read.hasCredentials &&
    (draft.address !== read.address || draft.realm !== (read.realm ?? "")) &&
    !draft.credentials;
  const save = async () => {
    setError(undefined);
    const body: Upstream = {
      name: draft.name,
      address: draft.address,
      names,
      realm: draft.realm,
      anyone: draft.anyone,
      credentials: draft.credentials,
      ...(draft.fresh && { freshFor: `${Number(draft.fresh) * 60}s` }),
    };
    const mask = [
      "name",
      "address",
      "names",
      "realm",
      "anyone",
      "fresh_for",
      ...(draft.credentials || draft.forget ? ["credentials"] : []),
    ];
    try {
      await (isNew
        ? post("/oci/v1/upstreams/{uid}", { path: { uid: group }, body })
        : patch("/oci/v1/upstreams/{uid}", {
            path: { uid: read.uid ?? "" },
            query: { updateMask: mask.join(",") },
            body,
            version: read.updateTime,
          })
      ).send();
      await changed();
      onClose();
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  const flags = [
    draft.address && `--address ${sh(draft.address)}`,
    ...names.map((n) => `--names ${sh(n)}`),
    draft.fresh && `--fresh-for ${sh(draft.fresh)}m`,
    draft.realm && `--realm ${sh(draft.realm)}`,
    draft.credentials && "--credentials FILE",
    draft.anyone && "--anyone",
  ]
    .filter(Boolean)
    .join(" ");
  return (
    <Dialog title={isNew ? "Fetch from a registry" : "Change the upstream"} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void save();
        }}
      >
        <Field
          name="upstream-name"
          label="Name"
          value={draft.name}
          placeholder="docker.io"
          onInput={(name) => set({ name })}
          required
          error={said(error, "name")}
        />
        <Field
          name="upstream-address"
          label="Address, if it differs from the name"
          value={draft.address}
          placeholder="https://registry.example.com"
          onInput={(address) => set({ address })}
          error={said(error, "address")}
        />
        <Field
          name="upstream-names"
          label="Patterns of the repos that are fetched"
          value={draft.names}
          placeholder="library/* acme/** !acme/secret"
          onInput={(v) => set({ names: v })}
          error={said(error, "names")}
          hint="If it is empty, all repos."
        />
        <Field
          name="upstream-fresh"
          label="Minutes for which a tag is cached"
          value={draft.fresh}
          placeholder="60"
          onInput={(v) => set({ fresh: v.replace(/\D/g, "") })}
          error={said(error, "fresh_for")}
        />
        <Field
          name="upstream-credentials"
          type="password"
          label="User and password, with a colon between"
          value={draft.credentials}
          onInput={(credentials) => set({ credentials, forget: false })}
          error={said(error, "credentials")}
          hint={
            moves
              ? "The password is deleted, because the address changes. Enter it again to keep it."
              : read.hasCredentials
                ? "A password is stored, which is not shown. Leave this empty to keep it."
                : "It is stored encrypted, and never shown."
          }
        />
        {read.hasCredentials && (
          <label class="check">
            <input
              type="checkbox"
              checked={draft.forget}
              onChange={(e) => set({ forget: (e.target as HTMLInputElement).checked, credentials: "" })}
            />
            Remove the password
          </label>
        )}
        <Field
          name="upstream-realm"
          label="Address of its token service, if it is at another host"
          value={draft.realm}
          onInput={(realm) => set({ realm })}
          error={said(error, "realm")}
          hint="The password is sent there, too."
        />
        <label class="check">
          <input
            type="checkbox"
            checked={draft.anyone}
            onChange={(e) => set({ anyone: (e.target as HTMLInputElement).checked })}
          />
          Also fetch for anonymous pulls of public repos
        </label>
        <Command
          text={
            isNew
              ? `holdfast registry upstreams create ${sh(draft.name || "NAME")} --group ${sh(path)} ${flags}`
              : `holdfast registry upstreams update ${read.uid} --name ${sh(draft.name)} ${flags}`
          }
        />
        {error && unsaid(error, "name", "address", "names", "fresh_for", "credentials", "realm") && (
          <Problem error={error} />
        )}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            {isNew ? "Fetch from it" : "Save"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
