package e2e_test

import (
	"testing"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// registryExamples returns example calls for the registry, in a new folder.
func registryExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	shelf := w.child(t, x.org, "shelf")
	repo, spare := w.repo(t, shelf, "app"), w.repo(t, shelf, "spare")
	digest := w.pushImage(t, "dev/shelf/app", "pushed", "amd64", "layer")
	index := w.pushIndex(t, "dev/shelf/app", "multi", "amd64", "arm64")
	tag, old := w.tag(t, repo, "stable", digest), w.tag(t, repo, "old", digest)
	nothing := x.org + "/0123456789abcdef"
	list := []example{{}, {all: true}, {query: "page_size=-1", fails: true}}
	get := func(uid string) []example {
		return []example{{uid: uid}, {uid: nothing, fails: true}, {uid: "nonsense", fails: true}}
	}
	image := func(query string) []example {
		return []example{
			{uid: repo, digest: digest},
			{uid: repo, digest: index, query: query},
			{uid: repo, digest: "sha256:abc", fails: true},
		}
	}
	change := func(uid, body, bad string) []example {
		return []example{
			{uid: uid, body: body}, {uid: uid, query: "validate_only=true", body: body}, {uid: uid, body: bad, fails: true},
		}
	}
	deleted := func() string { return w.trash(t, repo, digest) }
	ruled := w.repo(t, shelf, "ruled")
	follower := w.follower(t, shelf, "syncs", ruled)
	w.retain(t, ruled, &ocipb.Retention{KeepNewest: 1})
	mirror := w.child(t, x.org, "mirror")
	up, gone := w.upstream(t, mirror), w.upstream(t, w.child(t, x.org, "mirror2"))
	copied, dropped := w.replication(t, shelf, "copied"), w.replication(t, shelf, "dropped")
	return map[string][]example{
		"ReplicationsService_ListReplications": append(list, example{
			query: "uidp.children_of=" + shelf + "&name=copied&order_by=name",
		}),
		"ReplicationsService_GetReplication": get(copied),
		"ReplicationsService_CreateReplication": {
			{uid: shelf, body: `{"name":"far","address":"https://registry.example.org","path":"acme/x","repos":["a/**"],` +
				`"tags":["v*","!*-dev"],"trigger":"REPLICATION_TRIGGER_SCHEDULE","interval":"3600s","signedOnly":true,` +
				`"followDeletions":true,"credentials":"robot:secret"}`},
			{uid: shelf, body: `{"name":"far"}`, fails: true}, {uid: shelf, body: `{}`, fails: true},
		},
		"ReplicationsService_UpdateReplication":   change(copied, `{"tags":["v1"]}`, `{"interval":"60s"}`),
		"ReplicationsService_RunReplication":      {{uid: copied, body: `{}`}, {uid: nothing, body: `{}`, fails: true}},
		"ReplicationsService_PreviewReplication":  get(copied),
		"ReplicationsService_ListReplicationTags": get(copied),
		"ReplicationsService_DeleteReplication":   {{uid: dropped}, {uid: dropped, fails: true}},
		"UpstreamsService_ListUpstreams": append(list, example{
			query: "uidp.children_of=" + mirror + "&name=docker.io&order_by=name",
		}),
		"UpstreamsService_GetUpstream": get(up),
		"UpstreamsService_CreateUpstream": {
			{
				uid:  w.child(t, x.org, "mirror3"),
				body: `{"name":"ghcr.io","freshFor":"600s","names":["acme/**"],"credentials":"robot:secret","anyone":true}`,
			},
			{uid: mirror, body: `{"name":"ghcr.io"}`, fails: true}, {uid: mirror, body: `{}`, fails: true},
		},
		"UpstreamsService_UpdateUpstream": change(up, `{"freshFor":"60s"}`, `{"freshFor":"0.5s"}`),
		"UpstreamsService_DeleteUpstream": {{uid: gone}, {uid: gone, fails: true}},
		"CopyService_CopyImages": {
			{uid: shelf, body: `{"repo":"copy","fromRepoUid":"` + repo + `","references":["` + digest + `"]}`},
			{uid: shelf, body: `{"repo":"copy","fromRepoUid":"` + repo + `"}`, fails: true},
			{uid: nothing, body: `{"repo":"copy","fromRepoUid":"` + repo + `","references":["x"]}`, fails: true},
		},
		"SyncsService_GetSync":   get(follower),
		"SyncsService_ListSyncs": get(shelf),
		"SyncsService_RunSync": {
			{uid: follower, body: `{}`}, {uid: follower, body: `{"validateOnly":true}`}, {uid: ruled, body: `{}`, fails: true},
		},

		"RetentionService_GetRetention": get(ruled),
		"RetentionService_SetRetention": change(repo,
			`{"keepNewest":10,"keepMatching":["v*"]}`, `{"keepMatching":["["]}`),
		"RetentionService_DeleteRetention":  {{uid: ruled, query: "validate_only=true"}, {uid: nothing, fails: true}},
		"RetentionService_PreviewRetention": get(ruled),
		"RetentionService_RunRetention": {
			{uid: ruled, body: `{"fingerprint":"AQ"}`}, {uid: ruled, body: `{}`, fails: true},
		},

		"TrashService_ListTrashEntries": append(list, example{
			query: "uidp.children_of=" + repo + "&digest=" + digest + "&order_by=create_time",
		}),
		"TrashService_GetTrashEntry": get(deleted()),
		"TrashService_RestoreTrashEntry": {
			{uid: deleted(), body: `{"replace":true}`}, {uid: nothing, body: `{}`, fails: true},
		},
		"TrashService_DeleteTrashEntry": {{uid: deleted()}, {uid: nothing, fails: true}},
		"TrashService_EmptyTrash": {
			{uid: shelf, body: `{"validateOnly":true}`}, {uid: nothing, body: `{}`, fails: true},
		},

		"ReposService_ListRepos": list,
		"ReposService_GetRepo":   get(repo),
		"ReposService_CreateRepo": {
			{
				uid: shelf,
				body: `{"name":"new","description":"d","catalogTier":"CATALOG_TIER_AI",` +
					`"bundles":["ai"],"aliases":["a:b"],"activeTags":["1"]}`,
			},
			{uid: shelf, body: `{"name":"follower","syncConfig":{"source":"dev/shelf/app"}}`},
			{uid: shelf, body: `{}`, fails: true},
			{uid: shelf, body: `{"name":"x","customOverlay":{}}`, fails: true},
			{uid: nothing, body: `{"name":"x"}`, fails: true},
		},
		"ReposService_UpdateRepo":       change(repo, `{"description":"new"}`, `{"name":"A"}`),
		"ReposService_DeleteRepo":       {{uid: spare}, {uid: spare, fails: true}},
		"ReposService_GetRepoReadme":    get(repo),
		"ReposService_UpdateRepoReadme": change(repo, `{"content":"# App"}`, `{"content":"<script>x</script>"}`),

		"TagsService_ListTags": list,
		"TagsService_GetTag":   get(tag),
		"TagsService_CreateTag": {
			{uid: repo, body: `{"name":"x","digest":"` + digest + `"}`}, {uid: repo, body: `{"name":"x"}`, fails: true},
		},
		"TagsService_DeleteTag": {{uid: old}, {uid: old, fails: true}},

		"ImagesService_GetArchitectures": image(""),
		"ImagesService_GetSize":          image("architecture=arm64"),

		"OCIService_GetImage":        image(""),
		"OCIService_GetReferrers":    image(""),
		"OCIService_SummarizeImages": {{uid: repo, query: "digests=" + digest}, {uid: repo, fails: true}},
		"OCIService_ListTagHistory": {
			{uid: repo}, {uid: repo, query: "tag=stable&page_size=1&skip=0&order_by=time%20desc"}, {uid: nothing, fails: true},
		},
		"OCIService_ListPulls": {
			{},
			{
				query: "uidp.children_of=" + repo + "&digest=" + digest + "&identity_uid=" + x.identity +
					"&direction=DIRECTION_PULL",
			},
			{query: "digest=x", fails: true},
		},
		"OCIService_GetSettings": get(shelf),
		"OCIService_UpdateSettings": change(shelf,
			`{"public":true,"immutableExcept":["dev-*"]}`, `{"immutableExcept":["["]}`),
		"OCIService_DeleteSettings": {{uid: shelf}, {uid: "nonsense", fails: true}},
		"OCIService_GetRegistry":    {{}, {as: "nonsense", fails: true}},
	}
}
