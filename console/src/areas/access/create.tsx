// The forms that create a folder or a repo in a group.
import { useState } from "preact/hooks";
import { type Fault, post } from "../../api/api";
import { changed } from "../../api/query";
import { Command, Dialog, Field, Problem, said, sh, toast, unsaid } from "../../ui";
import { go, groupPage, repoPage } from "../../ui/router";

export type Created = "folder" | "repo";

const about: Record<Created, { command: string; hint: string; page: (uid: string) => string }> = {
  folder: {
    command: "iam groups create",
    hint: "It is part of the addresses of images. Lower-case letters, digits and hyphens.",
    page: groupPage,
  },
  repo: {
    command: "registry repos create",
    hint: "The first push creates a repo, too.",
    page: repoPage,
  },
};

/** Create creates a folder or a repo, and opens its page. */
export function Create({
  what,
  uid,
  path,
  onClose,
}: {
  what: Created;
  uid: string; // the group
  path: string;
  onClose: () => void;
}) {
  const [name, setName] = useState(""),
    [description, setDescription] = useState("");
  const [error, setError] = useState<Fault>();
  const { command, hint, page } = about[what];
  const send = async () => {
    setError(undefined);
    const body = { name: name.trim(), description: description.trim() || undefined };
    try {
      const made =
        what === "folder"
          ? await post("/iam/v2beta1/groups/{uid}", { path: { uid }, body }).send()
          : await post("/registry/v2beta1/repos/{uid}", { path: { uid }, body }).send();
      await changed();
      toast(`The ${what} ${body.name} was created`);
      onClose();
      go(page(made.uid ?? ""));
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  return (
    <Dialog title={`Create a ${what} in ${path}`} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <Field
          name="new-name"
          label="Name"
          value={name}
          onInput={setName}
          required
          hint={hint}
          error={said(error, "name")}
        />
        <Field name="new-description" label="Description" value={description} onInput={setDescription} />
        <Command
          text={`holdfast ${command} ${sh(name.trim() || "NAME")} --parent ${sh(path)}${
            description.trim() ? ` --description ${sh(description.trim())}` : ""
          }`}
        />
        {error && unsaid(error, "name") && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Create the {what}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
