// The geometry of charts.

/** nice returns the smallest of 1, 2, 3, 5, 8, 10, 20, 30, 50, … that is at least n. */
export function nice(n: number): number {
  if (n <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  for (const step of [1, 2, 3, 5, 8]) if (step * power >= n) return step * power;
  return 10 * power;
}

/** stack returns, for each row, the borders between the values when they are put on top of each other, from 0 up. */
export const stack = (rows: number[][]): number[][] =>
  rows.map((row) => {
    const borders = [0];
    for (const value of row) borders.push(borders.at(-1)! + value);
    return borders;
  });

/** runs splits sorted times where more than a step is missing, because nothing is known about the time between. */
export function runs(times: number[], step: number): [first: number, last: number][] {
  const all: [number, number][] = [];
  times.forEach((time, i) => {
    const run = all.at(-1);
    if (run && time - times[i - 1]! <= step) run[1] = i;
    else all.push([i, i]);
  });
  return all;
}

const round = (n: number) => Math.round(n * 100) / 100;

/** line is the path through points. */
export const line = (points: [x: number, y: number][]): string =>
  points.map(([x, y], i) => `${i === 0 ? "M" : "L"}${round(x)} ${round(y)}`).join("");

/** area is the path around the area between two lines with the same x. */
export const area = (upper: [number, number][], lower: [number, number][]): string =>
  upper.length === 0 ? "" : `${line(upper)}${line([...lower].reverse()).replace("M", "L")}Z`;

/** shares returns the widths of parts of a bar, in percent of the whole, and where each begins. */
export function shares(
  values: number[],
  whole = values.reduce((sum, v) => sum + v, 0),
): { at: number; width: number }[] {
  let at = 0;
  return values.map((value) => {
    const width = whole > 0 ? (value / whole) * 100 : 0;
    const part = { at: round(at), width: round(width) };
    at += width;
    return part;
  });
}
