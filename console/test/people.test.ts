import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Binding, initials, members } from "../src/api/people";
import { contains } from "../src/api/repos";

test("initials", () => {
  assert.equal(initials("Ann Example"), "AE");
  assert.equal(initials("ann.van.example@example.com"), "AE");
  assert.equal(initials("ann"), "A");
  assert.equal(initials("Élise Ünal"), "ÉÜ");
  assert.equal(initials("<script>"), "S");
  assert.equal(initials(""), "?");
});

test("a person is one row with all roles, and workloads are left out", () => {
  const binding = (uid: string, role: string, email?: string) =>
    ({ uid: role, identity: { uid, name: uid, email }, role: { name: role } }) as Binding;
  const found = members(
    [binding("b", "viewer"), binding("a", "owner", "a@example.com"), binding("b", "editor"), binding("g/w", "pusher")],
    [{ uid: "b", displayName: "Zoe", emails: ["zoe@example.com"], lastSeenTime: "2026-01-01T00:00:00Z" }],
  );
  assert.deepEqual(
    found.map((m) => [m.name, m.emails.join(), m.seen, m.roles.map((r) => r.role?.name).join()]),
    [
      ["a", "a@example.com", undefined, "owner"],
      ["Zoe", "zoe@example.com", "2026-01-01T00:00:00Z", "viewer,editor"],
    ],
  );
});

test("a path contains all words in any order", () => {
  assert.equal(contains("acme/Platform/web", "web plat"), true);
  assert.equal(contains("acme/platform/web", "web api"), false);
  assert.equal(contains("acme", ""), true);
});
