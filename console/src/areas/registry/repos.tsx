import { get } from "../../api/api";
import { nameOf, parentOf } from "../../api/names";
import { useQuery } from "../../api/query";
import { Answer, AsCommand, Copy, Empty, Field, Filters, Name, Page, Pager, sh, Table, Time } from "../../ui";
import { param, repoPage } from "../../ui/router";

export default function Repos() {
  const name = param("name"),
    order = param("order"),
    group = param("group");
  const list = get("/registry/v2beta1/repos", {
    query: {
      name: name || undefined,
      "uidp.descendants_of": group || undefined,
      order_by: order || "name",
      page_size: 50,
      page_token: param("page") || undefined,
    },
  });
  const command = [
    "holdfast registry repos list",
    name && `--name ${sh(name)}`,
    group && `--parent ${sh(nameOf(group).value?.path ?? group)} --recursive`,
    order && `--order-by ${sh(order)}`,
  ]
    .filter(Boolean)
    .join(" ");
  return (
    <Page
      title="Repos"
      lead="Images that you may pull or see, in all your organizations."
      actions={<AsCommand command={command} request={list} />}
    >
      <Filters label="Filter repos" names={{ group: ["groups"] }}>
        <Field name="name" label="Exact name" placeholder="web" first />
        <Field name="group" label="In the group, and below" placeholder="acme/platform" />
      </Filters>
      <Answer of={useQuery(list)}>
        {({ repos = [], nextPageToken, totalCount }) => (
          <>
            {repos.length === 0 ? (
              name || group ? (
                <Empty title="No repo that you may see matches" what="repos" needs={["repo.list"]} group={group}>
                  Only the exact name matches.
                </Empty>
              ) : (
                <Empty
                  title="There is no repo that you may see"
                  what="repos"
                  needs={["repo.list"]}
                  command="holdfast auth configure-docker && docker push HOST/ORGANIZATION/app:v1"
                >
                  A repo stores the images of one program. The first push creates it.
                </Empty>
              )
            ) : (
              <Table
                label="Repos"
                rows={repos}
                id={(r) => r.uid ?? ""}
                columns={[
                  {
                    name: "Name",
                    order: "name",
                    cell: (r) => (
                      <span class="name">
                        <a href={repoPage(r.uid ?? "")}>
                          <bdi>{r.name}</bdi>
                        </a>
                        <Copy text={r.uid ?? ""} what={`the uid of ${r.name?.slice(0, 40)}`} />
                      </span>
                    ),
                  },
                  { name: "Group", cell: (r) => <Name uid={parentOf(r.uid ?? "")} path quiet /> },
                  { name: "Description", cell: (r) => <bdi>{r.description}</bdi>, wide: true },
                  { name: "Created", order: "create_time", cell: (r) => <Time at={r.createTime} />, wide: true },
                  { name: "Changed", order: "update_time", cell: (r) => <Time at={r.updateTime} />, wide: true },
                ]}
              />
            )}
            <Pager next={nextPageToken} total={totalCount} one="repo" />
          </>
        )}
      </Answer>
    </Page>
  );
}
