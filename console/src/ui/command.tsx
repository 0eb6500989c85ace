// What a view shows, as a command and as a call of the API.
import { useId, useState } from "preact/hooks";
import type { Request } from "../api/api";
import { Command } from "./page";

/** sh quotes a word for a shell. */
export const sh = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** curl is the call of the API that a request is. */
export function curl(r: Request<unknown>): string {
  const parts = ["curl -H", `"Authorization: Bearer $(holdfast auth token)"`];
  if (r.method !== "GET") parts.push("-X", r.method);
  if (r.body) parts.push("-d", sh(JSON.stringify(r.body)));
  return [...parts, sh(location.origin + r.url)].join(" ");
}

export function AsCommand({ command, request }: { command?: string; request: Request<unknown> }) {
  const id = `${useId().replace(/\W/g, "")}-command`;
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="small" popovertarget={id}>
        As a command
      </button>
      <div id={id} popover="auto" class="popover" onToggle={(e) => setOpen(e.newState === "open")}>
        {open && (
          <>
            <h2>The same in a terminal</h2>
            {command && <Command text={command} />}
            <Command text={curl(request)} />
          </>
        )}
      </div>
    </>
  );
}
