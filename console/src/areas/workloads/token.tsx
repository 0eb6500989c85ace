// The token debugger: the browser decodes a token, and the server checks it.
import { useState } from "preact/hooks";
import { type Fault, post, type Schema } from "../../api/api";
import { Command, Empty, Name, Problem, Section, Table } from "../../ui";

type Check = Schema<"holdfast.federation.v1.Check">;
type Explanation = Schema<"holdfast.federation.v1.Explanation">;

/** decode returns the header and the claims of a token, without verifying them. */
function decode(token: string): { header: unknown; claims: unknown } | undefined {
  try {
    const [header, claims] = token
      .split(".")
      .slice(0, 2)
      .map((part) => {
        const bytes = Uint8Array.from(atob(part.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
        return JSON.parse(new TextDecoder().decode(bytes)) as unknown;
      });
    return claims ? { header, claims } : undefined;
  } catch {
    return undefined;
  }
}

/** times are the times in a token, which are numbers there, as text. */
function times(claims: unknown): string {
  const of = claims as Record<string, unknown>;
  return [
    ["iat", "made"],
    ["nbf", "valid from"],
    ["exp", "ends"],
  ]
    .flatMap(([claim, word]) =>
      typeof of[claim!] === "number" ? [`${word} ${new Date(Number(of[claim!]) * 1_000).toLocaleString("en-GB")}`] : [],
    )
    .join(", ");
}

/** Checks compares the claims that the rule requires with the claims of the token. */
export const Checks = ({ of, label }: { of: Check[]; label: string }) => (
  <Table
    label={label}
    rows={of}
    id={(c) => c.claim ?? ""}
    columns={[
      {
        name: "Claim",
        cell: (c) => (
          <>
            <span class={c.ok ? "state active" : "wrong"}>
              {c.ok ? "✓" : "✗"}
              <span class="sr">{c.ok ? " matches" : " does not match"}</span>
            </span>{" "}
            <code>{c.claim}</code>
          </>
        ),
      },
      {
        name: "Expected",
        cell: (c) => (
          <code>
            <bdi>{c.expected}</bdi>
          </code>
        ),
      },
      {
        name: "Received",
        cell: (c) => (
          <>
            <code>
              <bdi>{c.received}</bdi>
            </code>
            {c.cause && <small class="line">{c.cause}</small>}
          </>
        ),
      },
    ]}
  />
);

/** Debugger checks a token for one identity, or for all identities that the caller may read. */
export function Debugger({ identity, path }: { identity?: string; path?: string }) {
  const [token, setToken] = useState("");
  const [judged, setJudged] = useState<{ explanations: Explanation[]; incomplete?: boolean }>();
  const [error, setError] = useState<Fault>();
  const shown = decode(token.trim());
  const judge = async () => {
    setError(undefined);
    try {
      const { explanations = [], incomplete } = await post("/federation/v1/explain", {
        body: { token: token.trim(), identityUid: identity },
      }).send();
      setJudged({ explanations, incomplete });
    } catch (failed) {
      setJudged(undefined);
      setError(failed as Fault);
    }
  };
  return (
    <>
      <Section title="Token debugger">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            void judge();
          }}
        >
          <div class="field area">
            <label for="token">A token of the workload's platform</label>
            <textarea
              id="token"
              rows={4}
              value={token}
              onInput={(e) => {
                setToken(e.currentTarget.value);
                setJudged(undefined);
              }}
              autocomplete="off"
              spellcheck={false}
              required
              aria-describedby="token-hint"
            />
            <p class="hint" id="token-hint">
              It is decoded in this browser. “Judge” sends it to the server, which neither stores nor logs it, and
              issues no token.
            </p>
          </div>
          <p>
            <button type="submit" class="primary small">
              Judge
            </button>
          </p>
        </form>
        {error && <Problem error={error} />}
        {token.trim() !== "" &&
          (shown ? (
            <>
              <p class="hint">{times(shown.claims)}</p>
              <pre tabIndex={0}>{JSON.stringify(shown.header, null, 2)}</pre>
              <pre tabIndex={0}>{JSON.stringify(shown.claims, null, 2)}</pre>
            </>
          ) : (
            <p class="hint">This token cannot be decoded. A token has three parts in base64, separated by dots.</p>
          ))}
        <Command text={`holdfast iam identities explain ${path ? `${path} ` : ""}--token-file token.jwt`} />
      </Section>
      {judged?.explanations.length === 0 && (
        <Empty title="There is no identity to compare it with">
          Create one first, or ask for the capability identity.list.
        </Empty>
      )}
      {judged?.explanations.map((x) => (
        <Section key={x.identityUid} title={x.identityName ?? "identity"} actions={<Name uid={x.identityUid} path />}>
          <p class={x.accepted ? "verdict good" : "verdict bad"} role="status">
            <strong>{x.accepted ? "Yes" : "No"}</strong>: the token {x.accepted ? "would be exchanged" : "is refused"}.
          </p>
          <Checks of={x.checks ?? []} label={`Claims for ${x.identityName}`} />
        </Section>
      ))}
      {judged?.incomplete && <p class="coverage">There are more identities than were compared.</p>}
    </>
  );
}
