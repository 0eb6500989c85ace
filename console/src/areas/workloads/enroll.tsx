// Adding a workload: platform, job and role. The address contains what was typed.
import { useState } from "preact/hooks";
import { type Fault, post, type Schema } from "../../api/api";
import { changed, useMay, useQuery } from "../../api/query";
import { rolesHere } from "../../api/roles";
import {
  Above,
  AsCommand,
  Choice,
  Command,
  Empty,
  Field,
  Name,
  Page,
  Problem,
  Section,
  said,
  sh,
  unsaid,
  useScope,
} from "../../ui";
import { go, param, withParams, workloadPage } from "../../ui/router";
import { type Job, mistakes, type Platform, platforms, type Rule, slug } from "./platforms";

const note = (name: string) => (value: string) => go(withParams({ [name]: value }), { replace: true });
const create = (uid: string, rule: Rule & { name: string }, validate_only?: boolean) =>
  post("/iam/v2beta1/identities/{uid}", {
    path: { uid },
    query: { validate_only },
    body: rule as Schema<"holdfast.iam.v2beta1.Identity">,
  });

export default function Enroll() {
  const { group, path } = useScope();
  const may = useMay();
  const platform = platforms.find((p) => p.id === param("platform"));
  if (group && !may("identity.create", group))
    return (
      <Page title="Add a workload" above={<Above uid={`${group}/`} />}>
        <Empty title="You may not add a workload here">That needs the capability identity.create.</Empty>
      </Page>
    );
  return (
    <Page
      title="Add a workload"
      above={<Above uid={`${group}/`} />}
      lead="A pipeline or a pod proves its identity with a token of its platform. No secret is stored there."
    >
      <Section title="Where does it run?">
        <div class="stack">
          <Choice
            name="platform"
            label="Platform"
            value={platform?.id ?? ""}
            onChange={note("platform")}
            options={[["", "choose…"], ...platforms.map((p): [string, string] => [p.id, p.title])]}
          />
        </div>
      </Section>
      {platform && group && <Which key={platform.id} of={platform} group={group} path={path} />}
    </Page>
  );
}

function Which({ of, group, path }: { of: Platform; group: string; path: string }) {
  const may = useMay();
  const canBind = may("role_bindings.create", group);
  const roles = useQuery(canBind ? rolesHere : null).data?.roles ?? [];
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const [error, setError] = useState<Fault>();
  const [made, setMade] = useState("");
  const [checked, setChecked] = useState(false);
  const job: Job = Object.fromEntries(of.fields.map((f) => [f.name, param(f.name)]));
  const name = slug(param("name") || of.name(job));
  const role = roles.find((r) => r.name === (param("role") || "registry.push"));
  const body = { name, ...of.rule(job) };
  const edit = (field: string) => (value: string) => {
    note(field)(value);
    setChecked(false);
  };
  const act = async () => {
    setError(undefined);
    const found = mistakes(of, job);
    setWrong(found);
    if (Object.keys(found).length > 0) return;
    let uid = made;
    try {
      await create(group, body, true).send();
      if (!checked) return setChecked(true);
      uid = (await create(group, body).send()).uid ?? "";
      setMade(uid);
      if (role)
        await post("/iam/v2beta1/roleBindings/{uid}", {
          path: { uid: group },
          body: { identityUid: uid, roleUid: role.uid },
        }).send();
      await changed();
      go(`${workloadPage(uid)}?tab=setup`);
    } catch (failed) {
      setChecked(false);
      setError(failed as Fault);
    }
  };
  const command = [
    "holdfast iam identities create",
    of.command(job).trim(),
    "--parent",
    sh(path),
    ...(role && of.issuer + of.id !== "aws" && of.id !== "other" ? ["--role", sh(role.name ?? "")] : []),
  ].join(" ");
  const sub = body.claimMatch?.subject ?? body.awsIdentity?.arnPattern,
    pattern = body.claimMatch?.subjectPattern;
  return (
    <Section
      title={`Which job of ${of.title}?`}
      actions={checked && <AsCommand command={`${command} --dry-run`} request={create(group, body, true)} />}
    >
      <form
        class="stack"
        onSubmit={(e) => {
          e.preventDefault();
          void act();
        }}
      >
        {of.fields.map((f) => (
          <Field
            key={f.name}
            name={f.name}
            label={f.label}
            value={job[f.name]}
            onInput={edit(f.name)}
            placeholder={f.example}
            error={
              wrong[f.name] ??
              (f.name === "issuer" ? said(error, "issuer") : f.name === "subject" ? said(error, "subject") : undefined)
            }
          />
        ))}
        <Field
          name="name"
          label="Name here"
          value={param("name")}
          onInput={edit("name")}
          placeholder={name}
          error={said(error, "name")}
        />
        {canBind && (
          <Choice
            name="role"
            label="Role"
            value={role?.name ?? ""}
            onChange={edit("role")}
            options={roles.map((r) => [r.name ?? "", r.name ?? ""])}
          />
        )}
        {checked && (
          <p class="notice" role="status">
            {of.issuer || job.issuer ? (
              <>
                A token of{" "}
                <code>
                  <bdi>{of.issuer || job.issuer}</bdi>
                </code>{" "}
                whose subject{" "}
                {pattern ? (
                  <>
                    matches{" "}
                    <code>
                      /<bdi>{pattern}</bdi>/
                    </code>
                  </>
                ) : (
                  <>
                    is{" "}
                    <code>
                      <bdi>{sub}</bdi>
                    </code>
                  </>
                )}
              </>
            ) : (
              <>
                A caller of the AWS account <code>{job["aws-account"]}</code> whose ARN matches{" "}
                <code>
                  /<bdi>{sub}</bdi>/
                </code>
              </>
            )}{" "}
            becomes{" "}
            <strong>
              <bdi>{name}</bdi>
            </strong>
            {role ? (
              <>
                , with{" "}
                <strong>
                  <bdi>{role.name}</bdi>
                </strong>{" "}
                of <Name uid={group} path plain /> and of everything below it
              </>
            ) : (
              ", without a role yet"
            )}
            .
          </p>
        )}
        <Command text={command} />
        {error && unsaid(error, "name", "issuer", "subject") && <Problem error={error} />}
        {made && error && (
          <p>
            <a href={`${workloadPage(made)}?tab=setup`}>The workload was created without the role</a>
          </p>
        )}
        <p>
          <button type="submit" class="primary small">
            {checked ? "Add the workload" : "Check"}
          </button>
        </p>
      </form>
    </Section>
  );
}
