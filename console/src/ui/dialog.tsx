import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Fault, Request } from "../api/api";
import { changed, outdated } from "../api/query";
import { Command, Problem } from "./page";
import { toast } from "./toast";

/** Dialog is a modal dialog, which is open while it is rendered. */
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
    // before a person can type
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
  label: string; // the button that confirms
  keep?: string; // the button that cancels
  safe?: boolean; // it removes nothing, so the button is not red
  done?: string; // said afterwards
  command: string;
  requests: Request<unknown>[]; // sent one after the other; the first may be a dry run
  onClose: (done?: boolean) => void;
  onLeave?: () => void; // shows another page afterwards
  children?: ComponentChildren; // what will happen
}

/** Confirm shows what will happen and asks for confirmation. */
export function Confirm({
  title,
  label,
  keep = "Cancel",
  safe,
  done,
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
      if (done) toast(done);
      if (onLeave) {
        // the page shows a deleted resource, which must not be requested again
        outdated();
        return onLeave();
      }
      await changed();
      onClose(true);
    } catch (failed) {
      setError(failed as Fault);
      setBusy(false);
      void changed(); // a part of it may have been done
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
        <button type="button" class={safe ? "primary" : "danger"} disabled={busy} onClick={act}>
          {label}
        </button>
      </div>
    </Dialog>
  );
}
