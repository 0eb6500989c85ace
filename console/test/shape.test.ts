import assert from "node:assert/strict";
import { test } from "node:test";
import { area, line, nice, runs, shares, stack } from "../src/ui/shape";

test("nice returns the next round number", () => {
  for (const [n, want] of [
    [0, 1],
    [1, 1],
    [1.2, 2],
    [3, 3],
    [4, 5],
    [6, 8],
    [9, 10],
    [11, 20],
    [200, 200],
    [201, 300],
    [99_999, 100_000],
  ] as const)
    assert.equal(nice(n), want, String(n));
});

test("stack puts values on top of each other", () => {
  assert.deepEqual(stack([[1, 2, 3], []]), [[0, 1, 3, 6], [0]]);
});

test("runs splits where a day is missing", () => {
  assert.deepEqual(runs([], 1.5), []);
  assert.deepEqual(runs([0, 1, 2, 5, 6, 9], 1.5), [
    [0, 2],
    [3, 4],
    [5, 5],
  ]);
});

test("lines and areas are paths", () => {
  assert.equal(
    line([
      [0, 1],
      [2.345, 3],
    ]),
    "M0 1L2.35 3",
  );
  assert.equal(
    area(
      [
        [0, 1],
        [2, 3],
      ],
      [
        [0, 9],
        [2, 9],
      ],
    ),
    "M0 1L2 3L2 9L0 9Z",
  );
  assert.equal(area([], []), "");
});

test("shares of a bar", () => {
  assert.deepEqual(shares([1, 3]), [
    { at: 0, width: 25 },
    { at: 25, width: 75 },
  ]);
  assert.deepEqual(shares([0, 0]), [
    { at: 0, width: 0 },
    { at: 0, width: 0 },
  ]);
  assert.deepEqual(shares([1], 4), [{ at: 0, width: 25 }]);
});
