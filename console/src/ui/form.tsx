import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import type { Fault } from "../api/api";
import { isUID, nameOf, resolve } from "../api/names";
import { Problem } from "./page";
import { go, here, param, withParams } from "./router";

/**
 * Filters is a form whose fields are parameters of the address. The fields in names are uids in the
 * address, but people may type paths.
 */
export function Filters({
  label,
  names = {},
  children,
}: {
  label: string;
  names?: Record<string, string[]>;
  children?: ComponentChildren;
}) {
  const [error, setError] = useState<Error>();
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const changes: Record<string, string[]> = {};
    for (const field of form.elements) {
      const name = (field as HTMLInputElement).name;
      if (name) changes[name] = [];
    }
    try {
      for (const [name, value] of new FormData(form)) {
        const text = String(value).trim();
        if (text !== "") changes[name]?.push(names[name] ? await resolve(text, ...names[name]) : text);
      }
    } catch (failed) {
      return setError(failed as Error);
    }
    setError(undefined);
    go(withParams(changes));
  };
  return (
    <form class="filters" role="search" aria-label={label} onSubmit={submit}>
      {children}
      <button type="submit" class="small">
        Filter
      </button>
      {error && <Problem error={error} />}
    </form>
  );
}

interface FieldProps {
  name: string;
  label: string;
  value?: string;
  placeholder?: string;
  type?: "text" | "datetime-local" | "password";
  lines?: number; // the height of a field with several lines
  list?: string[];
  first?: boolean; // "/" leads here
  required?: boolean;
  hint?: ComponentChildren;
  error?: string; // what the server says about it
  onInput?: (value: string) => void;
}

/** Field is a labelled line of text, or several; unless a value is given, it shows the parameter of its name. */
export function Field({
  name,
  label,
  value,
  placeholder,
  type = "text",
  lines,
  list,
  first,
  required,
  hint,
  error,
  onInput,
}: FieldProps) {
  const id = useId().replace(/\W/g, "") + name;
  const now = param(name);
  const shown = (isUID(now) && nameOf(now).value?.path) || now;
  const both = {
    id,
    name,
    placeholder,
    required,
    spellcheck: false,
    "aria-invalid": error ? true : undefined,
    "aria-describedby": [error && `${id}-error`, hint && `${id}-hint`].filter(Boolean).join(" ") || undefined,
    ...(onInput
      ? { value: value ?? "", onInput: (e: Event) => onInput((e.target as HTMLInputElement).value) }
      : { defaultValue: value ?? shown }),
  };
  return (
    <div class={lines ? "field area" : "field"}>
      <label for={id}>{label}</label>
      {lines ? (
        <textarea {...both} rows={lines} autocomplete="off" />
      ) : (
        <input
          {...both}
          type={type as "text"}
          key={value === undefined ? shown : undefined}
          list={list && `${id}-list`}
          data-filter={first || undefined}
          autocomplete={type === "password" ? "new-password" : "off"}
        />
      )}
      {list && (
        <datalist id={`${id}-list`}>
          {list.map((v) => (
            <option key={v} value={v} />
          ))}
        </datalist>
      )}
      {error && (
        <p class="wrong" id={`${id}-error`} role="alert">
          {error}
        </p>
      )}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

/** said is the server's message about a field, if there is one. */
export const said = (fault: Fault | undefined, field: string) =>
  fault?.fields.find((f) => f.field === field || f.field.endsWith(`.${field}`))?.description;

/** unsaid is the fault, unless its message is shown at one of the fields. */
export const unsaid = (fault: Fault | undefined, ...fields: string[]) =>
  fields.some((f) => said(fault, f)) ? undefined : fault;

interface ChoiceProps {
  name: string;
  label: string;
  options: [value: string, name: string][];
  value?: string;
  onChange?: (value: string) => void;
}

/** Choice is a drop-down list. In Filters it applies as soon as it changes. */
export function Choice({ name, label, options, value, onChange }: ChoiceProps) {
  const id = useId().replace(/\W/g, "") + name;
  const [picked, setPicked] = useState<string>(); // kept if another field of the form is wrong
  const address = here.value.search;
  useEffect(() => setPicked(undefined), [address]);
  const now = value ?? picked ?? param(name);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select
        id={id}
        name={name}
        value={now}
        onChange={(e) => {
          const select = e.target as HTMLSelectElement;
          if (onChange) return onChange(select.value);
          setPicked(select.value);
          select.form?.requestSubmit();
        }}
      >
        {options.map(([v, text]) => (
          <option key={v} value={v} selected={v === now}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Check is a box that applies as soon as it is ticked. */
export function Check({ name, label }: { name: string; label: string }) {
  return (
    <label class="check">
      <input
        type="checkbox"
        name={name}
        value="true"
        checked={param(name) === "true"}
        onChange={(e) => (e.target as HTMLInputElement).form?.requestSubmit()}
      />
      {label}
    </label>
  );
}
