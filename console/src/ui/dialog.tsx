import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Fault, Request } from "../api/api";
import { changed, outdated } from "../api/query";
import { Command, Problem } from "./page";

/** Dialog asks for something. It is open as long as it is there. */
export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose: () => void;
  children?: ComponentChildren;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = `${useId().replace(/\W/g, "")}-title`;
  useLayoutEffect(() => {
    // before anybody can type
    const dialog = ref.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={ref}
      aria-labelledby={id}
      onCancel={(e) => {
        e.preventDefault();
        onClose();
      }}
    >
      <div class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="small" onClick={onClose} aria-label="Close">
          ✕
        </button>
      </div>
      {children}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  label: string; // of the button that does it
  keep?: string; // of the button that does not
  command: string;
  requests: Request<unknown>[]; // sent one after the other; the first may be a dry run
  onClose: (done?: boolean) => void;
  onLeave?: () => void; // shows another page afterwards
  children?: ComponentChildren; // what will happen
}

/** Confirm says what will happen before it does. */
export function Confirm({
  title,
  label,
  keep = "Cancel",
  command,
  requests,
  onClose,
  onLeave,
  children,
}: ConfirmProps) {
  const [error, setError] = useState<Fault>();
  const [busy, setBusy] = useState(false);
  const act = async () => {
    setBusy(true);
    try {
      for (const r of requests) await r.send();
      if (onLeave) {
        // the page is of something that is gone, which must not be asked for again
        outdated();
        return onLeave();
      }
      await changed();
      onClose(true);
    } catch (failed) {
      setError(failed as Fault);
      setBusy(false);
      void changed(); // some of it may have been done
    }
  };
  return (
    <Dialog title={title} onClose={() => onClose()}>
      <div class="says">{children}</div>
      <Command text={command} />
      {error && <Problem error={error} />}
      <div class="dialog-foot">
        <button type="button" onClick={() => onClose()}>
          {keep}
        </button>
        <button type="button" class="danger" disabled={busy} onClick={act}>
          {label}
        </button>
      </div>
    </Dialog>
  );
}
