import "./browser";
import assert from "node:assert/strict";
import test from "node:test";
import { overlap, reachOf, topmost } from "../src/api/reach";

const org = "a".repeat(40),
  folder = `${org}/${"b".repeat(16)}`,
  deep = `${folder}/${"c".repeat(16)}`,
  other = "d".repeat(40);
const held = (id: string, capabilities: string[], narrowed: string[] = []) => ({
  group: { id, name: id.slice(-4) },
  role: { capabilities },
  capabilities: narrowed,
});

test("topmost leaves out groups below others", () => {
  assert.deepEqual(topmost([deep, other, folder, folder]), [folder, other]);
  assert.deepEqual(topmost([org, `${org.slice(0, 39)}b`]), [org, `${org.slice(0, 39)}b`]);
});

test("overlap returns the smaller of two subtrees", () => {
  assert.deepEqual(overlap([org], [deep, other]), [deep]);
  assert.deepEqual(overlap([folder], [folder]), [folder]);
  assert.deepEqual(overlap([folder], []), []);
});

test("reachOf needs all capabilities, and obeys the narrowing of the token", () => {
  const roles = [held(org, ["groups.list"]), held(folder, ["repo.list"]), held(other, ["repo.list", "groups.list"])];
  assert.deepEqual(reachOf(roles, "groups.list"), [org, other]);
  assert.deepEqual(reachOf(roles, "groups.list", "repo.list"), [folder, other]);
  assert.deepEqual(reachOf([held(org, ["groups.list", "repo.list"], ["repo.list"])], "groups.list"), []);
  assert.deepEqual(reachOf([], "groups.list"), []);
});
