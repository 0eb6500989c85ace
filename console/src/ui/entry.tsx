// One entry of the audit log: the change, who made it, and the fields that differ.
import { isUID } from "../api/names";
import { type Entry, type Part, sentence } from "../api/sentence";
import { Copy } from "./copy";
import { Name } from "./name";
import { base } from "./router";
import { eventName, Time } from "./time";

export type { Entry };

/** audit is the address of the audit log with a filter. */
const audit = (filter: Record<string, string>) => `${base}/audit?${new URLSearchParams(filter)}`;

export function EntryRow({ of, open }: { of: Entry; open?: boolean }) {
  const differences = diff(of.before ?? {}, of.after ?? {});
  const type = eventName(of.type);
  return (
    <details open={open}>
      <summary>
        <span class="entry-what">
          <span class="entry-who">
            <Who of={of} />
          </span>{" "}
          {sentence(of).map((part, i) => (
            <Shown key={i} part={part} />
          ))}
        </span>
        <span class="entry-type">{type}</span>
        <Time at={of.time} />
      </summary>
      <div class="entry">
        <p class="entry-links">
          {of.group && (
            <span>
              in <Name uid={of.group} path />
            </span>
          )}
          {of.subject && <a href={audit({ subject: of.subject })}>All changes of it</a>}
          {of.actor?.uid && <a href={audit({ identity: of.actor.uid })}>All changes by the same</a>}
          <a href={audit({ type: of.type ?? "" })}>All of this type</a>
          {of.actor?.remoteAddress && (
            <span>
              from <code>{of.actor.remoteAddress}</code>
            </span>
          )}
          {of.actor?.requestId && (
            <span>
              request <code>{of.actor.requestId}</code>
              <Copy text={of.actor.requestId} what="the request id" />
            </span>
          )}
        </p>
        {differences.length > 0 && (
          <div class="table" role="region" aria-label={`What has changed at ${of.time}`} tabIndex={0}>
            <table class="diff">
              <thead>
                <tr>
                  <th scope="col">Field</th>
                  <th scope="col">Before</th>
                  <th scope="col">After</th>
                </tr>
              </thead>
              <tbody>
                {differences.map((d) => (
                  <tr key={d.field}>
                    <th scope="row">{d.field}</th>
                    <td>
                      {d.before !== undefined && (
                        <del>
                          <Value of={d.before} />
                        </del>
                      )}
                    </td>
                    <td>
                      {d.after !== undefined && (
                        <ins>
                          <Value of={d.after} />
                        </ins>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
    </details>
  );
}

const Value = ({ of }: { of: string }) => (isUID(of) ? <Name uid={of} path /> : <bdi>{of}</bdi>);

function Who({ of }: { of: Entry }) {
  const uid = of.actor?.uid || (of.after as { identity?: string } | undefined)?.identity; // pulls have it in the body
  if (uid && isUID(uid)) return <Name uid={uid} plain />;
  return <span class="hint">{of.actor ? of.actor.subject || "An unknown caller" : "The service"}</span>;
}

/** Shown is a part of a sentence. The names are those of then, because a resource may be deleted by now. */
function Shown({ part }: { part: Part }) {
  if (typeof part === "string") return <>{part}</>;
  if ("time" in part) return <Time at={part.time} />;
  if ("name" in part)
    return (
      <strong>
        <bdi>{part.name}</bdi>
      </strong>
    );
  return (
    <strong>
      <Name uid={part.uid} path plain />
    </strong>
  );
}

interface Difference {
  field: string;
  before?: string;
  after?: string;
}

/** diff returns the fields that differ. Fields that are empty on both sides are left out. */
function diff(before: Record<string, unknown>, after: Record<string, unknown>): Difference[] {
  const quiet = new Set(["uid", "updateTime", "createTime"]);
  return [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .filter((k) => !quiet.has(k))
    .sort()
    .map((field) => ({ field, before: text(before[field]), after: text(after[field]) }))
    .filter((d) => d.before !== d.after);
}

function text(v: unknown): string | undefined {
  if (
    v === undefined ||
    v === null ||
    v === "" ||
    v === false ||
    (typeof v === "string" && v.endsWith("_UNSPECIFIED")) ||
    (Array.isArray(v) && v.length === 0)
  )
    return undefined;
  if (typeof v === "object") return Object.keys(v).length === 0 ? undefined : JSON.stringify(v, null, 1);
  return String(v);
}
