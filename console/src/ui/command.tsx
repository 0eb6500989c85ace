// The data of a view as a command and as a call of the API.
import { useId, useState } from "preact/hooks";
import type { Request } from "../api/api";
import { Command } from "./page";

/** sh quotes a word for a shell. */
export const sh = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** addGitHub is the command that adds a workflow of GitHub as a workload to a group. */
export const addGitHub = (group: string) =>
  `holdfast iam identities create github --repo OWNER/REPO --branch main --parent ${group} --role registry.push`;

/** curl is the request as a curl command. */
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
