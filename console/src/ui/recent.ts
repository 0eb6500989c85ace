// What was opened last in this tab: at most eight things, the newest first.
const kept = "holdfast-recent";
const most = 8;

export interface Recent {
  href: string;
  title: string;
}

export function recent(): Recent[] {
  try {
    const all: unknown = JSON.parse(sessionStorage.getItem(kept) ?? "[]");
    return Array.isArray(all) ? all.slice(0, most) : [];
  } catch {
    return [];
  }
}

/** remember adds a thing at the beginning. */
export function remember(thing: Recent) {
  const all = [thing, ...recent().filter((r) => r.href !== thing.href)].slice(0, most);
  sessionStorage.setItem(kept, JSON.stringify(all));
}
