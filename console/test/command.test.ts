import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { sh } from "../src/ui/command";

test("sh quotes words for a shell", () => {
  assert.equal(sh("acme/web:v1.2"), "acme/web:v1.2");
  assert.equal(sh("two words"), "'two words'");
  assert.equal(sh("it's"), `'it'\\''s'`);
  assert.equal(sh("$(reboot)"), "'$(reboot)'");
  assert.equal(sh(""), "''");
});
