// Bundles each test of this folder with esbuild, which understands TypeScript, and runs the results with Node's test
// runner.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const folder = import.meta.dirname;
const bundles = mkdtempSync(join(tmpdir(), "console-test-"));
try {
  await build({
    entryPoints: readdirSync(folder)
      .filter((name) => name.endsWith(".test.ts"))
      .map((name) => join(folder, name)),
    bundle: true,
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
    outdir: bundles,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    sourcemap: "inline",
  });
  const run = spawnSync(process.execPath, ["--enable-source-maps", "--test", `${bundles}/`], { stdio: "inherit" });
  process.exitCode = run.status ?? 1;
} finally {
  rmSync(bundles, { recursive: true });
}
