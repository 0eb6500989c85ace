// The navigation: links to the views, in groups. On a phone, a button opens it.
import { useEffect, useState } from "preact/hooks";
import { type Pending, usePending } from "./api/pending";
import { useQuery, whoami } from "./api/query";
import { Icon } from "./ui/icon";
import { base, here } from "./ui/router";
import { type View, views } from "./views";

/** useMenu returns whether the menu of a phone is open. It closes when another page is shown, and with Escape. */
export function useMenu(): [open: boolean, set: (open: boolean) => void] {
  const [open, setOpen] = useState(false);
  const { pathname } = here.value;
  useEffect(() => setOpen(false), [pathname]);
  useEffect(() => {
    if (!open) return;
    const press = (e: KeyboardEvent) => e.key === "Escape" && setOpen(false);
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [open]);
  return [open, setOpen];
}

export const MenuButton = ({ open, onToggle }: { open: boolean; onToggle: () => void }) => (
  <button
    type="button"
    class="small menu-button"
    aria-label="Menu"
    aria-expanded={open}
    aria-controls="nav"
    onClick={onToggle}
  >
    <Icon name={open ? "cross" : "menu"} />
  </button>
);

const groups = ["", "Organization", "Registry", "Activity", "You"];

export function Nav({ now, open }: { now?: View; open: boolean }) {
  const operator = useQuery(whoami).data?.operator === true;
  const pending = usePending();
  const shown = views.filter((v) => v.name && (!v.operators || operator));
  return (
    <nav class={open ? "nav open" : "nav"} id="nav" aria-label="Console">
      {groups.map((group) => (
        <div key={group} class="nav-group">
          {group && (
            <p class="nav-head" id={`nav-${group}`}>
              {group}
            </p>
          )}
          {shown
            .filter((v) => (v.group ?? "") === group)
            .map((v) => (
              <a
                key={v.path}
                href={v.href ?? base + v.path}
                aria-current={now && (now.name ?? now.under) === v.name ? "page" : undefined}
              >
                {v.icon && <Icon name={v.icon} />}
                <span class="nav-name">{v.name}</span>
                <Counter of={pending[v.name ?? ""]} />
              </a>
            ))}
        </div>
      ))}
    </nav>
  );
}

const most = 50; // a larger number is not counted exactly

function Counter({ of }: { of?: Pending }) {
  if (!of) return null;
  return (
    <span class="counter">
      {of.number > most ? `${most}+` : of.number}
      <span class="sr"> {of.number === 1 ? of.one : of.more}</span>
    </span>
  );
}
