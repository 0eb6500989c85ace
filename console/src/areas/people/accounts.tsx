// Local accounts: the people, their sign-in methods, and links that reset an account.
import { useState } from "preact/hooks";
import { del, type Fault, get, post, type Schema } from "../../api/api";
import { parentOf } from "../../api/names";
import { useMay, useQuery } from "../../api/query";
import { Answer, Command, Confirm, Dialog, Empty, many, Name, Pager, Problem, sh, Table, Time } from "../../ui";
import { param, personPage, withParams } from "../../ui/router";

type Account = Schema<"holdfast.signin.v1.Account">;

export const accounts = (group: string) =>
  get("/signin/v1/accounts", {
    query: {
      "uidp.descendants_of": group,
      page_size: 50,
      page_token: param("page") || undefined,
      email: param("email") || undefined,
    },
  });

/** factors lists the sign-in methods of an account. */
const factors = (a: Account) =>
  [
    a.hasPassword && "password",
    a.totp && "authenticator app",
    a.passkeys && many(a.passkeys, "passkey"),
    a.recoveryCodes && many(a.recoveryCodes, "recovery code"),
  ]
    .filter(Boolean)
    .join(", ");

export function Accounts({ group, path }: { group: string; path: string }) {
  const may = useMay();
  const [linking, setLinking] = useState<Account>();
  const [deleting, setDeleting] = useState<Account>();
  return (
    <Answer of={useQuery(accounts(group))}>
      {({ accounts: rows = [], nextPageToken, totalCount }) => (
        <>
          {param("email") && (
            <p class="chips">
              <a class="chip" href={withParams({ email: undefined })} title="Remove this filter">
                e-mail: <bdi>{param("email")}</bdi> ✕
              </a>
            </p>
          )}
          {rows.length === 0 ? (
            <Empty
              title="No account belongs to this group"
              what="accounts"
              needs={["identity.list"]}
              group={group}
              command={[
                "holdfast iam accounts create ann@example.com --name 'Ann Example'",
                `--parent ${sh(path)} --role viewer`,
              ].join(" ")}
            >
              An account has a password or a passkey here, for people without an identity provider. It belongs to an
              organization, not to a folder.
            </Empty>
          ) : (
            <Table
              label="Accounts"
              rows={rows}
              id={(a) => a.uid ?? ""}
              columns={[
                {
                  name: "Who",
                  cell: (a) => (
                    <>
                      <a href={personPage(a.identityUid ?? "")}>
                        <bdi>{a.name || a.email}</bdi>
                      </a>
                      <small class="line">
                        <bdi>{a.email}</bdi>
                      </small>
                    </>
                  ),
                },
                { name: "Signs in with", cell: (a) => factors(a) || <span class="hint">nothing yet</span> },
                { name: "In", cell: (a) => <Name uid={parentOf(a.uid ?? "")} path />, wide: true },
                { name: "Last used", cell: (a) => <Time at={a.useTime} />, wide: true },
                {
                  name: "Change",
                  hidden: true,
                  cell: (a) => (
                    <span class="actions">
                      {may("identity.update", a.uid ?? "") && (
                        <button
                          type="button"
                          class="small"
                          aria-label={`Reset ${a.email}`}
                          onClick={() => setLinking(a)}
                        >
                          Reset…
                        </button>
                      )}
                      {may("identity.delete", a.uid ?? "") && (
                        <button
                          type="button"
                          class="danger small"
                          aria-label={`Delete ${a.email}`}
                          onClick={() => setDeleting(a)}
                        >
                          Delete
                        </button>
                      )}
                    </span>
                  ),
                },
              ]}
            />
          )}
          <Pager next={nextPageToken} total={totalCount} one="account" />
          {linking && <Reset of={linking} onClose={() => setLinking(undefined)} />}
          {deleting && (
            <Confirm
              title="Delete an account?"
              done="The account was deleted"
              label="Delete the account"
              keep="Keep it"
              command={`holdfast iam accounts delete ${sh(deleting.email ?? "")} --yes`}
              onClose={() => setDeleting(undefined)}
              requests={[true, undefined].map((validate_only) =>
                del("/signin/v1/accounts/{uid}", { path: { uid: deleting.uid ?? "" }, query: { validate_only } }),
              )}
            >
              <bdi>{deleting.name || deleting.email}</bdi> is signed out everywhere, and loses all roles. What they did
              stays in the audit log.
            </Confirm>
          )}
        </>
      )}
    </Answer>
  );
}

/** Reset creates a link with which a person sets a new password. It is shown only once. */
function Reset({ of, onClose }: { of: Account; onClose: () => void }) {
  const [all, setAll] = useState(false);
  const [made, setMade] = useState<Schema<"holdfast.signin.v1.AccountLink">>();
  const [error, setError] = useState<Fault>();
  const send = async () => {
    setError(undefined);
    try {
      setMade(
        await post("/signin/v1/accountLinks/{uid}", {
          path: { uid: of.uid ?? "" },
          body: { resetFactors: all },
        }).send(),
      );
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  if (made) {
    return (
      <Dialog title="The link" onClose={onClose}>
        <p>
          Give it to <bdi>{of.name || of.email}</bdi>, and to nobody else: everybody with the link can take over the
          account. It is shown only now, works once, and ends <Time at={made.expireTime} />.
        </p>
        <Command text={made.url ?? ""} />
        <div class="dialog-foot">
          <button type="button" class="primary" onClick={onClose}>
            Done
          </button>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="Reset an account?" onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <p>
          <bdi>{of.name || of.email}</bdi> gets a link to choose a new password. What they sign in with now (
          {factors(of) || "nothing yet"}) stays good until they use it.
        </p>
        <label class="check">
          <input type="checkbox" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} />
          Also remove the passkeys and the authenticator app
        </label>
        <Command text={`holdfast iam accounts link ${sh(of.email ?? "")}${all ? " --reset-factors" : ""}`} />
        {error && <Problem error={error} />}
        <div class="dialog-foot">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Make the link
          </button>
        </div>
      </form>
    </Dialog>
  );
}
