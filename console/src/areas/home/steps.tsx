// The first steps in a new organization.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { get, type Schema } from "../../api/api";
import { useMay, useQuery } from "../../api/query";
import { addGitHub, Choice, Command, Problem, Section, sh } from "../../ui";
import { groupPage } from "../../ui/router";

interface Step {
  title: string;
  done: boolean;
  why: ComponentChildren;
  command?: string;
  form?: ComponentChildren;
}

/** Checklist shows the first steps in a new organization until all of them are done. */
export function Checklist({ organization }: { organization?: Schema<"holdfast.iam.v2beta1.Group"> }) {
  const may = useMay();
  const uid = organization?.uid ?? "";
  const owner = uid !== "" && may("group_invites.create", uid) && may("identity_providers.create", uid);
  const below = { "uidp.descendants_of": uid, page_size: 1 };
  const invites = useQuery(owner ? get("/iam/v2beta1/groupInvites", { query: below }) : null);
  const bindings = useQuery(owner ? get("/iam/v2beta1/roleBindings", { query: { group: uid, page_size: 50 } }) : null);
  const providers = useQuery(owner ? get("/iam/v2beta1/identityProviders", { query: below }) : null);
  const repos = useQuery(owner ? get("/registry/v2beta1/tags", { query: below }) : null);
  const workloads = useQuery(owner ? get("/iam/v2beta1/identities", { query: below }) : null);
  const feeds = useQuery(owner ? get("/advisories/v1/feeds", { query: below }) : null);
  const registry = useQuery(owner ? get("/oci/v1/registry", {}) : null);
  const all = [invites, bindings, providers, repos, workloads, feeds, registry];
  const failed = all.find((q) => q.error)?.error;
  if (failed) return <Problem error={failed} />;
  if (!owner || all.some((q) => q.data === undefined)) return null;
  const people = new Set(
    bindings.data?.roleBindings?.map((b) => b.identity?.uid ?? "").filter((u) => u && !u.includes("/")),
  );
  const name = sh(organization?.name ?? "");
  const steps: Step[] = [
    {
      title: "Invite somebody",
      done: Number(invites.data?.totalCount) > 0 || people.size > 1,
      why: "A second owner can let you in again.",
      command: `holdfast iam invites create --parent ${name} --role owner --ttl 7d --single-use --mail`,
    },
    {
      title: "Register an identity provider",
      done: Number(providers.data?.totalCount) > 0,
      why: "People sign in with their existing accounts.",
      command: `holdfast iam identity-providers create sso --parent ${name} --wizard`,
    },
    {
      title: "Push an image",
      done: Number(repos.data?.totalCount) > 0,
      why: "It is inspected within seconds.",
      command: `holdfast auth configure-docker && docker push ${registry.data?.host}/${organization?.name}/app:v1`,
    },
    {
      title: "Follow a feed of advisories",
      done: Number(feeds.data?.totalCount) > 0,
      why: "Without advisories, no vulnerability is found.",
      form: <Feed group={name} />,
    },
    {
      title: "Add a workload",
      done: Number(workloads.data?.totalCount) > 0,
      why: "A pipeline pushes without a stored secret.",
      command: addGitHub(name),
    },
  ];
  if (steps.every((s) => s.done)) return null;
  return (
    <Section
      title="First steps"
      actions={
        <span class="hint">
          {steps.filter((s) => s.done).length} of {steps.length} done in{" "}
          <a href={groupPage(uid)}>
            <bdi>{organization?.name}</bdi>
          </a>
        </span>
      }
    >
      <ol class="steps">
        {steps.map((s) => (
          <li key={s.title} class={s.done ? "done" : undefined}>
            <span class="tick" aria-hidden="true">
              {s.done ? "✓" : ""}
            </span>
            <div>
              <strong>{s.title}</strong> <span class="hint">{s.done ? "done" : s.why}</span>
              {!s.done && (s.form ?? <Command text={s.command ?? ""} />)}
            </div>
          </li>
        ))}
      </ol>
    </Section>
  );
}

const ecosystems = ["npm", "Go", "PyPI", "Maven", "Alpine", "Debian", "Ubuntu", "RubyGems", "NuGet", "crates.io"];

/** Feed shows the command that follows the advisories of an ecosystem, which OSV publishes. */
function Feed({ group }: { group: string }) {
  const [of, setOf] = useState("npm");
  const name = of.toLowerCase().replace(/\W/g, "-");
  const address = `https://osv-vulnerabilities.storage.googleapis.com/${of}/all.zip`;
  return (
    <>
      <Choice
        name="ecosystem"
        label="Packages of"
        value={of}
        onChange={setOf}
        options={ecosystems.map((e): [string, string] => [e, e])}
      />
      <Command text={`holdfast advisories feeds create ${name} --parent ${group} --address ${address} --interval 6h`} />
    </>
  );
}
