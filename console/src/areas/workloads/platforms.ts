// The platforms of workloads: which rule accepts the tokens of a job, and what the job needs to
// exchange its token. The presets in platforms.json are data that the command reads as well.
import presets from "../../../../internal/access/workload/platforms.json";
import type { Schema } from "../../api/api";

type Identity = Schema<"holdfast.iam.v2beta1.Identity">;

/** A Match is the rule of an identity about the claims of tokens. */
export interface Match {
  issuer?: string;
  issuerPattern?: string;
  subject?: string;
  subjectPattern?: string;
  audience?: string;
  audiencePattern?: string;
  claims?: Record<string, string>;
  claimPatterns?: Record<string, string>;
}

/** A Rule is one that a platform needs. */
export interface Rule {
  claimMatch?: Match;
  awsIdentity?: { awsAccount?: string; arnPattern?: string };
}

/** A Job is what was typed, by the names of fields. */
export type Job = Record<string, string>;

/** A Field is an input of the form. */
interface Field {
  name: string;
  label: string;
  example: string;
  required?: boolean;
  shape?: RegExp;
}

export interface Platform {
  id: string;
  title: string;
  fields: Field[];
  oneOf?: string[]; // exactly one of these is given
  anyOf?: string[]; // one or more of these
  notBoth?: string[]; // at most one of these
  issuer: string; // "" if it is a field
  rule: (j: Job) => Rule;
  name: (j: Job) => string;
  command: (j: Job) => string; // what stands after: holdfast iam identities create
  paste: (to: Target) => string;
}

/** A Preset is a platform in platforms.json, which the command reads as well. */
interface Preset {
  id: string;
  title: string;
  issuer: string;
  fields: { name: string; label?: string; example?: string; required?: boolean; pattern?: string; number?: boolean }[];
  exactlyOne?: string[];
  atLeastOne?: string[];
  notBoth?: string[];
  context?: { if?: string; text: string }[];
  name: string;
  subjects: { if?: string; exact?: string; pattern?: string }[];
  claims?: Record<string, string | undefined>;
}

/** A Target is where a job signs in. */
export interface Target {
  api: string;
  identity: string;
  registry: string;
}

const quote = (text: string) => text.replace(/[\\.+*?()|[\]{}^$]/g, "\\$&");
const given = (claims: Job) => {
  const some = Object.fromEntries(Object.entries(claims).filter(([, v]) => v));
  return Object.keys(some).length > 0 ? some : undefined;
};
const word = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const flags = (j: Job, ...names: string[]) =>
  names
    .filter((n) => j[n])
    .map((n) => (j[n] === "true" ? `--${n}` : `--${n} ${word(j[n] ?? "")}`))
    .join(" ");
const login = (t: Target) =>
  `holdfast auth token --audience ${t.registry} | docker login -u _token --password-stdin ${t.registry}`;

/**
 * fill replaces the placeholders of a template with the values of a job. Package workload of the
 * server describes them: {name}, {name.0} for a part, {name!} with escaped colons, {name|default}.
 */
function fill(template: string, j: Job, context = "", quoted = (text: string) => text): string {
  return template.replace(
    /\{([a-z-]+)(?:\.([0-9]))?(!)?(?:\|([^}]*))?\}/g,
    (_, name: string, part?: string, escaped?: string, otherwise?: string) => {
      let value = (name === "context" ? context : j[name]) ?? "";
      if (part) value = value.split("/")[Number(part)] ?? "";
      if (escaped) value = value.replaceAll(":", "%3A");
      return value ? quoted(value) : (otherwise ?? "");
    },
  );
}

const applies = (j: Job) => (c: { if?: string }) => !c.if || Boolean(j[c.if]);

/** platform makes a platform of a preset. paste returns what to paste into the job. */
function platform(p: Preset, paste: (to: Target) => string): Platform {
  const fields = p.fields.flatMap((f): Field[] => {
    if (!f.label) return []; // only the command has it
    const shape = f.number ? "^[0-9]*$" : f.pattern;
    return [
      {
        name: f.name,
        label: f.label,
        example: f.example ?? "",
        required: f.required,
        shape: shape ? new RegExp(shape) : undefined,
      },
    ];
  });
  const shown = (names?: string[]) => names && fields.map((f) => f.name).filter((n) => names.includes(n));
  return {
    id: p.id,
    title: p.title,
    issuer: p.issuer,
    fields,
    oneOf: shown(p.exactlyOne),
    anyOf: shown(p.atLeastOne),
    notBoth: shown(p.notBoth),
    rule: (j) => {
      const context = fill(p.context?.find(applies(j))?.text ?? "", j);
      const subject = p.subjects.find(applies(j));
      const claims = Object.entries(p.claims ?? {}).map(([claim, field]) => [claim, j[field ?? ""] ?? ""]);
      return {
        claimMatch: {
          issuer: p.issuer || j.issuer,
          ...(subject?.pattern
            ? { subjectPattern: fill(subject.pattern, j, context, quote) }
            : { subject: fill(subject?.exact ?? "", j, context) }),
          claims: given(Object.fromEntries(claims)),
        },
      };
    },
    name: (j) => fill(p.name, j),
    command: (j) => `${p.id} ${flags(j, ...fields.map((f) => f.name))}`,
    paste,
  };
}

const pastes: Record<string, (to: Target) => string> = {
  github: (t) => `permissions:
  contents: read
  id-token: write                 # without it the runner has no token to give
jobs:
  build:
    runs-on: ubuntu-latest
    env:
      HOLDFAST_API: ${t.api}
      HOLDFAST_IDENTITY: ${t.identity}
    steps:
      - run: ${login(t)}
`,
  gitlab: (t) => `build:
  id_tokens:
    HOLDFAST_ID_TOKEN:
      aud: ${t.api}
  variables:
    HOLDFAST_API: ${t.api}
    HOLDFAST_IDENTITY: ${t.identity}
  script:
    - ${login(t)}
`,
  buildkite: (t) => `env:
  HOLDFAST_API: ${t.api}
  HOLDFAST_IDENTITY: ${t.identity}
steps:
  - key: release
    command: ${login(t)}
`,
  kubernetes: (t) => `spec:
  containers:
    - name: web
      env:
        - {name: HOLDFAST_API, value: "${t.api}"}
        - {name: HOLDFAST_IDENTITY, value: ${t.identity}}
      volumeMounts:
        - {name: holdfast, mountPath: /var/run/secrets/holdfast, readOnly: true}
  volumes:
    - name: holdfast
      projected:
        sources:
          - serviceAccountToken: {path: token, audience: "${t.api}", expirationSeconds: 3600}
`,
};

const aws: Platform = {
  id: "aws",
  title: "AWS",
  issuer: "",
  fields: [
    { name: "aws-account", label: "Account", example: "123456789012", required: true, shape: /^[0-9]{12}$/ },
    {
      name: "aws-arn-pattern",
      label: "Pattern of ARNs",
      example: "arn:aws:sts::123456789012:assumed-role/build/.+",
      required: true,
    },
  ],
  rule: (j) => ({ awsIdentity: { awsAccount: j["aws-account"] ?? "", arnPattern: j["aws-arn-pattern"] } }),
  name: (j) => `aws-${j["aws-account"] ?? ""}`,
  command: (j) => `${word(slug(aws.name(j)))} ${flags(j, "aws-account", "aws-arn-pattern")}`,
  paste: (t) => `export HOLDFAST_API=${t.api}
eval "$(aws configure export-credentials --format env)"   # unless they are in variables already, as in Lambda
holdfast auth login --identity ${t.identity}
`,
};

const other: Platform = {
  id: "other",
  title: "Anything else that has a token",
  issuer: "",
  fields: [
    { name: "issuer", label: "Issuer", example: "https://jenkins.example.com/oidc", required: true },
    { name: "subject", label: "Subject", example: "job/release", required: true },
  ],
  rule: (j) => ({ claimMatch: { issuer: j.issuer, subject: j.subject } }),
  name: (j) => (j.subject ?? "").replace(/^.*\//, "") || "workload",
  command: (j) => `${word(slug(other.name(j)))} ${flags(j, "issuer", "subject")}`,
  paste: (t) => `export HOLDFAST_API=${t.api}
export HOLDFAST_IDENTITY=${t.identity}
export HOLDFAST_IDENTITY_TOKEN_FILE=token.jwt   # for the audience ${t.api}; it is read again when it is needed
${login(t)}
`,
};

export const platforms: Platform[] = [
  ...(presets as Preset[]).map((p) => platform(p, pastes[p.id] ?? (() => ""))),
  aws,
  other,
];

/** slug makes a name of a text, as the command does. */
export const slug = (text: string) =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60);

/** platformOf is the platform that an identity is for, as its rule says. */
export function platformOf(i: Identity): Platform {
  if (i.awsIdentity) return aws;
  const known = (id: string) => platforms.find((p) => p.id === id) ?? other;
  if (/^system:serviceaccount:/.test(i.claimMatch?.subject ?? i.staticKeys?.subject ?? "")) return known("kubernetes");
  const subject = i.claimMatch?.subject ?? i.claimMatch?.subjectPattern ?? "";
  if (subject.startsWith("repo:")) return known("github");
  if (subject.startsWith("project_path:")) return known("gitlab");
  return subject.startsWith("organization:") ? known("buildkite") : other;
}

/** seenTime is when an identity last came, undefined if it never has: its creation does not count. */
export const seenTime = (i: Identity) =>
  i.lastSeenTime && i.lastSeenTime !== i.createTime ? i.lastSeenTime : undefined;

/** mistakes are what is wrong with a job, by field. */
export function mistakes(p: Platform, j: Job): Record<string, string> {
  const found: Record<string, string> = {};
  for (const f of p.fields) {
    const value = j[f.name] ?? "";
    if (f.required && !value) found[f.name] = "is needed";
    else if (value && f.shape && !f.shape.test(value)) found[f.name] = `is not of the form ${f.example}`;
  }
  const labels = (names: string[]) =>
    names.map((n) => p.fields.find((f) => f.name === n)?.label.toLowerCase()).join(", ");
  if (p.oneOf && p.oneOf.filter((n) => j[n]).length !== 1)
    found[p.oneOf[0] ?? ""] =
      `give exactly one of ${labels(p.oneOf)}: without one, everybody who can push would be let in`;
  if (p.anyOf && !p.anyOf.some((n) => j[n]))
    found[p.anyOf[0] ?? ""] =
      `give one or more of ${labels(p.anyOf)}: without one, everybody who can push would be let in`;
  if (p.notBoth?.length && p.notBoth.every((n) => j[n]))
    found[p.notBoth[1] ?? ""] = `a job runs on a ${p.notBoth.join(" or a ")}, not on both`;
  return found;
}
