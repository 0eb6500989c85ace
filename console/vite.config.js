// How the console is built. The result depends on the files that sources.js lists and on nothing else.
import { defineConfig } from "vite";
import { sourcesSum } from "./sources.js";

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
        this.emitFile({ type: "asset", fileName: "sources.sum", source: sourcesSum() + "\n" });
      },
    },
  ],
});
