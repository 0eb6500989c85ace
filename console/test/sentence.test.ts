import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Entry, isPull, type Part, sentence } from "../src/api/sentence";

const entry = (type: string, after: unknown, before?: unknown): Entry =>
  ({ type: `dev.holdfast.api.${type}.v1`, subject: "g/s", group: "g", after, before }) as Entry;
const shown = (part: Part) =>
  typeof part === "string"
    ? part
    : "name" in part
      ? part.name
      : "uid" in part
        ? `[${part.uid}]`
        : part.time.slice(0, 10);
const said = (e: Entry) => sentence(e).map(shown).join("");

test("entries of the audit log are sentences", () => {
  const binding = { identity: { uid: "g/ci", name: "ci" }, role: { uid: "r", name: "owner" }, group: { uid: "g" } };
  const ends = { ...binding, expireTime: "2026-01-02T00:00:00Z" };
  for (const [e, want] of [
    [entry("iam.rolebindings.created", binding), "granted owner on [g] to ci"],
    [entry("iam.rolebindings.created", ends), "granted owner on [g] to ci, ending 2026-01-02"],
    [entry("iam.rolebindings.deleted", undefined, binding), "removed owner on [g] from ci"],
    [
      entry("iam.rolebindings.created.batch", { items: [binding, binding] }),
      "granted owner on [g] to ci; granted owner on [g] to ci",
    ],
    [entry("iam.rolebindings.created", { identityUid: "p", roleUid: "r" }), "granted [r] on [g] to [p]"],
    [entry("iam.group.updated", { name: "new" }, { name: "old" }), "changed the group new"],
    [entry("iam.group.deleted", undefined, { name: "old" }), "deleted the group old"],
    [
      entry("iam.identity.deactivated", { name: "ben", displayName: "Ben Example" }),
      "deactivated Ben Example through the directory",
    ],
    [entry("iam.identity.reactivated", { name: "ben" }), "reactivated ben through the directory"],
    [entry("iam.group_invite.created", { roleUid: "r" }), "invited whoever has the link as [r] of [g]"],
    [entry("iam.access_requests.granted", { roleUid: "r" }), "granted the request for [r] on [g]"],
    [entry("platform.registry.tag.created", { name: "v1" }), "set the tag v1 of [g]"],
    [entry("signin.activity.signed_in", {}), "signed in"],
    [entry("signin.activity.link_created", { identityUid: "p" }), "created a sign-in link of [p]"],
    [entry("registry.push", { tags: ["v1"], repo: "g/r" }), "pushed v1 to [g/r]"],
    [entry("registry.push", { digest: "sha256:0123456789abcdef" }), "pushed sha256:0123456789ab to [g/s]"],
    [
      entry("findings.finding.opened", {
        findings: [{ advisoryId: "CVE-1" }, { advisoryId: "CVE-2" }, { advisoryId: "CVE-1" }],
        images: [{ repoUid: "g/r" }],
      }),
      "found CVE-1 and 1 more in [g/r]",
    ],
    [entry("findings.finding.closed", {}), "closed findings"],
    [entry("iam.something.new", {}), "iam something new: [g/s]"],
    [entry("iam.group.created", { name: 7 }), "created the group [g/s]"],
  ] as const)
    assert.equal(said(e), want);
});

test("pulls are known by their type", () => {
  assert.equal(isPull({ type: "dev.holdfast.registry.pull.v1" } as Entry), true);
  assert.equal(isPull(entry("iam.group.created", {})), false);
});
