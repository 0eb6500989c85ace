// The base score of a CVSS 3 vector, as version 3.1 of the specification computes it.

const weights: Record<string, Record<string, number>> = {
  AV: { N: 0.85, A: 0.62, L: 0.55, P: 0.2 },
  AC: { L: 0.77, H: 0.44 },
  UI: { N: 0.85, R: 0.62 },
  C: { H: 0.56, L: 0.22, N: 0 },
  I: { H: 0.56, L: 0.22, N: 0 },
  A: { H: 0.56, L: 0.22, N: 0 },
};
const privileges: Record<string, Record<string, number>> = {
  U: { N: 0.85, L: 0.62, H: 0.27 },
  C: { N: 0.85, L: 0.68, H: 0.5 },
};

/** roundUp returns the smallest number with one decimal that is at least n, without the errors of binary fractions. */
function roundUp(n: number): number {
  const whole = Math.round(n * 100_000);
  return whole % 10_000 === 0 ? whole / 100_000 : (Math.floor(whole / 10_000) + 1) / 10;
}

/** baseScore returns the base score of a vector, or undefined if it is not a vector of version 3. */
export function baseScore(vector: string): number | undefined {
  if (!/^CVSS:3\.[01]\//.test(vector)) return undefined;
  const values = new Map(vector.split("/").map((part) => part.split(":", 2) as [string, string]));
  const changed = values.get("S") === "C";
  const weight = (metric: string) => weights[metric]?.[values.get(metric) ?? ""] ?? Number.NaN;
  const pr = privileges[changed ? "C" : "U"]?.[values.get("PR") ?? ""] ?? Number.NaN;
  const lost = 1 - (1 - weight("C")) * (1 - weight("I")) * (1 - weight("A"));
  const impact = changed ? 7.52 * (lost - 0.029) - 3.25 * (lost - 0.02) ** 15 : 6.42 * lost;
  const score = impact + 8.22 * weight("AV") * weight("AC") * pr * weight("UI");
  if (Number.isNaN(score)) return undefined;
  return impact <= 0 ? 0 : roundUp(Math.min(changed ? 1.08 * score : score, 10));
}

/** severityOf is the name that the specification gives to a score. */
export function severityOf(score: number): string {
  for (const [least, name] of [
    [9, "critical"],
    [7, "high"],
    [4, "medium"],
  ] as const)
    if (score >= least) return name;
  return score > 0 ? "low" : "none";
}
