import { useState } from "preact/hooks";
import { get, post, type Schema } from "../../api/api";
import { useMay, useQuery } from "../../api/query";
import { Answer, bytes, Confirm, Digest, Empty, Name, Pager, sh, Table, Time, word } from "../../ui";
import { param } from "../../ui/router";

type Entry = Schema<"holdfast.oci.v1.TrashEntry">;

/** trashOf requests the trash of a group or a repo. */
export const trashOf = (uid: string) =>
  get("/oci/v1/trash", {
    query: { "uidp.descendants_of": uid, page_size: 50, page_token: param("page") || undefined },
  });

/** Trash shows the deleted items that can be restored, the last deleted first. */
export function Trash({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const found = useQuery(trashOf(uid));
  const [restoring, setRestoring] = useState<Entry>();
  const [emptying, setEmptying] = useState(false);
  const mayRestore = may("tag.create", uid) && may("manifest.create", uid);
  const mayEmpty = ["tag.delete", "manifest.delete", "repo.delete"].every((c) => may(c, uid));
  return (
    <Answer of={found}>
      {({ entries = [], nextPageToken, totalCount }) => (
        <>
          {entries.length === 0 ? (
            <Empty
              title="Nothing here was deleted lately"
              what="the trash"
              needs={["repo.list", "tag.list"]}
              group={uid}
            >
              Tags, images and repos that are deleted can be restored for some days.
            </Empty>
          ) : (
            <>
              {mayEmpty && (
                <div class="bar-row">
                  <button type="button" class="danger small" onClick={() => setEmptying(true)}>
                    Empty the trash…
                  </button>
                </div>
              )}
              <Table
                label="Trash"
                rows={entries}
                id={(e) => e.uid ?? ""}
                columns={[
                  {
                    name: "What",
                    cell: (e) => (
                      <>
                        <bdi>{e.tag || e.repo}</bdi>
                        <small class="line">
                          {word(e.kind, "TRASH_KIND")}
                          {e.tag && (
                            <>
                              {" "}
                              of <bdi>{e.repo}</bdi>
                            </>
                          )}
                        </small>
                      </>
                    ),
                  },
                  { name: "Digest", wide: true, cell: (e) => e.digest && <Digest of={e.digest} /> },
                  { name: "Size", number: true, wide: true, cell: (e) => bytes(e.size) },
                  {
                    name: "Deleted",
                    cell: (e) => (
                      <>
                        <Time at={e.createTime} />
                        {e.actorUid && (
                          <small class="line">
                            by <Name uid={e.actorUid} quiet />
                          </small>
                        )}
                      </>
                    ),
                  },
                  { name: "Restorable until", wide: true, cell: (e) => <Time at={e.expireTime} /> },
                  ...(mayRestore
                    ? [
                        {
                          name: "Restore",
                          hidden: true,
                          cell: (e: Entry) => (
                            <button
                              type="button"
                              class="small"
                              aria-label={`Restore ${e.tag || e.repo}`}
                              onClick={() => setRestoring(e)}
                            >
                              Restore…
                            </button>
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            </>
          )}
          <Pager next={nextPageToken} total={totalCount} one="entry" more="entries" />
          {restoring && (
            <Confirm
              title="Restore it?"
              safe
              done="It was restored"
              label="Restore"
              keep="Leave it"
              command={`holdfast registry trash restore ${restoring.uid}`}
              requests={[true, false].map((validate_only) =>
                post("/oci/v1/restorations/{uid}", {
                  path: { uid: restoring.uid ?? "" },
                  body: { validateOnly: validate_only },
                }),
              )}
              onClose={() => setRestoring(undefined)}
            >
              <p>
                <bdi>{restoring.tag || restoring.repo}</bdi> is there again, as it was, with what it needs. A tag that
                points to another image now is not moved.
              </p>
            </Confirm>
          )}
          {emptying && (
            <Confirm
              title="Empty the trash?"
              done="The trash was emptied"
              label="Empty it"
              keep="Keep it"
              command={`holdfast registry trash empty ${sh(path)} --yes`}
              requests={[post("/oci/v1/emptyings/{uid}", { path: { uid }, body: {} })]}
              onClose={() => setEmptying(false)}
            >
              <p>The items cannot be restored afterwards.</p>
            </Confirm>
          )}
        </>
      )}
    </Answer>
  );
}
