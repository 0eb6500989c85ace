import { get } from "../../api/api";
import { useQuery } from "../../api/query";
import { isPull } from "../../api/sentence";
import { Answer, AsCommand, Empty, EntryRow, Field, Filters, many, Name, Page, Pager, sh } from "../../ui";
import { base, param, withParams } from "../../ui/router";
import { Live } from "./live";

/** moment converts the local time of a field to a time of the API. */
const moment = (text: string) => (text && !Number.isNaN(Date.parse(text)) ? new Date(text).toISOString() : undefined);

export default function Audit() {
  const list = get("/audit/v1/entries", {
    query: {
      group_uid: param("group") || undefined,
      subject: param("subject") || undefined,
      identity_uid: param("identity") || undefined,
      type: param("type") || undefined,
      since: moment(param("since")),
      until: moment(param("until")),
      page_size: 50,
      page_token: param("page") || undefined,
    },
  });
  const flags: [string, string][] = [
    ["group", "--group"],
    ["identity", "--by"],
    ["subject", "--subject"],
    ["type", "--type"],
    ["since", "--since"],
    ["until", "--until"],
  ];
  const set = flags.filter(([p]) => param(p));
  const live = param("live") !== "" && !param("page") && !param("since") && !param("until");
  return (
    <Page
      title="Audit"
      lead="Who changed what, the newest first."
      actions={
        <AsCommand
          command={[
            "holdfast audit",
            ...(live ? ["--follow"] : []),
            ...set.map(([p, f]) => `${f} ${sh(moment(p === "since" || p === "until" ? param(p) : "") ?? param(p))}`),
          ].join(" ")}
          request={list}
        />
      }
    >
      <Filters
        label="Filter the audit log"
        names={{
          group: ["groups"],
          identity: ["identities"],
          subject: ["groups", "repos", "identities", "roles", "identity_providers"],
        }}
      >
        <Field name="type" label="Type begins with" placeholder="iam.rolebindings" first />
        <Field name="group" label="In the group" placeholder="acme/platform" />
        <Field name="identity" label="Done by" placeholder="me" />
        <Field name="subject" label="Done to" placeholder="path or uid" />
        <Field name="since" label="Since" type="datetime-local" />
        <Field name="until" label="Until" type="datetime-local" />
      </Filters>
      {set.length > 0 && (
        <p class="chips" aria-label="Filters">
          {set.map(([p]) => (
            <a key={p} class="chip" href={withParams({ [p]: undefined })} title="Remove this filter">
              {p}:{" "}
              {["group", "identity", "subject"].includes(p) ? (
                <Name uid={param(p)} path quiet />
              ) : (
                <bdi>{param(p)}</bdi>
              )}{" "}
              ✕
            </a>
          ))}
          <a href={`${base}/audit`}>Remove all</a>
        </p>
      )}
      <p class="live-switch">
        {live ? (
          <a class="button small" href={withParams({ live: undefined })}>
            Stop watching
          </a>
        ) : (
          <a class="button small" href={withParams({ live: "1", page: undefined, since: undefined, until: undefined })}>
            Watch live
          </a>
        )}
      </p>
      {live && (
        <Live
          query={{
            group_uid: param("group") || undefined,
            subject: param("subject") || undefined,
            identity_uid: param("identity") || undefined,
            type: param("type") || undefined,
          }}
        />
      )}
      <Answer of={useQuery(list)}>
        {({ entries: all = [], nextPageToken }) => {
          // Pulls are hidden unless somebody asks for a type, because there are many.
          const entries = param("pulls") || param("type") ? all : all.filter((e) => !isPull(e));
          return (
            <>
              {entries.length < all.length && (
                <p class="coverage">
                  {many(all.length - entries.length, "pull")} on this page{" "}
                  {all.length - entries.length === 1 ? "is" : "are"} not shown.{" "}
                  <a href={withParams({ pulls: "shown" })}>Show pulls</a>
                </p>
              )}
              {all.length === 0 &&
                (nextPageToken ? (
                  <Empty title="None on this page">
                    This page examined a limited number of changes. Open the next page.
                  </Empty>
                ) : (
                  <Empty
                    title="Nothing that you may see matches"
                    what="the audit log"
                    needs={["identity.list"]}
                    group={param("group")}
                  >
                    The audit log keeps every change of a resource, who made it and from where.
                  </Empty>
                ))}
              <ul class="entries">
                {entries.map((e) => (
                  <li key={e.id}>
                    <EntryRow of={e} />
                  </li>
                ))}
              </ul>
              <Pager next={nextPageToken} one="entry" more="entries" />
            </>
          );
        }}
      </Answer>
    </Page>
  );
}
