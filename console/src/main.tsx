import { signal } from "@preact/signals";
import { Component, type ComponentChildren, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useQuery, whoami } from "./api/query";
import { MenuButton, Nav, useMenu } from "./nav";
import { Choice, Dialog, Page, Problem, Waiting } from "./ui";
import { clock, clocks, scheme, schemes, showScheme } from "./ui/defaults";
import { Icon } from "./ui/icon";
import { base, followLinks, here, match } from "./ui/router";
import { Toasts } from "./ui/toast";
import { type Component as Shown, type View, views } from "./views";

const loaded = new Map<View, ReturnType<typeof signal<Shown | Error | undefined>>>();

/** load returns the component of a view, undefined until it is loaded. */
function load(view: View) {
  let found = loaded.get(view);
  if (!found) {
    const arriving = signal<Shown | Error | undefined>(undefined);
    found = arriving;
    loaded.set(view, arriving);
    view.load().then(
      (m) => {
        arriving.value = m.default;
      },
      () => {
        loaded.delete(view);
        arriving.value = new Error(
          "This part of the console could not be loaded. Reload the page: the server may have a new version of it.",
        );
      },
    );
  }
  return found;
}

class Boundary extends Component<{ children: ComponentChildren }, { error?: Error }> {
  state: { error?: Error } = {};
  static getDerivedStateFromError = (error: Error) => ({ error });
  componentDidCatch(error: Error) {
    console.error(error);
  }
  render() {
    return this.state.error ? (
      <Problem error={new Error(`The console failed: ${this.state.error.message}`)} />
    ) : (
      this.props.children
    );
  }
}

function Missing() {
  return (
    <Page
      title="There is nothing here"
      lead={
        <>
          Check the address, or start from <a href={`${base}/`}>Home</a>.
        </>
      }
    />
  );
}

function Main({ view, args }: { view?: View; args: Record<string, string> }) {
  if (!view) return <Missing />;
  const Found = load(view).value;
  if (Found === undefined) return <Waiting />;
  if (Found instanceof Error) return <Problem error={Found} />;
  return (
    <Boundary key={here.value.pathname}>
      <Found {...args} />
    </Boundary>
  );
}

function find(path: string): { view?: View; args: Record<string, string> } {
  for (const view of views) {
    const args = match(view.path, path);
    if (args) return { view, args };
  }
  return { args: {} };
}

const keys: [string, string][] = [
  ["Ctrl K or ⌘ K", "Search"],
  ["/", "Go to the filter of this view"],
  ["?", "Show the keys and the preferences"],
  ["g then a letter", "Go to a view: g h is Home, g t is Tree, and so on"],
  ["↑ ↓ ← →", "Move in the tree and between the rows of a table; Enter opens"],
  ["Esc", "Close a dialog"],
];

function useKeys(help: () => void, search: () => void) {
  useEffect(() => {
    let after = "";
    const press = (e: KeyboardEvent) => {
      const at = e.target as HTMLElement;
      if ((e.ctrlKey || e.metaKey) && !e.shiftKey && !e.altKey && e.key.toLowerCase() === "k") {
        e.preventDefault();
        if (!document.querySelector("dialog[open]")) search();
        return;
      }
      if (
        e.ctrlKey ||
        e.metaKey ||
        e.altKey ||
        at.matches("input, select, textarea") ||
        document.querySelector("dialog[open]")
      )
        return;
      const before = after;
      after = e.key;
      const jump = before === "g" && views.find((v) => v.name?.toLowerCase().startsWith(e.key.toLowerCase()));
      if (jump) document.querySelector<HTMLAnchorElement>(`.nav a[href="${jump.href ?? base + jump.path}"]`)?.click();
      else if (e.key === "/") document.querySelector<HTMLElement>("[data-filter]")?.focus();
      else if (e.key === "?") help();
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function Who() {
  const { data } = useQuery(whoami);
  if (!data) return null;
  const name = data.profile?.name || data.email || "Your account";
  return (
    <a class="who" href="/account" title="Your account">
      <bdi>{name}</bdi>
    </a>
  );
}

/** SearchDialog is the search dialog of every view. */
function SearchDialog({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [Finder, setFinder] = useState<Shown | Error>();
  useEffect(() => {
    import("./areas/home/finder").then(
      (m) => setFinder(() => m.Finder),
      () => setFinder(new Error("The search could not be loaded. Reload the page.")),
    );
  }, []);
  useEffect(() => document.querySelector<HTMLElement>("dialog [role=combobox]")?.focus(), [Finder]);
  return (
    <Dialog title="Search" onClose={onClose}>
      {Finder === undefined ? (
        <Waiting />
      ) : Finder instanceof Error ? (
        <Problem error={Finder} />
      ) : (
        <Finder text={text} onText={setText} onOpen={onClose} />
      )}
    </Dialog>
  );
}

function App() {
  const [help, setHelp] = useState(false);
  const [searching, setSearching] = useState(false);
  useKeys(
    () => setHelp(true),
    () => setSearching(true),
  );
  const path = here.value.pathname;
  const { view, args } = find(path);
  const [menu, setMenu] = useMenu();
  useEffect(() => {
    // The first rendering keeps the focus where the browser has set it.
    if (document.activeElement && document.activeElement !== document.body)
      document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true });
  }, [path]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <MenuButton open={menu} onToggle={() => setMenu(!menu)} />
        <a class="brand" href={`${base}/`}>
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <rect class="mark-back" width="32" height="32" rx="8" />
            <path class="mark-line" d="M10 8v16M22 8v16M10 16h12" />
          </svg>
          <span>Holdfast</span>
        </a>
        <button type="button" class="small find" onClick={() => setSearching(true)}>
          <Icon name="search" />
          <span>Find</span>
          <kbd aria-hidden="true">Ctrl K</kbd>
        </button>
        <Who />
        <button
          type="button"
          class="small"
          onClick={() => setHelp(true)}
          aria-label="Keys and preferences"
          title="Keys and preferences (?)"
        >
          ?
        </button>
      </header>
      <Nav now={view} open={menu} />
      <main id="main" tabIndex={-1}>
        <Main view={view} args={args} />
      </main>
      <Toasts />
      {searching && <SearchDialog onClose={() => setSearching(false)} />}
      {help && (
        <Dialog title="Keys and preferences" onClose={() => setHelp(false)}>
          <dl class="facts keys">
            {keys.map(([k, what]) => (
              <div key={k}>
                <dt>
                  <kbd>{k}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
          <div class="filters">
            <Choice name="scheme" label="Colors" value={scheme.now.value} onChange={scheme.set} options={schemes} />
            <Choice name="clock" label="Times" value={clock.now.value} onChange={clock.set} options={clocks} />
          </div>
          <p class="hint">Colors and times are stored in this browser.</p>
          <p class="hint">
            Everything here can be done with the command <code>holdfast</code> and with the{" "}
            <a href="/docs/reference/">API</a>, too. The <a href="/docs/">documentation</a> explains how.
          </p>
        </Dialog>
      )}
    </>
  );
}

followLinks();
showScheme();
render(<App />, document.getElementById("app")!);
