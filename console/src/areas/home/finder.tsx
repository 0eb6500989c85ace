// The search field: a combobox with a list box, as in the ARIA practices.
import { useEffect, useId, useState } from "preact/hooks";
import { type Fault, get, type Schema } from "../../api/api";
import { nameOf } from "../../api/names";
import { Problem, Time, word } from "../../ui";
import { recent } from "../../ui/recent";
import { advisoryPage, base, go, groupPage, identityPage, imagePage, repoPage } from "../../ui/router";

type Result = Schema<"holdfast.access.v1.SearchResult">;

/** search describes the call that finds resources by a text. */
export const search = (query: string) => get("/access/v1/search", { query: { query } });

const typing = 120; // milliseconds without a key, until the server is asked

const audit = (r: Result) => `${base}/audit?${new URLSearchParams({ subject: r.uid ?? "", type: r.name ?? "" })}`;
const pages: Record<string, ((r: Result) => string) | undefined> = {
  GROUP: (r) => groupPage(r.uid ?? ""),
  REPO: (r) => repoPage(r.uid ?? ""),
  TAG: (r) => imagePage(r.parentUid ?? "", r.name ?? ""),
  MANIFEST: (r) => imagePage(r.parentUid ?? "", r.digest ?? ""),
  PACKAGE: (r) => imagePage(r.parentUid ?? "", r.digest ?? ""),
  ACCOUNT: (r) => `${base}/people?${new URLSearchParams({ tab: "accounts", email: r.name ?? "" })}`,
  ADVISORY: (r) => advisoryPage(r.name ?? ""),
  IDENTITY: (r) => identityPage(r.uid ?? ""),
  SUBSCRIPTION: (r) => `${base}/events?tab=deliveries&subscription=${r.uid}`,
  DELIVERY: (r) => `${base}/events?tab=deliveries&subscription=${r.parentUid}`,
  AUDIT_ENTRY: audit,
  SIGNER: (r) => `${groupPage(r.parentUid ?? "")}?tab=signers`,
  UPSTREAM: (r) => `${groupPage(r.parentUid ?? "")}?tab=upstreams`,
};

/** An Option is a line of the list. If it has no page, selecting it copies its uid. */
interface Option {
  id: string;
  kind: string;
  title: string;
  more?: string;
  time?: string;
  href?: string;
  copy?: string;
}

function optionOf(r: Result, i: number): Option {
  const kind = (r.kind ?? "").replace("SEARCH_KIND_", "");
  const page = pages[kind]?.(r);
  const title = r.displayName || r.name || r.uid || "";
  const more = [r.path !== title && r.path, r.description, !page && r.uid].filter(Boolean).join(" · ");
  return {
    id: String(i),
    kind: word(r.kind, "SEARCH_KIND"),
    title,
    more,
    time: r.time,
    href: page,
    copy: page ? undefined : r.uid,
  };
}

const kinds: [RegExp, string][] = [
  [/\/repos\/.*\/images\//, "image"],
  [/\/repos\//, "repo"],
  [/\/groups\//, "group"],
  [/\/advisories\//, "advisory"],
  [/\/people\//, "person"],
  [/\/workloads\//, "workload"],
];

/** lately are the things that were opened last, with their paths if they are known. */
function lately(): Option[] {
  return recent().map((r, i) => {
    const uid = /\/(?:groups|repos|workloads)\/([0-9a-f]{40}(?:\/[0-9a-f]{16})*)/.exec(r.href)?.[1];
    const path = uid && nameOf(uid).value?.path;
    return {
      id: `recent-${i}`,
      kind: kinds.find(([at]) => at.test(r.href))?.[1] ?? "",
      title: r.title,
      more: path && path !== r.title ? path : undefined,
      href: r.href,
    };
  });
}

interface FinderProps {
  text: string;
  onText: (text: string) => void;
  onOpen?: () => void; // a result is about to be shown
}

export function Finder({ text, onText, onOpen }: FinderProps) {
  const id = `${useId().replace(/\W/g, "")}find`;
  const asked = text.trim();
  const [found, setFound] = useState<{ asked: string; results: Result[]; error?: Fault }>();
  const [at, setAt] = useState(0);
  const [copied, setCopied] = useState("");
  useEffect(() => {
    setAt(0);
    setCopied("");
    if (asked === "") return setFound(undefined);
    const stop = new AbortController(); // the answer to an older text is not shown
    const timer = setTimeout(
      () => {
        search(asked)
          .send(stop.signal)
          .then(
            ({ results = [] }) => {
              if (stop.signal.aborted) return;
              setAt(0);
              setFound({ asked, results });
            },
            (error: Fault) => !stop.signal.aborted && setFound({ asked, results: [], error }),
          );
      },
      found ? typing : 0,
    ); // the text of a link is searched without a delay
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [asked]);
  const options = asked === "" ? lately() : (found?.results ?? []).map(optionOf);
  const now = options[Math.min(at, options.length - 1)];
  useEffect(() => {
    document.getElementById(`${id}-${now?.id}`)?.scrollIntoView({ block: "nearest" });
  }, [now?.id]);

  const choose = (o: Option | undefined) => {
    if (o?.href) {
      onOpen?.();
      go(o.href);
    } else if (o?.copy) {
      void navigator.clipboard?.writeText(o.copy).then(
        () => setCopied(o.id),
        () => undefined,
      );
    }
  };
  const press = (e: KeyboardEvent) => {
    const n = options.length;
    switch (e.key) {
      case "ArrowDown":
        setAt((at + 1) % Math.max(n, 1));
        break;
      case "ArrowUp":
        setAt((at + n - 1) % Math.max(n, 1));
        break;
      case "Enter":
        if (asked === "" || found?.asked === asked) choose(now);
        break; // ignore the results of an earlier text
      default:
        return;
    }
    e.preventDefault();
  };
  return (
    <div class="finder">
      <div class="field">
        <label for={id}>Name, path, uid, digest, tag, CVE, package URL, e-mail address or request id</label>
        <input
          id={id}
          role="combobox"
          aria-expanded={options.length > 0}
          aria-controls={`${id}-list`}
          aria-autocomplete="list"
          aria-activedescendant={now && `${id}-${now.id}`}
          value={text}
          onInput={(e) => onText(e.currentTarget.value)}
          onKeyDown={press}
          data-filter
          autocomplete="off"
          spellcheck={false}
          placeholder="acme/platform"
          maxLength={256}
        />
      </div>
      {options.length > 0 && (
        <p class="hint" aria-hidden="true">
          {asked === "" ? "Opened lately" : "Arrow keys move, Enter opens"}
        </p>
      )}
      <ul
        id={`${id}-list`}
        class="options"
        role="listbox"
        aria-label={asked === "" ? "Opened lately" : "Results"}
        hidden={options.length === 0}
      >
        {options.map((o, i) => (
          <li
            key={o.id}
            id={`${id}-${o.id}`}
            role="option"
            aria-selected={o === now}
            onMouseMove={() => setAt(i)}
            onMouseDown={(e) => e.preventDefault()}
            onClick={() => choose(o)}
          >
            <span class="option-kind">{o.kind}</span>
            <span class="option-title">
              <bdi>{o.title}</bdi>
              {o.more && (
                <small class="line">
                  <bdi>{o.more}</bdi>
                </small>
              )}
            </span>
            <small>{o.time ? <Time at={o.time} /> : o.copy ? copied === o.id ? "Copied" : "Copy the uid" : ""}</small>
          </li>
        ))}
      </ul>
      <p class="hint" role="status">
        {found?.asked === asked &&
          !found.error &&
          options.length === 0 &&
          "Nothing that you may see matches. Names and paths match from their beginning, tags and advisories wholly."}
        {asked === "" &&
          options.length === 0 &&
          "Type the beginning of a name or a path, or paste a uid, a digest or a CVE."}
      </p>
      {found?.error && found.asked === asked && <Problem error={found.error} />}
    </div>
  );
}
