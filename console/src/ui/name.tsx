// Names of resources. Text that people entered is isolated, so that its direction does not affect other text.
import { Fragment } from "preact";
import { nameOf, parentOf, pathOf } from "../api/names";
import { Copy } from "./copy";
import { groupPage, identityPage, imagePage, providerPage, repoPage } from "./router";

/** pages are the addresses of the pages of each kind. A view of another kind adds its line. */
export const pages: Record<string, ((uid: string) => string) | undefined> = {
  groups: groupPage,
  repos: repoPage,
  identities: identityPage,
  identity_providers: providerPage,
};

const last = (uid: string) => uid.slice(uid.lastIndexOf("/") + 1);

/**
 * Name shows the name of a uid, as a link if it has a page, and a button that copies the uid.
 * With quiet there is no button, and with plain only text.
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

/** Breaks is a text that can break after each slash and colon, and not within words. */
export const Breaks = ({ text }: { text: string }) => (
  <>
    {text.split(/(?<=[/:])/).map((part, i) => (
      <Fragment key={`${i} ${part}`}>
        {i > 0 && <wbr />}
        {part}
      </Fragment>
    ))}
  </>
);

/** Path is the path of a resource, with its own name in bold. Until the path is known, it is the name. */
export function Path({ uid, name }: { uid: string; name?: string }) {
  const path = nameOf(uid).value?.path || name || last(uid);
  const own = last(path);
  return (
    <bdi>
      <Breaks text={path.slice(0, path.length - own.length)} />
      {own !== path && <wbr />}
      <b>{own}</b>
    </bdi>
  );
}

/** Above is the path from the organization to a resource, without the resource itself. */
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

/** Digest is a shortened digest, with a button that copies the full one. */
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
