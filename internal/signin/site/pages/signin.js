// What the pages do with a script: passkeys, which cannot do without one, showing
// a password, copying codes, and forgetting the console's tab at the sign-out. Its buttons are hidden where it does not run.
(() => {
  "use strict";
  // The next person in this tab does not see what was opened in the console.
  if (document.querySelector("[data-signed-out]")) sessionStorage.clear();

  for (const button of document.querySelectorAll("[data-show]")) {
    const input = button.previousElementSibling;
    const show = (shown) => {
      input.type = shown ? "text" : "password";
      button.textContent = shown ? "Hide" : "Show";
      button.setAttribute("aria-label", `${button.textContent} password`);
    };
    button.addEventListener("click", () => show(input.type === "password"));
    input.form?.addEventListener("submit", () => show(false)); // browsers store what is a password
    button.hidden = false;
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) break; // only over https, and on this computer
    button.addEventListener("click", async () => {
      const lines = [...document.querySelectorAll(button.dataset.copy)].map((e) => e.textContent);
      const told = document.getElementById("copied");
      try {
        await navigator.clipboard.writeText(lines.join("\n") + "\n");
        told.textContent = "Copied. Paste them where you keep your secrets.";
      } catch {
        told.textContent = "This browser does not let the page copy. Download them instead.";
      }
    });
    button.hidden = false;
  }

  const calls = {
    signin: ["/signin/passkey", "flow", "get"],
    factor: ["/signin/passkey", "flow", "get"],
    register: ["/account/passkeys", "csrf", "create"],
  };
  if (!window.PublicKeyCredential || !PublicKeyCredential.parseRequestOptionsFromJSON) return;

  const problem = document.getElementById("passkey-problem");
  const tell = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };
  const field = (name) => document.querySelector(`input[name="${name}"]`)?.value ?? "";

  const post = async (path, body) => {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify(body),
    });
    const data = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(data.problem || "The server did not accept that. Try again.");
    return data;
  };

  const run = async (kind) => {
    const [path, secret, verb] = calls[kind];
    const body = { [secret]: field(secret) };
    if (kind === "register") body.current = document.getElementById("passkey-current").value;
    const { publicKey } = await post(`${path}/start`, body);
    const options = publicKey.publicKey ?? publicKey;
    const credential = verb === "get"
      ? await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) })
      : await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) });
    body.credential = credential.toJSON();
    if (kind === "register") {
      body.name = field("name").trim() || "Passkey";
      body.required = document.querySelector('[data-passkey-form] input[name="required"]:checked')?.value ?? "";
    }
    location.assign((await post(path, body)).location);
  };

  for (const button of document.querySelectorAll("[data-passkey]")) {
    button.addEventListener("click", async () => {
      button.disabled = true;
      tell("");
      try {
        await run(button.dataset.passkey);
      } catch (error) {
        tell(error.name === "NotAllowedError" ? "No passkey was used. Try again, or sign in another way."
          : error.name === "InvalidStateError" ? "This device already has a passkey for the account."
          : error.message);
        button.disabled = false;
      }
    });
    button.hidden = false;
    const form = button.closest("[data-passkey-form]");
    if (form) form.hidden = false;
  }
})();
