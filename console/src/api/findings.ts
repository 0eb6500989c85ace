// Findings, put together by what people decide about: vulnerabilities, packages, and causes.
import type { Schema } from "./api";

export type Finding = Schema<"holdfast.findings.v1.Finding">;

/** A Vulnerability has all findings of the same name, in their order. */
export interface Vulnerability {
  id: string;
  findings: Finding[];
}

/** byVulnerability puts findings of the same name together, at the place of the first one. */
export function byVulnerability(findings: Finding[]): Vulnerability[] {
  const all = new Map<string, Finding[]>();
  const seen = new Set<string>();
  for (const f of findings) {
    const id = f.advisoryId ?? "",
      key = `${id} ${f.package?.purl} ${f.location ?? ""}`;
    if (seen.has(key)) continue;
    seen.add(key);
    all.set(id, [...(all.get(id) ?? []), f]);
  }
  return [...all].map(([id, findings]) => ({ id, findings }));
}

const ranks = ["SEVERITY_CRITICAL", "SEVERITY_HIGH", "SEVERITY_MEDIUM", "SEVERITY_LOW"];
const rank = (severity: string | undefined) => (ranks.indexOf(severity ?? "") + ranks.length + 1) % (ranks.length + 1);

/** worst returns the finding with the highest severity, the first of several. */
export const worst = (findings: Finding[]): Finding | undefined =>
  findings.reduce<Finding | undefined>(
    (best, f) => (best && rank(best.severity) <= rank(f.severity) ? best : f),
    undefined,
  );

/** A PackageFindings has the findings of one package of an image. */
export interface PackageFindings {
  key: string;
  findings: Finding[];
  fix: string; // the version that fixes all findings with a known fix, or ""
  unfixed: number; // open findings without a known fix
}

const isOpen = (f: Finding) => f.state === "STATE_OPEN";

/** byPackage puts the findings of a package together, the package with the worst finding first. */
export function byPackage(findings: Finding[]): PackageFindings[] {
  const all = new Map<string, Finding[]>();
  for (const f of findings) {
    const key = `${f.package?.purl} ${f.location ?? ""}`;
    all.set(key, [...(all.get(key) ?? []), f]);
  }
  const packages = [...all].map(([key, own]) => ({
    key,
    findings: [...own].sort((a, b) => rank(a.severity) - rank(b.severity)),
    fix: own.find((f) => f.advisedVersion)?.advisedVersion ?? "",
    unfixed: own.filter((f) => isOpen(f) && !f.fixedVersion && !f.fixedVersions?.length).length,
  }));
  return packages.sort((a, b) => rank(a.findings[0]?.severity) - rank(b.findings[0]?.severity));
}

export type Counts = Record<"critical" | "high" | "medium" | "low" | "unknown", string>;

/** countOpen counts the open findings by severity, in the form of the API. */
export function countOpen(findings: Finding[]): Counts {
  const open = findings.filter(isOpen).map((f) => rank(f.severity));
  const of = (place: number) => String(open.filter((r) => r === place).length);
  return { critical: of(0), high: of(1), medium: of(2), low: of(3), unknown: of(4) };
}

export interface Endangered {
  identityUid?: string;
  reason?: string;
  issuer?: string;
}

/** byCause puts the workloads together that cannot sign in for the same reason, the largest number first. */
export function byCause(all: Endangered[]): { issuer: string; reason: string; uids: string[] }[] {
  const causes = new Map<string, { issuer: string; reason: string; uids: string[] }>();
  for (const { identityUid = "", reason = "", issuer = "" } of all) {
    const key = `${issuer}\n${reason}`;
    const cause = causes.get(key) ?? { issuer, reason, uids: [] };
    cause.uids.push(identityUid);
    causes.set(key, cause);
  }
  return [...causes.values()].sort((a, b) => b.uids.length - a.uids.length);
}
