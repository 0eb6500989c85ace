import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { byCause, byPackage, byVulnerability, countOpen, type Finding, worst } from "../src/api/findings";

const finding = (advisoryId: string, purl: string, severity: string, more: Partial<Finding> = {}): Finding =>
  ({ advisoryId, package: { purl }, severity: `SEVERITY_${severity}`, state: "STATE_OPEN", ...more }) as Finding;

test("a vulnerability is one row, at the place of its first finding", () => {
  const all = [
    finding("CVE-1", "a", "HIGH"),
    finding("CVE-2", "a", "LOW"),
    finding("CVE-1", "b", "HIGH"),
    finding("CVE-1", "a", "HIGH"), // the same finding of another request
  ];
  assert.deepEqual(
    byVulnerability(all).map((v) => [v.id, v.findings.length]),
    [
      ["CVE-1", 2],
      ["CVE-2", 1],
    ],
  );
});

test("worst is the highest severity, and unknown is the lowest", () => {
  const of = (...severities: string[]) => worst(severities.map((s) => finding("CVE-1", "a", s)))?.severity;
  assert.equal(of("LOW", "CRITICAL", "HIGH"), "SEVERITY_CRITICAL");
  assert.equal(of("UNKNOWN", "LOW"), "SEVERITY_LOW");
  assert.equal(of(), undefined);
});

test("a package has one fix, and says what it leaves open", () => {
  const packages = byPackage([
    finding("CVE-1", "a", "LOW", { advisedVersion: "2", fixedVersion: "1.5" }),
    finding("CVE-2", "b", "CRITICAL"),
    finding("CVE-3", "a", "HIGH"),
    finding("CVE-4", "a", "HIGH", { state: "STATE_EXCEPTED" }),
  ]);
  assert.deepEqual(
    packages.map((p) => [p.findings.map((f) => f.advisoryId).join(), p.fix, p.unfixed]),
    [
      ["CVE-2", "", 1],
      ["CVE-3,CVE-4,CVE-1", "2", 1],
    ],
  );
});

test("only open findings are counted", () => {
  assert.deepEqual(
    countOpen([
      finding("CVE-1", "a", "CRITICAL"),
      finding("CVE-2", "a", "UNKNOWN"),
      finding("CVE-3", "a", "CRITICAL", { state: "STATE_EXCEPTED" }),
    ]),
    { critical: "1", high: "0", medium: "0", low: "0", unknown: "1" },
  );
});

test("one cause has all of its workloads", () => {
  const all = [
    { identityUid: "1", reason: "keys expired", issuer: "x" },
    { identityUid: "2", reason: "never reached", issuer: "y" },
    { identityUid: "3", reason: "never reached", issuer: "y" },
    { identityUid: "4", reason: "never reached", issuer: "z" },
  ];
  assert.deepEqual(
    byCause(all).map((c) => [c.issuer, c.reason, c.uids.join()]),
    [
      ["y", "never reached", "2,3"],
      ["x", "keys expired", "1"],
      ["z", "never reached", "4"],
    ],
  );
});
