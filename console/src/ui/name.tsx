// Things by their names. Text of others is isolated, so that its direction does not spread.
import { nameOf, parentOf, pathOf } from "../api/names";
import { Copy } from "./copy";
import { groupPage, identityPage, imagePage, providerPage, repoPage } from "./router";

/** pages are where a thing of a kind is shown. A view of another kind adds its line. */
export const pages: Record<string, ((uid: string) => string) | undefined> = {
  groups: groupPage,
  repos: repoPage,
  identities: identityPage,
  identity_providers: providerPage,
};

const last = (uid: string) => uid.slice(uid.lastIndexOf("/") + 1);

/**
 * Name is what a uid is called, a link if it has a page, and a button that copies the uid.
 * A quiet one has no button, and a plain one is text.
 */
export function Name({ uid, path, quiet, plain }: { uid?: string; path?: boolean; quiet?: boolean; plain?: boolean }) {
  if (!uid) return <span class="hint">nobody</span>;
  const name = nameOf(uid).value;
  const text = name
    ? (path && name.path) || name.displayName || name.name || last(uid)
    : name === null
      ? `${last(uid).slice(0, 12)}…`
      : "…";
  if (plain) return <bdi>{text}</bdi>;
  const page = name?.kind ? pages[name.kind]?.(uid) : undefined;
  return (
    <span class="name">
      {page ? (
        <a href={page} title={name?.path}>
          <bdi>{text}</bdi>
        </a>
      ) : (
        <bdi title={name?.path ?? uid}>{text}</bdi>
      )}
      {!quiet && <Copy text={uid} what={`the uid of ${text.slice(0, 40)}`} />}
    </span>
  );
}

/** Above is the way from the organization to a thing, without the thing. */
export function Above({ uid }: { uid: string }) {
  const above = pathOf(parentOf(uid)).filter(Boolean);
  if (above.length === 0) return null;
  return (
    <nav class="crumbs" aria-label="Path">
      {above.map((u) => (
        <span key={u}>
          <Name uid={u} quiet />
        </span>
      ))}
    </nav>
  );
}

/** Digest is a digest, short, with its whole on the clipboard. */
export function Digest({ of, repo }: { of?: string; repo?: string }) {
  if (!of) return <span class="hint">none</span>;
  const short = <code title={of}>{of.replace(/^(\w+):(.{12}).*$/, "$1:$2")}</code>;
  return (
    <span class="name">
      {repo ? <a href={imagePage(repo, of)}>{short}</a> : short}
      <Copy text={of} what="the digest" />
    </span>
  );
}
