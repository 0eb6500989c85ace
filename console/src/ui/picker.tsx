// The choice of a person or a workload: a field with a list of the people whose name or e-mail address matches.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { initials, people } from "../api/people";
import { ask } from "../api/query";

export const Avatar = ({ name }: { name: string }) => (
  <span class="avatar" aria-hidden="true">
    {initials(name)}
  </span>
);

interface Option {
  value: string; // what the field contains afterwards
  name: string;
  more?: string;
}

const typing = 150; // milliseconds without a key, until the server is asked
const most = 6;

interface PickerProps {
  name: string;
  label: string;
  value: string;
  onInput: (value: string) => void;
  others: string[]; // other values to suggest, such as paths of workloads
  placeholder?: string;
  required?: boolean;
  hint?: ComponentChildren;
}

/** Picker keeps its height while the suggestions change, so that nothing moves below the pointer. */
export function Picker({ name, label, value, onInput, others, placeholder, required, hint }: PickerProps) {
  const id = `${useId().replace(/\W/g, "")}-${name}`;
  const [found, setFound] = useState<Option[]>([]);
  const [at, setAt] = useState(-1);
  const text = value.trim().toLowerCase();
  useEffect(() => {
    let stopped = false;
    const timer = setTimeout(() => {
      ask(people(text, most)).then(
        (answer) =>
          !stopped &&
          setFound(
            (answer.people ?? []).map((p) => ({
              value: p.emails?.[0] || p.uid || "",
              name: p.displayName || p.name || p.emails?.[0] || "",
              more: p.emails?.join(", "),
            })),
          ),
        () => !stopped && setFound([]), // the field works without suggestions
      );
    }, typing);
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [text]);
  const options: Option[] = [
    ...found,
    ...others
      .filter((o) => o.includes("/") && o.toLowerCase().includes(text))
      .slice(0, most)
      .map((o) => ({ value: o, name: o })),
  ];
  const now = options[at];
  const choose = (o: Option | undefined) => {
    if (o) onInput(o.value);
    setAt(-1);
  };
  const press = (e: KeyboardEvent) => {
    if (e.key === "ArrowDown") setAt(Math.min(at + 1, options.length - 1));
    else if (e.key === "ArrowUp") setAt(Math.max(at - 1, -1));
    else if (e.key === "Enter" && now) choose(now);
    else return;
    e.preventDefault();
  };
  return (
    <div class="field picker">
      <label for={id}>{label}</label>
      <input
        id={id}
        name={name}
        role="combobox"
        aria-expanded={options.length > 0}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={now && `${id}-${at}`}
        aria-describedby={hint ? `${id}-hint` : undefined}
        value={value}
        onInput={(e) => {
          setAt(-1);
          onInput(e.currentTarget.value);
        }}
        onKeyDown={press}
        placeholder={placeholder}
        required={required}
        autocomplete="off"
        spellcheck={false}
      />
      <ul id={`${id}-list`} class="options people" role="listbox" aria-label="People and workloads">
        {options.map((o, i) => (
          <li
            key={o.value}
            id={`${id}-${i}`}
            role="option"
            aria-selected={i === at || o.value === value}
            onMouseDown={(e) => e.preventDefault()}
            onClick={() => choose(o)}
          >
            <Avatar name={o.name} />
            <span class="option-title">
              <bdi>{o.name}</bdi>
              {o.more && o.more !== o.name && (
                <small class="line">
                  <bdi>{o.more}</bdi>
                </small>
              )}
            </span>
          </li>
        ))}
      </ul>
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}
