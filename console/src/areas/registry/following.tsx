import { useState } from "preact/hooks";
import { type Fault, get, patch, post, type Schema } from "../../api/api";
import { changed, useMay, useQuery } from "../../api/query";
import { Answer, Confirm, Name, Problem, sh, Time } from "../../ui";

type State = Schema<"holdfast.oci.v1.Sync">["state"];

const states: Record<string, [word: string, look: string]> = {
  SYNC_STATE_EQUAL: ["equal to it", "active"],
  SYNC_STATE_QUEUED: ["waits to be made equal", ""],
  SYNC_STATE_IN_PROGRESS: ["is being made equal", ""],
  SYNC_STATE_FAILED: ["not equal to it", "failed"],
};
const said = (state: State) => states[state ?? ""] ?? ["not known", ""];

/** Following shows the source of a repo and its sync status. */
export function Following({ uid, path }: { uid: string; path: string }) {
  const may = useMay();
  const [stopping, setStopping] = useState(false);
  const [error, setError] = useState<Fault>();
  const found = useQuery(get("/oci/v1/syncs/{uid}", { path: { uid } }));
  const compare = async () => {
    setError(undefined);
    try {
      await post("/oci/v1/syncRuns/{uid}", { path: { uid }, body: {} }).send();
      await changed();
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  return (
    <section aria-label="Following">
      <Answer of={found}>
        {(s) => (
          <p>
            Follows <Name uid={s.sourceUid ?? ""} />:{" "}
            <span class={`state ${said(s.state)[1]}`}>{said(s.state)[0]}</span>
            {s.stateTime && (
              <>
                {" "}
                since <Time at={s.stateTime} />
              </>
            )}
            {s.error && (
              <>
                , because <bdi>{s.error}</bdi>
              </>
            )}
            {(s.failedTags ?? []).length > 0 && (
              <small class="line">
                Among them <bdi>{s.failedTags?.join(", ")}</bdi>
              </small>
            )}
            {s.setByUid && (
              <small class="line">
                With the permissions of <Name uid={s.setByUid} quiet />
                {s.expirationTime && (
                  <>
                    . It ends <Time at={s.expirationTime} /> if they may not any more
                  </>
                )}
              </small>
            )}
          </p>
        )}
      </Answer>
      {error && <Problem error={error} />}
      {may("repo.update", uid) && found.data && (
        <div class="bar-row">
          <button type="button" class="small" onClick={() => void compare()}>
            Compare now
          </button>
          <button type="button" class="small" onClick={() => setStopping(true)}>
            Stop syncing…
          </button>
        </div>
      )}
      {stopping && (
        <Confirm
          title="Stop syncing?"
          done="The repo no longer syncs"
          label="Stop syncing"
          keep="Continue"
          command={`holdfast registry sync stop ${sh(path)}`}
          requests={[
            patch("/registry/v2beta1/repos/{uid}", {
              path: { uid },
              query: { updateMask: "sync_config" },
              body: { name: "" },
            }),
          ]}
          onClose={() => setStopping(false)}
        >
          <p>The repo keeps its tags, and can be pushed to again.</p>
        </Confirm>
      )}
    </section>
  );
}
