import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { advisoryPage, go, here, identityPage, imagePage, match, param, params, withParams } from "../src/ui/router";

const org = "0123456789abcdef0123456789abcdef01234567";
const folder = `${org}/0123456789abcdef`;

test("match returns the parts of a path in braces", () => {
  assert.deepEqual(match("/", "/console/"), {});
  assert.deepEqual(match("/", "/console"), {});
  assert.deepEqual(match("/groups/{uid}", `/console/groups/${folder}`), { uid: folder });
  assert.deepEqual(match("/groups/{uid}", `/console/groups/${folder}/`), { uid: folder });
  assert.deepEqual(match("/repos/{uid}/images/{reference}", `/console/repos/${folder}/images/sha256%3Aab`), {
    uid: folder,
    reference: "sha256:ab",
  });
});

test("match refuses other paths", () => {
  assert.equal(match("/groups/{uid}", "/console/groups/new"), null);
  assert.equal(match("/groups/{uid}", `/console/groups/${org}/short`), null);
  assert.equal(match("/groups/{uid}", `/groups/${org}`), null);
  assert.equal(match("/repos", "/console/repos/x"), null);
});

test("withParams keeps the other parameters and returns to the first page", () => {
  go("/console/repos?order=name&page=abc&selected=1&tag=a&tag=b");
  assert.equal(withParams({ order: "time" }), "/console/repos?tag=a&tag=b&order=time");
  assert.equal(withParams({ page: "def" }), "/console/repos?order=name&tag=a&tag=b&page=def");
  assert.equal(withParams({ tag: ["c", "", "d"] }), "/console/repos?order=name&tag=c&tag=d");
  assert.equal(withParams({ order: undefined, tag: "" }), "/console/repos");
});

test("go changes the address", () => {
  go("/console/people?name=Ann%20B&role=a&role=b");
  assert.equal(here.value.pathname, "/console/people");
  assert.equal(param("name"), "Ann B");
  assert.equal(param("missing"), "");
  assert.deepEqual(params("role"), ["a", "b"]);
});

test("pages of things have escaped addresses", () => {
  assert.equal(imagePage(folder, "sha256:ab/c"), `/console/repos/${folder}/images/sha256%3Aab%2Fc`);
  assert.equal(advisoryPage("ALSA-2025:2627"), "/console/advisories/ALSA-2025%3A2627");
  assert.equal(identityPage(org), `/console/people/${org}`);
  assert.equal(identityPage(folder), `/console/workloads/${folder}`);
});
