import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, bytes, count, eventName, many, word } from "../src/ui/time";

test("ago names the largest unit", () => {
  const now = Date.UTC(2026, 0, 31, 12);
  const at = (seconds: number) => ago(new Date(now + seconds * 1_000), now);
  assert.equal(at(0), "just now");
  assert.equal(at(-9), "just now");
  assert.equal(at(-30), "30 seconds ago");
  assert.equal(at(-60), "1 minute ago");
  assert.equal(at(-3_599), "60 minutes ago");
  assert.equal(at(-3_600), "1 hour ago");
  assert.equal(at(-86_400), "yesterday");
  assert.equal(at(86_400), "tomorrow");
  assert.equal(at(3 * 86_400), "in 3 days");
  assert.equal(at(-400 * 86_400), "last year");
});

test("bytes uses decimal units", () => {
  assert.equal(bytes(undefined), "0 B");
  assert.equal(bytes(999), "999 B");
  assert.equal(bytes(1_000), "1.0 KB");
  assert.equal(bytes("1500000"), "1.5 MB");
  assert.equal(bytes(2e15), "2000 TB");
});

test("count and many", () => {
  assert.equal(count("1234567"), "1,234,567");
  assert.equal(many(1, "tag"), "1 tag");
  assert.equal(many(0, "tag"), "0 tags");
  assert.equal(many("2", "entry", "entries"), "2 entries");
});

test("names of the API become words", () => {
  assert.equal(word("SEVERITY_CRITICAL", "SEVERITY"), "critical");
  assert.equal(word("STATE_NOT_AFFECTED", "STATE"), "not affected");
  assert.equal(word(undefined, "STATE"), "");
  assert.equal(eventName("dev.holdfast.api.iam.group.created.v1"), "iam.group.created");
});
