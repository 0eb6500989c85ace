package e2e_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// registryCapabilities are the capabilities that the methods of the registry API require.
var registryCapabilities = []string{
	"repo.create", "repo.update", "repo.list", "repo.delete", "tag.create", "tag.list", "tag.delete",
	"manifest.metadata.list", "referrers.list", "registry.settings.list", "manifest.create", "manifest.delete",
	"manifest.list", "repo.blobs.get",
}

// registryAccesses returns, by name, the methods that act on one place in the registry.
func (h *hierarchy) registryAccesses(t *testing.T) map[string]access {
	t.Helper()
	folder := func(*testing.T) string { return h.folder }
	repo := func(t *testing.T) string { return h.repo(t, h.folder, h.name()) }
	stocked := h.repo(t, h.folder, "stocked")
	digest := h.pushImage(t, "dev/folder/stocked", "pushed", "amd64", "layer")
	shelf := func(*testing.T) string { return stocked }
	tag := func(t *testing.T) string { return h.tag(t, stocked, h.name(), digest) }
	deleted := func(t *testing.T) string { return h.trash(t, stocked, digest) }
	ruled := func(t *testing.T) string {
		h.retain(t, stocked, &ocipb.Retention{KeepMatching: []string{"*"}})
		return stocked
	}
	follower := func(t *testing.T) string { return h.follower(t, h.folder, h.name(), stocked) }
	mirror := func(t *testing.T) string { return h.upstream(t, h.child(t, h.folder, h.name())) }
	copied := func(t *testing.T) string { return h.replication(t, h.child(t, h.folder, h.name()), "far") }
	return map[string]access{
		"GetReplication": {"registry.settings.list", copied, func(uid string) proto.Message {
			return &ocipb.GetReplicationRequest{Uid: uid}
		}},
		"CreateReplication": {"groups.update", folder, func(uid string) proto.Message {
			return &ocipb.CreateReplicationRequest{Parent: uid, Replication: theReplication(h.name())}
		}},
		"UpdateReplication": {"groups.update", copied, func(uid string) proto.Message {
			return &ocipb.UpdateReplicationRequest{Replication: &ocipb.Replication{Uid: uid, Name: h.name()}}
		}},
		"DeleteReplication": {"groups.update", copied, func(uid string) proto.Message {
			return &ocipb.DeleteReplicationRequest{Uid: uid}
		}},
		"RunReplication": {"groups.update", copied, func(uid string) proto.Message {
			return &ocipb.RunReplicationRequest{Uid: uid}
		}},
		"PreviewReplication": {"repo.list", copied, func(uid string) proto.Message {
			return &ocipb.PreviewReplicationRequest{Uid: uid}
		}},
		"ListReplicationTags": {"repo.list", copied, func(uid string) proto.Message {
			return &ocipb.ListReplicationTagsRequest{Uid: uid}
		}},
		"GetUpstream": {"registry.settings.list", mirror, func(uid string) proto.Message {
			return &ocipb.GetUpstreamRequest{Uid: uid}
		}},
		"CreateUpstream": {"groups.update", func(t *testing.T) string {
			return h.child(t, h.folder, h.name())
		}, func(uid string) proto.Message {
			return &ocipb.CreateUpstreamRequest{Parent: uid, Upstream: &ocipb.Upstream{Name: "docker.io"}}
		}},
		"UpdateUpstream": {"groups.update", mirror, func(uid string) proto.Message {
			return &ocipb.UpdateUpstreamRequest{Upstream: &ocipb.Upstream{Uid: uid, Name: h.name()}}
		}},
		"DeleteUpstream": {"groups.update", mirror, func(uid string) proto.Message {
			return &ocipb.DeleteUpstreamRequest{Uid: uid}
		}},
		"GetRetention": {"registry.settings.list", ruled, func(uid string) proto.Message {
			return &ocipb.GetRetentionRequest{Uid: uid}
		}},
		"SetRetention": {"repo.update", folder, func(uid string) proto.Message {
			return &ocipb.SetRetentionRequest{Retention: &ocipb.Retention{Uid: uid, KeepMatching: []string{"*", h.name()}}}
		}},
		"DeleteRetention": {"repo.update", ruled, func(uid string) proto.Message {
			return &ocipb.DeleteRetentionRequest{Uid: uid}
		}},
		"PreviewRetention": {"manifest.delete", ruled, func(uid string) proto.Message {
			return &ocipb.PreviewRetentionRequest{Uid: uid}
		}},
		"RunRetention": {"manifest.delete", ruled, func(uid string) proto.Message {
			return &ocipb.RunRetentionRequest{Uid: uid, Fingerprint: "AQ"}
		}},
		"GetSync":   {"repo.list", follower, func(uid string) proto.Message { return &ocipb.GetSyncRequest{Uid: uid} }},
		"RunSync":   {"repo.update", follower, func(uid string) proto.Message { return &ocipb.RunSyncRequest{Uid: uid} }},
		"ListSyncs": {"repo.list", folder, func(uid string) proto.Message { return &ocipb.ListSyncsRequest{GroupUid: uid} }},
		"CopyImages": {"manifest.create", folder, func(uid string) proto.Message {
			return &ocipb.CopyImagesRequest{GroupUid: uid, Repo: "copy", FromRepoUid: stocked, References: []string{digest}}
		}},
		"GetTrashEntry": {"repo.list", deleted, func(uid string) proto.Message {
			return &ocipb.GetTrashEntryRequest{Uid: uid}
		}},
		"RestoreTrashEntry": {"manifest.create", deleted, func(uid string) proto.Message {
			return &ocipb.RestoreTrashEntryRequest{Uid: uid}
		}},
		"DeleteTrashEntry": {"repo.delete", deleted, func(uid string) proto.Message {
			return &ocipb.DeleteTrashEntryRequest{Uid: uid}
		}},
		"EmptyTrash": {"repo.delete", folder, func(uid string) proto.Message { return &ocipb.EmptyTrashRequest{Uid: uid} }},
		"GetRepo":    {"repo.list", repo, func(uid string) proto.Message { return &registrypb.GetRepoRequest{Uid: uid} }},
		"CreateRepo": {"repo.create", folder, func(uid string) proto.Message {
			return &registrypb.CreateRepoRequest{Parent: uid, Repo: &registrypb.Repo{Name: h.name()}}
		}},
		"UpdateRepo": {"repo.update", repo, func(uid string) proto.Message {
			return &registrypb.UpdateRepoRequest{Repo: &registrypb.Repo{Uid: uid, Name: h.name()}}
		}},
		"DeleteRepo": {"repo.delete", repo, func(uid string) proto.Message {
			return &registrypb.DeleteRepoRequest{Uid: uid}
		}},
		"GetRepoReadme": {"repo.list", repo, func(uid string) proto.Message {
			return &registrypb.GetRepoReadmeRequest{Uid: uid}
		}},
		"UpdateRepoReadme": {"repo.update", repo, func(uid string) proto.Message {
			return &registrypb.UpdateRepoReadmeRequest{RepoReadme: &registrypb.RepoReadme{Uid: uid, Content: "x"}}
		}},
		"GetTag": {"tag.list", tag, func(uid string) proto.Message { return &registrypb.GetTagRequest{Uid: uid} }},
		"CreateTag": {"tag.create", shelf, func(uid string) proto.Message {
			return &registrypb.CreateTagRequest{Parent: uid, Tag: &registrypb.Tag{Name: h.name(), Digest: digest}}
		}},
		"DeleteTag": {"tag.delete", tag, func(uid string) proto.Message { return &registrypb.DeleteTagRequest{Uid: uid} }},
		"GetArchitectures": {"repo.list", shelf, func(uid string) proto.Message {
			return &registrypb.GetArchitecturesRequest{RepoUid: uid, Digest: digest}
		}},
		"GetSize": {"repo.list", shelf, func(uid string) proto.Message {
			return &registrypb.GetSizeRequest{RepoUid: uid, Digest: digest}
		}},
		"GetImage": {"repo.list", shelf, func(uid string) proto.Message {
			return &ocipb.GetImageRequest{RepoUid: uid, Reference: digest}
		}},
		"GetReferrers": {"repo.list", shelf, func(uid string) proto.Message {
			return &ocipb.GetReferrersRequest{RepoUid: uid, Digest: digest}
		}},
		"SummarizeImages": {"repo.list", shelf, func(uid string) proto.Message {
			return &ocipb.SummarizeImagesRequest{RepoUid: uid, Digests: []string{digest}}
		}},
		"ListTagHistory": {"tag.list", shelf, func(uid string) proto.Message {
			return &ocipb.ListTagHistoryRequest{RepoUid: uid}
		}},
		"GetSettings": {"registry.settings.list", folder, func(uid string) proto.Message {
			return &ocipb.GetSettingsRequest{Uid: uid}
		}},
		"UpdateSettings": {"groups.update", folder, func(uid string) proto.Message {
			return &ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: uid, ImmutableExcept: []string{h.name()}}}
		}},
		"DeleteSettings": {"groups.update", folder, func(uid string) proto.Message {
			return &ocipb.DeleteSettingsRequest{Uid: uid}
		}},
	}
}

// TestApiRegistryLists lists the contents of the registry as every caller. The lists and the counts must include only
// resources that the caller may list.
func TestApiRegistryLists(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		for place, path := range map[string]string{
			h.org: "dev", h.folder: "dev/folder", h.sibling: "dev/sibling", h.other: "other",
		} {
			repo := h.repo(t, place, "app")
			digest := h.pushImage(t, path+"/app", "stable", "amd64", path)
			h.trash(t, repo, digest)
			if place == h.folder {
				h.trash(t, repo, digest)
			}
		}
		accesses := h.registryAccesses(t)
		for protocol, call := range w.protocols() {
			// Each of these methods needs two capabilities.
			for _, name := range []string{"GetArchitectures", "GetSize", "GetImage"} {
				uid := accesses[name].place(t)
				_, st := call(t, h.lacking["manifest.metadata.list"], accesses[name].request(uid))
				checkDenied(t, name, st, "manifest.metadata.list", uid)
			}
			uid := accesses["GetReferrers"].place(t)
			_, st := call(t, h.lacking["referrers.list"], accesses["GetReferrers"].request(uid))
			checkDenied(t, "GetReferrers", st, "referrers.list", uid)
			_, st = call(t, h.lacking["referrers.list"], &ocipb.GetSignaturesRequest{RepoUid: uid, Reference: "v1"})
			checkDenied(t, "GetSignatures", st, "referrers.list", uid)
			_, st = call(t, h.lacking["manifest.metadata.list"], accesses["SummarizeImages"].request(uid))
			checkDenied(t, "SummarizeImages", st, "manifest.metadata.list", uid)
			t.Run(protocol, func(t *testing.T) { h.listsRegistry(t, call) })
		}
	})
}

func (h *hierarchy) listsRegistry(t *testing.T, call caller) {
	// The folder has one repo more than its sibling.
	below := map[string]int{"org": 4, "folder": 2, "sibling": 1, "other": 1}
	places := map[string]string{"org": h.org, "folder": h.folder, "sibling": h.sibling, "other": h.other}
	for name, tt := range map[string]struct {
		capability string
		in         proto.Message
	}{"repos": {"repo.list", &registrypb.ListReposRequest{}}, "tags": {"tag.list", &registrypb.ListTagsRequest{}},
		"trash":          {"tag.list", &ocipb.ListTrashEntriesRequest{}},
		"trash of repos": {"repo.list", &ocipb.ListTrashEntriesRequest{}},
	} {
		for who, place := range places {
			uids, total := listed(must[proto.Message](t, call, h.full[who], tt.in))
			for _, uid := range uids {
				if !resource.UID(place).Covers(uid) {
					t.Errorf("%s: with a grant on %s the list holds %s", name, who, uid)
				}
			}
			if len(uids) != below[who] || total != int64(below[who]) {
				t.Errorf("%s: with a grant on %s the list holds %d, total %d, want %d", name, who, len(uids), total, below[who])
			}
		}
		uids, total := listed(must[proto.Message](t, call, h.lacking[tt.capability], tt.in))
		if len(uids) != 0 || total != 0 {
			t.Errorf("%s: without the capability the list holds %q, total %d", name, uids, total)
		}
	}
}
