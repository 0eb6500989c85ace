// The digest of all sources of the console. console_test.go computes the same digest, so that
// a test without Node can tell whether dist is current.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const here = import.meta.dirname;
const generated = "src/api/schema.d.ts"; // types only, which leave no trace in dist
const single = [
  "../internal/access/workload/platforms.json",
  "index.html",
  "package-lock.json",
  "package.json",
  "sources.js",
  "tsconfig.json",
  "vite.config.js",
];

export function sourcesSum() {
  const src = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((e) => e.isFile())
    .map((e) =>
      join(e.parentPath, e.name)
        .slice(here.length + 1)
        .replaceAll("\\", "/"),
    )
    .filter((name) => name !== generated);
  const all = createHash("sha256");
  for (const name of [...single, ...src].sort()) {
    all.update(
      `${createHash("sha256")
        .update(readFileSync(join(here, name)))
        .digest("hex")}  ${name}\n`,
    );
  }
  return all.digest("hex");
}
