// The address is the state: every filter, order, page and tab is in it, so back, reload and a
// link to a colleague show the same.
import { signal } from "@preact/signals";

export const base = "/console";

/** here is the address that is shown. */
export const here = signal(new URL(location.href));

/** go shows another address of the console. */
export function go(href: string, how: { replace?: boolean } = {}) {
  const next = new URL(href, location.href);
  if (how.replace) history.replaceState(history.state, "", next);
  else history.pushState({ from: here.value.pathname }, "", next);
  const moved = next.pathname !== here.value.pathname;
  here.value = next;
  if (moved) scrollTo(0, 0);
}

/** canGoBack reports whether the previous address belongs to the same view. */
export const canGoBack = () => (history.state as { from?: string } | null)?.from === here.value.pathname;

/** param is a parameter of the address, or "". */
export const param = (name: string) => here.value.searchParams.get(name) ?? "";

/** params are all parameters of that name. */
export const params = (name: string) => here.value.searchParams.getAll(name);

/**
 * withParams is this address with other parameters. Every change except of the page leads to the
 * first page without a selection, because a page token is valid for one list only.
 */
export function withParams(changes: Record<string, string | string[] | undefined>): string {
  const next = new URL(here.value);
  if (!("page" in changes)) next.searchParams.delete("page");
  if (!("selected" in changes)) next.searchParams.delete("selected");
  for (const [name, value] of Object.entries(changes)) {
    next.searchParams.delete(name);
    for (const v of [value ?? []].flat()) if (v !== "") next.searchParams.append(name, v);
  }
  return next.pathname + next.search;
}

const uid = "[0-9a-f]{40}(?:/[0-9a-f]{16})*";

/** match returns the values of the braces in a pattern such as /groups/{uid}, or null. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const shape = pattern.replace(/\{(\w+)\}/g, (_, name: string) => `(?<${name}>${name === "uid" ? uid : "[^/]+"})`);
  const found = new RegExp(`^${base}${shape === "/" ? "/?" : `${shape}/?`}$`).exec(path);
  if (!found) return null;
  return Object.fromEntries(Object.entries(found.groups ?? {}).map(([k, v]) => [k, decodeURIComponent(v)]));
}

/** followLinks opens links to the console without loading a page. */
export function followLinks() {
  addEventListener("popstate", () => (here.value = new URL(location.href)));
  document.addEventListener("click", (e) => {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    const link = (e.target as Element | null)?.closest("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(`${base}/`) || link.hash) return;
    e.preventDefault();
    go(link.href);
  });
}

/** Addresses of the pages of things. */
export const groupPage = (of: string) => `${base}/groups/${of}`;
export const repoPage = (of: string) => `${base}/repos/${of}`;
export const personPage = (of: string) => `${base}/people/${of}`;
export const workloadPage = (of: string) => `${base}/workloads/${of}`;

export const providerPage = (of: string) => `${base}/sign-in/${of}`;

/** identityPage is the page of a person, whose uid has no slash, or of a workload. */
export const identityPage = (of: string) => (of.includes("/") ? workloadPage(of) : personPage(of));
export const imagePage = (repo: string, reference: string) =>
  `${base}/repos/${repo}/images/${encodeURIComponent(reference)}`;
export const comparePage = (repo: string, reference: string, other: string) =>
  `${imagePage(repo, reference)}?tab=compare&with=${encodeURIComponent(other)}`;
export const advisoryPage = (id: string) => `${base}/advisories/${encodeURIComponent(id)}`;
