import { useEffect, useState } from "preact/hooks";

/** Copy is a button that copies a text. With mouse, the keyboard does not stop at it, as in trees. */
export function Copy({ text, what, mouse }: { text: string; what: string; mouse?: boolean }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1_500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = () =>
    navigator.clipboard?.writeText(text).then(
      () => setDone(true),
      () => undefined,
    );
  return (
    <button
      type="button"
      class="copy"
      tabIndex={mouse ? -1 : undefined}
      aria-hidden={mouse || undefined}
      onClick={copy}
      aria-label={`Copy ${what}`}
      title={done ? "Copied" : `Copy ${what}`}
    >
      <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
        {done ? (
          <path d="M3 8.5l3.2 3.2L13 5" fill="none" stroke="currentColor" stroke-width="1.6" />
        ) : (
          <path d="M5.5 5.5V3h7.5v7.5h-2.5M3 5.5h7.5V13H3z" fill="none" stroke="currentColor" stroke-width="1.3" />
        )}
      </svg>
      <span class="sr" role="status">
        {done ? "Copied" : ""}
      </span>
    </button>
  );
}
