import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Job, mistakes, platformOf, platforms, slug } from "../src/areas/workloads/platforms";

const of = (id: string) => {
  const found = platforms.find((p) => p.id === id);
  assert.ok(found, id);
  return found;
};

test("the platforms and their fields", () => {
  const shown = Object.fromEntries(platforms.map((p) => [p.id, p.fields.map((f) => f.name).join(" ")]));
  assert.deepEqual(shown, {
    github: "repo branch tag environment owner-id repo-id",
    gitlab: "project branch tag environment project-id",
    buildkite: "org pipeline branch tag step",
    kubernetes: "issuer namespace service-account",
    aws: "aws-account aws-arn-pattern",
    other: "issuer subject",
  });
  for (const p of platforms) {
    assert.ok(
      p.title && p.paste({ api: "https://h.example.com", identity: "uid", registry: "r" }).includes("https://h"),
      p.id,
    );
    for (const f of p.fields) assert.ok(f.label && (f.shape?.test(f.example) ?? true), `${p.id} ${f.name}`);
  }
});

const rules: [string, Job, Record<string, unknown>, string][] = [
  [
    "github",
    { repo: "Acme/we.b", branch: "main", "owner-id": "7" },
    {
      issuer: "https://token.actions.githubusercontent.com",
      subjectPattern: "repo:Acme(@7)?/we\\.b(@[0-9]+)?:ref:refs/heads/main",
      claims: { repository_owner_id: "7" },
    },
    "github --repo Acme/we.b --branch main --owner-id 7",
  ],
  [
    "github",
    { repo: "acme/web", environment: "eu:prod" },
    {
      issuer: "https://token.actions.githubusercontent.com",
      subjectPattern: "repo:acme(@[0-9]+)?/web(@[0-9]+)?:environment:eu%3Aprod",
      claims: undefined,
    },
    "github --repo acme/web --environment eu:prod",
  ],
  [
    "gitlab",
    { project: "acme/sub/web", tag: "v1" },
    { issuer: "https://gitlab.com", subject: "project_path:acme/sub/web:ref_type:tag:ref:v1", claims: undefined },
    "gitlab --project acme/sub/web --tag v1",
  ],
  [
    "gitlab",
    { project: "acme/web", environment: "prod" },
    {
      issuer: "https://gitlab.com",
      subjectPattern: "project_path:acme/web:ref_type:(branch|tag):ref:.+",
      claims: { environment: "prod" },
    },
    "gitlab --project acme/web --environment prod",
  ],
  [
    "buildkite",
    { org: "acme", pipeline: "web", branch: "feature/a.b" },
    {
      issuer: "https://agent.buildkite.com",
      subjectPattern: "organization:acme:pipeline:web:ref:refs/heads/feature/a\\.b:commit:[^:]+:step:.*",
      claims: undefined,
    },
    "buildkite --org acme --pipeline web --branch feature/a.b",
  ],
  [
    "kubernetes",
    { issuer: "https://k8s.example.com", namespace: "shop", "service-account": "web" },
    { issuer: "https://k8s.example.com", subject: "system:serviceaccount:shop:web", claims: undefined },
    "kubernetes --issuer https://k8s.example.com --namespace shop --service-account web",
  ],
];

test("rules, commands and names", () => {
  for (const [id, job, match, command] of rules) {
    const p = of(id);
    assert.deepEqual(p.rule(job), { claimMatch: match });
    assert.equal(p.command(job), command);
    assert.deepEqual(mistakes(p, job), {});
    assert.equal(platformOf({ claimMatch: match }).id, id);
  }
  assert.equal(slug(of("github").name({ repo: "acme/web" })), "github-acme-web");
  assert.equal(of("kubernetes").name({ namespace: "shop", "service-account": "web" }), "kubernetes-shop-web");
});

test("mistakes", () => {
  const push = "without one, everybody who can push would be let in";
  assert.deepEqual(mistakes(of("github"), { repo: "nonsense", "owner-id": "x" }), {
    repo: "is not of the form acme/web",
    "owner-id": "is not of the form 1",
    branch: `give exactly one of branch, tag, environment: ${push}`,
  });
  assert.deepEqual(mistakes(of("gitlab"), {}), {
    project: "is needed",
    branch: `give one or more of branch, tag, environment: ${push}`,
  });
  assert.deepEqual(mistakes(of("gitlab"), { project: "acme/web", branch: "a", tag: "b" }), {
    tag: "a job runs on a branch or a tag, not on both",
  });
});
