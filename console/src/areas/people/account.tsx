import { useState } from "preact/hooks";
import { del, type Fault, get } from "../../api/api";
import { useQuery, whoami } from "../../api/query";
import { Answer, AsCommand, Choice, Copy, Empty, Facts, many, Name, Page, Problem, Section, Table } from "../../ui";
import { clock, clocks, scheme, schemes } from "../../ui/defaults";
import { Sessions } from "./person";

export default function Account() {
  const me = useQuery(whoami);
  return (
    <Page
      title="Account"
      lead="Who you are here, and what you may do."
      actions={
        <>
          <SignOut />
          <AsCommand command="holdfast auth status" request={whoami} />
        </>
      }
    >
      <Answer of={me}>
        {(who) => (
          <>
            <Section title="You" actions={<a href="/account">Password, passkeys and second factors</a>}>
              <Facts
                of={[
                  ["Name", who.profile?.name && <bdi>{who.profile.name}</bdi>],
                  ["E-mail", who.email && <bdi>{who.email}</bdi>],
                  [
                    "Signed in with",
                    who.identityProviderName ? <bdi>{who.identityProviderName}</bdi> : "an account of this server",
                  ],
                  [
                    "Identity",
                    <>
                      <code>{who.subject}</code>
                      <Copy text={who.subject ?? ""} what="your uid" />
                    </>,
                  ],
                ]}
              />
            </Section>
            <Section title="What you may do">
              {(who.capabilities ?? []).length === 0 ? (
                <Empty title="You hold no role yet">Ask an owner of an organization for an invite.</Empty>
              ) : (
                <Table
                  label="Your roles"
                  rows={who.capabilities ?? []}
                  id={(c) => `${c.group?.id} ${c.role?.id}`}
                  columns={[
                    { name: "On", cell: (c) => <Name uid={c.group?.id} path /> },
                    {
                      name: "Role",
                      cell: (c) => (
                        <>
                          <bdi>{c.role?.name}</bdi>
                          <small class="line">
                            <bdi>{c.role?.description}</bdi>
                          </small>
                        </>
                      ),
                    },
                    {
                      name: "May",
                      cell: (c) => (
                        <details class="caps">
                          <summary>
                            {many(c.capabilities?.length || c.role?.capabilities?.length, "capability", "capabilities")}
                          </summary>
                          <p>{(c.capabilities?.length ? c.capabilities : (c.role?.capabilities ?? [])).join(", ")}</p>
                        </details>
                      ),
                    },
                  ]}
                />
              )}
            </Section>
            <Section title="Preferences">
              <div class="filters">
                <Choice
                  name="scheme"
                  label="Colours"
                  value={scheme.now.value}
                  onChange={scheme.set}
                  options={schemes}
                />
                <Choice name="clock" label="Times" value={clock.now.value} onChange={clock.set} options={clocks} />
              </div>
              <p class="hint">These settings are stored in this browser.</p>
            </Section>
            <Sessions of={who.subject ?? ""} own />
          </>
        )}
      </Answer>
    </Page>
  );
}

/** SignOut ends the session of this browser. */
function SignOut() {
  const { data } = useQuery(get("/signin/v1/sessions", {}));
  const [error, setError] = useState<Fault>();
  const now = data?.sessions?.find((s) => s.current);
  if (!now) return null;
  const out = async () => {
    try {
      await del("/signin/v1/sessions/{uid}", { path: { uid: now.id ?? "" } }).send();
      sessionStorage.clear(); // the next person in this browser does not see what was opened lately
      location.assign("/signin");
    } catch (failed) {
      setError(failed as Fault);
    }
  };
  return (
    <>
      {error && <Problem error={error} />}
      <button type="button" class="small" onClick={out}>
        Sign out
      </button>
    </>
  );
}
