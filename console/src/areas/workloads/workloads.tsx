import { get, type Schema } from "../../api/api";
import { parentOf } from "../../api/names";
import { useMay, useQuery } from "../../api/query";
import {
  Answer,
  AsCommand,
  addGitHub,
  Empty,
  Name,
  NoRole,
  Page,
  Pager,
  Scope,
  sh,
  Table,
  Tabs,
  Time,
  useScope,
} from "../../ui";
import { base, param, withParams } from "../../ui/router";
import { seenTime } from "./platforms";
import { Debugger } from "./token";

const tabs = [
  { id: "", name: "Workloads" },
  { id: "token", name: "Token debugger" },
];
const list = (group: string) =>
  get("/iam/v2beta1/identities", {
    query: {
      "uidp.descendants_of": group,
      order_by: param("order") || "name",
      page_size: 50,
      page_token: param("page") || undefined,
    },
  });

/** proof is a short description of the token that a workload needs. */
const proof = (i: Schema<"holdfast.iam.v2beta1.Identity">) => [
  i.claimMatch?.issuer || i.claimMatch?.issuerPattern || i.staticKeys?.issuer || i.awsIdentity?.awsAccount,
  i.claimMatch?.subject ||
    i.claimMatch?.subjectPattern ||
    i.staticKeys?.subject ||
    i.awsIdentity?.arn ||
    i.awsIdentity?.arnPattern,
];

export default function Workloads() {
  const { group, path, nothing } = useScope();
  const tab = param("tab");
  return (
    <Page
      title="Workloads"
      lead="Pipelines and pods that prove their identity with a token of their platform, without a stored secret."
      actions={
        group &&
        tab === "" && <AsCommand command={`holdfast iam identities list --parent ${sh(path)}`} request={list(group)} />
      }
    >
      <Tabs label="Parts of workloads" items={tabs} now={tab} href={(id) => withParams({ tab: id })} />
      {tab === "token" ? (
        <Debugger />
      ) : (
        <>
          <Scope path={path} />
          {nothing && <NoRole />}
          {group && <List group={group} path={path} />}
        </>
      )}
    </Page>
  );
}

function List({ group, path }: { group: string; path: string }) {
  const may = useMay();
  return (
    <>
      {may("identity.create", group) && (
        <p>
          <a class="button primary small" href={`${base}/workloads/new?group=${group}`}>
            Add a workload
          </a>
        </p>
      )}
      <Answer of={useQuery(list(group))}>
        {({ identities = [], nextPageToken, totalCount }) => (
          <>
            {identities.length === 0 ? (
              <Empty
                title="There is no workload in it"
                what="workloads"
                needs={["identity.list"]}
                group={group}
                command={addGitHub(sh(path))}
              >
                Create an identity with a rule that matches the tokens of a pipeline.
              </Empty>
            ) : (
              <Table
                label="Workloads"
                rows={identities}
                id={(i) => i.uid ?? ""}
                columns={[
                  { name: "Name", order: "name", cell: (i) => <Name uid={i.uid} /> },
                  { name: "Group", cell: (i) => <Name uid={parentOf(i.uid ?? "")} path /> },
                  {
                    name: "Proves itself by",
                    roomy: true,
                    cell: (i) => (
                      <>
                        <bdi>{proof(i)[1]}</bdi>
                        <small class="line">
                          <bdi>{proof(i)[0]}</bdi>
                        </small>
                      </>
                    ),
                    wide: true,
                  },
                  { name: "Last seen", cell: (i) => <Time at={seenTime(i)} /> },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="workload" />
          </>
        )}
      </Answer>
    </>
  );
}
