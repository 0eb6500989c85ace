import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import { csv } from "../src/areas/vulnerabilities/blast";

test("csv escapes texts that a spreadsheet would compute", async () => {
  const hostile = ['=cmd|" /C calc"!A0', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=1,2"];
  const text = await csv("CVE-2026-1", {
    stages: [
      {
        name: "NAME_PACKAGES",
        items: [...hostile, "libc, 6", 'a "quoted" name'].map((name) => ({
          package: { name, version: name, purl: "" },
          images: 1,
        })),
        gaps: [{ message: "=1", code: "=2", count: 3 }],
      },
    ],
  } as unknown as Parameters<typeof csv>[1]);
  assert.equal(
    text,
    [
      "stage,what,id,more",
      `packages,"'=cmd|"" /C calc""!A0","'=cmd|"" /C calc""!A0",1`,
      "packages,'+1+1,'+1+1,1",
      "packages,'-2+3,'-2+3,1",
      "packages,'@SUM(A1),'@SUM(A1),1",
      "packages,'\t=1,'\t=1,1",
      `packages,"'\r=1","'\r=1",1`,
      `packages,"'=1,2","'=1,2",1`,
      'packages,"libc, 6","libc, 6",1',
      'packages,"a ""quoted"" name","a ""quoted"" name",1',
      "packages,not known: =1,'=2,3",
      "",
    ].join("\r\n"),
  );
});
