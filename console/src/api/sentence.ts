// What an entry of the audit log says, as a sentence.
import type { Schema } from "./api";

export type Entry = Schema<"holdfast.audit.v1.Entry">;

/** A Part of a sentence is text, the name that something had then, a resource that is shown by its name, or a time. */
export type Part = string | { name: string } | { uid: string } | { time: string };

type State = Record<string, unknown>;

const object = (v: unknown): State => (v && typeof v === "object" ? (v as State) : {});
const text = (v: unknown): string => (typeof v === "string" ? v : "");

/** named is a resource that a state contains, by the name that it had then. */
function named(v: unknown, uid = ""): Part {
  const of = object(v);
  const name = text(of.displayName) || text(of.email) || text(of.name);
  return name ? { name } : { uid: text(of.uid) || uid };
}

const nouns: Record<string, string> = {
  "iam.group": "the group",
  "iam.identity": "the workload",
  "iam.roles": "the role",
  "iam.rolebindings": "a role binding",
  "iam.access_rules": "a rule for requests",
  "iam.identity_providers": "the identity provider",
  "iam.account_associations": "an account association",
  "iam.group_invite": "an invite",
  "iam.external_group_role_mappings": "a group mapping",
  "iam.budgets": "the budget of",
  "registry.repo": "the repo",
  "registry.tag": "the tag",
  "registry.retention": "the retention rules of",
  "registry.upstream": "the upstream",
  "registry.replication": "the replication",
  "registry.settings": "the registry settings of",
  "registry.signer": "the signer",
  "vulnerabilities.advisory": "the advisory",
  "vulnerabilities.feed": "the advisory feed",
  "vulnerabilities.exploit_list": "an exploit list of",
  "findings.exception": "an exception for",
  "findings.rule": "a pull rule of",
  "findings.sla": "the time limits of",
  "signin.account": "the account",
  "signin.rules": "the sign-in rules of",
  "events.subscription": "the subscription",
};
const verbs: Record<string, string> = {
  created: "created",
  updated: "changed",
  deleted: "deleted",
  approved: "approved",
  applied: "applied",
};

/** whole are the sentences of types that no noun and verb describe. */
const whole: Record<string, string> = {
  "signin.activity.signed_in": "signed in",
  "signin.activity.refused": "was refused at the sign-in",
  "signin.activity.password_changed": "changed their password",
  "signin.activity.passkey_added": "added a passkey",
  "signin.activity.passkey_removed": "removed a passkey",
  "signin.activity.app_added": "added an authenticator app",
  "signin.activity.app_removed": "removed an authenticator app",
  "signin.activity.recovery_codes_created": "created recovery codes",
  "signin.activity.second_factor_changed": "changed their second factor",
  "signin.activity.program_allowed": "allowed a program to sign in",
  "signin.activity.program_denied": "did not allow a program to sign in",
  "auth.registered": "registered",
};

const requests: Record<string, string> = {
  created: "asked for",
  approved: "approved a request for",
  granted: "granted the request for",
  taken: "took",
  denied: "denied the request for",
  handed_back: "handed back",
  closed: "closed the request for",
};

/** kindOf is the type without the parts that all types have: iam.group.created. */
export const kindOf = (type: string | undefined) =>
  (type ?? "").replace(/^dev\.holdfast\.(api\.)?(platform\.)?/, "").replace(/(\.batch)?\.v\d+$/, "");

/** isPull reports whether an entry is about a pull, of which there are many. */
export const isPull = (e: Entry) => /(^|\.)pull$/.test(kindOf(e.type));

function binding(verb: string, state: State, e: Entry): Part[] {
  const role = named(state.role, text(state.roleUid)),
    group = named(state.group, e.group),
    who = named(state.identity, text(state.identityUid));
  const until: Part[] = text(state.expireTime) ? [", ending ", { time: text(state.expireTime) }] : [];
  const place: Part = "name" in (group as object) && e.group ? { uid: e.group } : group;
  if (verb === "created") return ["granted ", role, " on ", place, " to ", who, ...until];
  if (verb === "deleted") return ["removed ", role, " on ", place, " from ", who];
  if (verb === "expired") return ["ended ", role, " on ", place, " for ", who, ", because its time was over"];
  return ["changed ", role, " on ", place, " for ", who, ...until];
}

/** moved is a push or a pull: of the first tag, or else of a digest. */
function moved(verb: "push" | "pull", state: State, e: Entry): Part[] {
  const tags = Array.isArray(state.tags) ? state.tags : [];
  const name = text(tags[0]) || text(state.tag) || text(state.digest).replace(/^(\w+:.{12}).*$/, "$1") || "an image";
  const repo: Part = { uid: text(state.repo) || e.subject || "" };
  return verb === "push" ? ["pushed ", { name }, " to ", repo] : ["pulled ", { name }, " from ", repo];
}

/** findings are the vulnerabilities that were found or closed, and the first image. */
function findings(verb: string, state: State): Part[] {
  const all = Array.isArray(state.findings) ? state.findings.map(object) : [];
  const names = [...new Set(all.map((f) => text(f.advisoryId)))].filter(Boolean);
  const first = object(Array.isArray(state.images) ? state.images[0] : undefined);
  const rest = names.length > 1 ? [` and ${names.length - 1} more`] : [];
  const place: Part[] = text(first.repoUid) ? [" in ", { uid: text(first.repoUid) }] : [];
  return [verb === "opened" ? "found " : "closed ", { name: names[0] ?? "findings" }, ...rest, ...place];
}

/** sentence returns the parts after the name of the actor: granted owner on dev to Ann. */
export function sentence(e: Entry): Part[] {
  const kind = kindOf(e.type);
  const state = { ...object(e.before), ...object(e.after) };
  const cut = kind.lastIndexOf("."),
    noun = kind.slice(0, cut),
    verb = kind.slice(cut + 1);
  const items = Array.isArray(state.items) ? state.items.map(object) : [];
  if (whole[kind]) return [whole[kind]];
  if (noun === "iam.rolebindings" && items.length > 0)
    return items.flatMap((item, i) => [...(i > 0 ? ["; "] : []), ...binding(verb, item, e)]);
  if (noun === "iam.rolebindings" && (state.role || state.roleUid)) return binding(verb, state, e);
  if (noun === "iam.group_invite" && verb === "created")
    return [
      "invited ",
      text(state.email) ? { name: text(state.email) } : "whoever has the link",
      " as ",
      named(state.role, text(state.roleUid)),
      " of ",
      { uid: e.group ?? "" },
    ];
  if (noun === "iam.access_requests" && requests[verb])
    return [`${requests[verb]} `, named(state.role, text(state.roleUid)), " on ", { uid: e.group ?? "" }];
  if (kind === "iam.identity.deactivated" || kind === "iam.identity.reactivated")
    return [
      verb === "deactivated" ? "deactivated " : "reactivated ",
      named(state, e.subject),
      " through the directory",
    ];
  if (verb === "push" || verb === "pull") return moved(verb, state, e);
  if (noun === "findings.finding") return findings(verb, state);
  if (kind === "signin.activity.link_created" || kind === "signin.activity.link_used")
    return [`${verb === "link_used" ? "used" : "created"} a sign-in link of `, { uid: text(state.identityUid) }];
  if (noun === "iam.access_rules" && verbs[verb])
    return [
      `${verbs[verb]} a rule for requests of `,
      named(state.role, text(state.roleUid)),
      " on ",
      { uid: e.group ?? "" },
    ];
  if (noun === "registry.tag")
    return [
      verb === "created" ? "set the tag " : `${verbs[verb] ?? verb} the tag `,
      { name: text(state.name) },
      " of ",
      { uid: text(state.repoUid) || (e.subject ?? "").replace(/\/[^/]*$/, "") },
    ];
  const name =
    text(state.displayName) || text(state.name) || text(state.email) || text(state.advisoryId) || text(state.sink);
  const what: Part = name ? { name } : { uid: e.subject ?? "" };
  if (nouns[noun] && verbs[verb]) return [`${verbs[verb]} ${nouns[noun]} `, what];
  return [`${kind.replaceAll(/[._]/g, " ")}: `, what];
}
