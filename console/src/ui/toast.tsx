// Short messages about finished actions. They disappear by themselves, so they contain nothing that is needed later.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Icon } from "./icon";

interface Message {
  id: number;
  text: string;
}

const shown = signal<Message[]>([]);
const stays = 6_000; // milliseconds
let last = 0;

/** toast says for a few seconds that an action is finished. */
export function toast(text: string) {
  last++;
  shown.value = [...shown.value.slice(-2), { id: last, text }];
}

const drop = (id: number) => {
  shown.value = shown.value.filter((m) => m.id !== id);
};

export const Toasts = () => (
  <div class="toasts" role="status" aria-live="polite">
    {shown.value.map((m) => (
      <Toast key={m.id} of={m} />
    ))}
  </div>
);

function Toast({ of }: { of: Message }) {
  useEffect(() => {
    const timer = setTimeout(() => drop(of.id), stays);
    return () => clearTimeout(timer);
  }, [of.id]);
  return (
    <div class="toast">
      <bdi>{of.text}</bdi>
      <button type="button" class="copy" aria-label="Dismiss the message" onClick={() => drop(of.id)}>
        <Icon name="cross" />
      </button>
    </div>
  );
}
