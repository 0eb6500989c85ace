import { useEffect, useRef } from "preact/hooks";
import { AsCommand, Page, sh } from "../../ui";
import { go, param, withParams } from "../../ui/router";
import { Finder, search } from "./finder";

export default function Search() {
  const ref = useRef<HTMLDivElement>(null);
  const q = param("q");
  useEffect(() => ref.current?.querySelector("input")?.focus(), []);
  return (
    <Page
      title="Search"
      lead="Finds anything that you may list. Ctrl-K or ⌘K searches from every view."
      actions={q.trim() && <AsCommand command={`holdfast search ${sh(q.trim())}`} request={search(q.trim())} />}
    >
      <div class="card" ref={ref}>
        <Finder text={q} onText={(text) => go(withParams({ q: text }), { replace: true })} />
      </div>
    </Page>
  );
}
