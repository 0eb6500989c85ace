import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { isUID, parentOf, pathOf, resolve } from "../src/api/names";

const org = "0123456789abcdef0123456789abcdef01234567";
const folder = `${org}/0123456789abcdef`;

test("isUID", () => {
  for (const uid of [org, folder, `${folder}/0123456789abcdef`]) assert.ok(isUID(uid), uid);
  for (const text of ["", "dev", org.slice(1), `${org}/`, `${org}/0123`, org.toUpperCase(), `${folder}\n`])
    assert.ok(!isUID(text), text);
});

test("parentOf and pathOf", () => {
  assert.equal(parentOf(org), "");
  assert.equal(parentOf(folder), org);
  assert.deepEqual(pathOf(folder), [org, folder]);
});

test("resolve returns a uid without a request", async () => {
  assert.equal(await resolve(folder, "groups"), folder);
  assert.equal(await resolve("", "groups"), "");
});
