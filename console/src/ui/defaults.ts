// The preferences of a person, which are stored in this browser.
import { signal } from "@preact/signals";

export const schemes: [string, string][] = [
  ["", "as the system"],
  ["light", "light"],
  ["dark", "dark"],
];
export const clocks: [string, string][] = [
  ["", "relative"],
  ["exact", "exact"],
];

const read = (name: string) => {
  try {
    return localStorage.getItem(`holdfast.${name}`) ?? "";
  } catch {
    return ""; // the browser stores nothing
  }
};

const preference = (name: string) => {
  const now = signal(read(name));
  const set = (value: string) => {
    now.value = value;
    try {
      if (value) localStorage.setItem(`holdfast.${name}`, value);
      else localStorage.removeItem(`holdfast.${name}`);
    } catch {
      // it lasts as long as the tab
    }
  };
  return { now, set };
};

export const scheme = preference("scheme");
export const clock = preference("clock");

/** showScheme applies the preferred colors to the page. */
export const showScheme = () => scheme.now.subscribe((chosen) => (document.documentElement.dataset.scheme = chosen));
