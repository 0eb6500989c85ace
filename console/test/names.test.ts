import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Fault } from "../src/api/api";
import { identify, isUID, parentOf, pathOf, resolve, suggestions } from "../src/api/names";

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

test("two people of the same name are suggested apart", () => {
  const ann = `${org.slice(1)}a`;
  assert.deepEqual(
    [
      ...suggestions([
        ["Ann Example", org],
        ["dev/ci", folder],
        ["Ann Example", ann],
        ["Ann Example", org],
        ["", org],
      ]),
    ],
    [
      [`Ann Example (${org})`, org],
      [`Ann Example (${ann})`, ann],
      ["dev/ci", folder],
    ],
  );
});

test("identify never chooses one of several", async () => {
  const ann = `${org.slice(1)}a`;
  const suggested = suggestions([["Ann Example", org]]);
  const none = async () => {
    throw new Fault(404, "Not found", "");
  };
  const both = async () => {
    throw new Fault(0, "2 are called Ann Example", "");
  };
  assert.equal(await identify("Ann Example", suggested, false, async () => org), org);
  assert.equal(await identify("ben", suggested, false, async () => ann), ann);
  assert.equal(await identify("Ann Example", suggested, true, none), org); // the caller may not list people
  await assert.rejects(identify("Ann Example", suggested, false, none), /Not found/); // there may be another
  await assert.rejects(identify("Ann Example", suggested, true, both), /2 are called/);
  await assert.rejects(
    identify("Ann Example", suggested, true, async () => ann),
    /Several are called Ann Example/,
  );
  const apart = suggestions([...suggested, ["Ann Example", ann]]);
  assert.equal(await identify(`Ann Example (${ann})`, apart, false, none), ann);
});
