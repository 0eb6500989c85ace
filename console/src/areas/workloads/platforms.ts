// What the tokens of platforms look like: which rule admits a job, and what the job needs to
// exchange its token. The command makes the same rules; a test compares them.
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

export interface Platform {
  id: string;
  title: string;
  fields: { name: string; label: string; example: string; required?: boolean; shape?: RegExp }[];
  oneOf?: string[]; // exactly one of these is given
  anyOf?: string[]; // one or more of these
  issuer: string; // "" if it is a field
  rule: (j: Job) => Rule;
  name: (j: Job) => string;
  command: (j: Job) => string; // what stands after: holdfast iam identities create
  paste: (to: Target) => string;
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
const numbered = (id: string | undefined) => `(@${id || "[0-9]+"})?`;

const login = (t: Target) =>
  `holdfast auth token --audience ${t.registry} | docker login -u _token --password-stdin ${t.registry}`;

function githubContext(j: Job): string {
  if (j.environment) return `environment:${j.environment.replaceAll(":", "%3A")}`;
  if (j.tag) return `ref:refs/tags/${j.tag}`;
  return j["pull-request"] ? "pull_request" : `ref:refs/heads/${j.branch}`;
}

const github: Platform = {
  id: "github",
  title: "GitHub Actions",
  issuer: "https://token.actions.githubusercontent.com",
  fields: [
    {
      name: "repo",
      label: "Repository",
      example: "acme/web",
      required: true,
      shape: /^[A-Za-z0-9_.-]+\/[A-Za-z0-9_.-]+$/,
    },
    { name: "branch", label: "Branch", example: "main" },
    { name: "tag", label: "Tag", example: "v1.2.3" },
    { name: "environment", label: "Environment", example: "production" },
    { name: "owner-id", label: "Number of the owner", example: "1", shape: /^[0-9]*$/ },
    { name: "repo-id", label: "Number of the repository", example: "2", shape: /^[0-9]*$/ },
  ],
  oneOf: ["branch", "tag", "environment"],
  rule: (j) => {
    const [owner = "", repo = ""] = (j.repo ?? "").split("/");
    return {
      claimMatch: {
        issuer: github.issuer,
        subjectPattern: `repo:${quote(owner)}${numbered(j["owner-id"])}/${quote(repo)}${numbered(j["repo-id"])}:${quote(githubContext(j))}`,
        claims: given({ repository_owner_id: j["owner-id"] ?? "", repository_id: j["repo-id"] ?? "" }),
      },
    };
  },
  name: (j) => `github-${j.repo ?? ""}`,
  command: (j) => `github ${flags(j, "repo", "branch", "tag", "environment", "owner-id", "repo-id")}`,
  paste: (t) => `permissions:
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
};

const gitlab: Platform = {
  id: "gitlab",
  title: "GitLab CI",
  issuer: "https://gitlab.com",
  fields: [
    {
      name: "project",
      label: "Path of the project",
      example: "acme/web",
      required: true,
      shape: /^[A-Za-z0-9_.-]+(\/[A-Za-z0-9_.-]+)+$/,
    },
    { name: "branch", label: "Branch", example: "main" },
    { name: "tag", label: "Tag", example: "v1.2.3" },
    { name: "environment", label: "Environment", example: "production" },
    { name: "project-id", label: "Number of the project", example: "1", shape: /^[0-9]*$/ },
  ],
  anyOf: ["branch", "tag", "environment"],
  rule: (j) => ({
    claimMatch: {
      issuer: gitlab.issuer,
      ...(j.branch || j.tag
        ? { subject: `project_path:${j.project}:ref_type:${j.tag ? "tag" : "branch"}:ref:${j.branch || j.tag}` }
        : { subjectPattern: `project_path:${quote(j.project ?? "")}:ref_type:(branch|tag):ref:.+` }),
      claims: given({ environment: j.environment ?? "", project_id: j["project-id"] ?? "" }),
    },
  }),
  name: (j) => `gitlab-${j.project ?? ""}`,
  command: (j) => `gitlab ${flags(j, "project", "branch", "tag", "environment", "project-id")}`,
  paste: (t) => `build:
  id_tokens:
    HOLDFAST_ID_TOKEN:
      aud: ${t.api}
  variables:
    HOLDFAST_API: ${t.api}
    HOLDFAST_IDENTITY: ${t.identity}
  script:
    - ${login(t)}
`,
};

const buildkite: Platform = {
  id: "buildkite",
  title: "Buildkite",
  issuer: "https://agent.buildkite.com",
  fields: [
    { name: "org", label: "Organization", example: "acme", required: true, shape: /^[A-Za-z0-9_-]+$/ },
    { name: "pipeline", label: "Pipeline", example: "web", required: true, shape: /^[A-Za-z0-9_-]+$/ },
    { name: "branch", label: "Branch", example: "main" },
    { name: "tag", label: "Tag", example: "v1.2.3" },
    { name: "step", label: "Key of the step", example: "release" },
  ],
  oneOf: ["branch", "tag"],
  rule: (j) => ({
    claimMatch: {
      issuer: buildkite.issuer,
      subjectPattern: `organization:${quote(j.org ?? "")}:pipeline:${quote(j.pipeline ?? "")}:ref:${quote(j.tag ? `refs/tags/${j.tag}` : `refs/heads/${j.branch}`)}:commit:[^:]+:step:${j.step ? quote(j.step) : ".*"}`,
    },
  }),
  name: (j) => `buildkite-${j.org ?? ""}-${j.pipeline ?? ""}`,
  command: (j) => `buildkite ${flags(j, "org", "pipeline", "branch", "tag", "step")}`,
  paste: (t) => `env:
  HOLDFAST_API: ${t.api}
  HOLDFAST_IDENTITY: ${t.identity}
steps:
  - key: release
    command: ${login(t)}
`,
};

const dnsName = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;

const kubernetes: Platform = {
  id: "kubernetes",
  title: "Kubernetes",
  issuer: "",
  fields: [
    { name: "issuer", label: "Issuer of the cluster", example: "https://oidc.example.com/cluster-1", required: true },
    { name: "namespace", label: "Namespace", example: "shop", required: true, shape: dnsName },
    { name: "service-account", label: "Service account", example: "web", required: true, shape: dnsName },
  ],
  rule: (j) => ({
    claimMatch: { issuer: j.issuer, subject: `system:serviceaccount:${j.namespace}:${j["service-account"]}` },
  }),
  name: (j) => `kubernetes-${j.namespace ?? ""}-${j["service-account"] ?? ""}`,
  command: (j) => `kubernetes ${flags(j, "issuer", "namespace", "service-account")}`,
  paste: (t) => `spec:
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

export const platforms: Platform[] = [github, gitlab, buildkite, kubernetes, aws, other];

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
  if (/^system:serviceaccount:/.test(i.claimMatch?.subject ?? i.staticKeys?.subject ?? "")) return kubernetes;
  const subject = i.claimMatch?.subject ?? i.claimMatch?.subjectPattern ?? "";
  if (subject.startsWith("repo:")) return github;
  if (subject.startsWith("project_path:")) return gitlab;
  return subject.startsWith("organization:") ? buildkite : other;
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
  if (p.id === "gitlab" && j.branch && j.tag) found.tag = "a job runs on a branch or a tag, not on both";
  return found;
}
