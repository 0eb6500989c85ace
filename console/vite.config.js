// How the console is built. The result depends on the files that sources.js lists and on nothing else.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";
import { sourcesSum } from "./sources.js";

/** licenses returns the licenses of the packages that become part of the console, which ask to be passed on with it. */
function licenses() {
  const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
  return Object.keys(packages)
    .filter((path) => path && !packages[path].dev)
    .sort()
    .map((path) => {
      const title = `${path.slice(path.lastIndexOf("node_modules/") + 13)} ${packages[path].version}: LICENSE`;
      return `${"=".repeat(80)}\n${title}\n\n${readFileSync(`${path}/LICENSE`, "utf8").trim()}\n\n`;
    })
    .join("");
}

export default defineConfig({
  base: "/console/",
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the policy forbids what is inline
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  plugins: [
    {
      name: "sources-sum",
      generateBundle() {
        this.emitFile({ type: "asset", fileName: "sources.sum", source: `${sourcesSum()}\n` });
        this.emitFile({ type: "asset", fileName: "licenses.txt", source: licenses() });
      },
    },
  ],
});
