package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// A shelf is a repo with one image and one tag. It is in the folder of things.
type shelf struct {
	things
	repo, tag, digest string
}

// stock creates a repo in the folder and pushes an image to it.
func (w *world) stock(t *testing.T, x things) shelf {
	t.Helper()
	y := shelf{things: x, repo: w.repo(t, x.folder, "app")}
	y.digest = w.pushImage(t, "dev/folder/app", "pushed", "amd64", "layer")
	y.tag = w.tag(t, y.repo, "stable", y.digest)
	return y
}

// shelves returns a text with everything in the registry that the owner can see.
func (w *world) shelves(t *testing.T, y shelf) string {
	t.Helper()
	var b strings.Builder
	for _, in := range []proto.Message{
		&registrypb.ListReposRequest{PageSize: 200}, &registrypb.GetRepoReadmeRequest{Uid: y.repo},
		&registrypb.ListTagsRequest{PageSize: 200, IncludeDates: true, IncludeEpochs: true, IncludeReferrers: true},
		&ocipb.ListTagHistoryRequest{RepoUid: y.repo, PageSize: 200}, &ocipb.GetSettingsRequest{Uid: y.folder},
	} {
		b.WriteString(protojson.MarshalOptions{Multiline: true}.Format(must[proto.Message](t, w.overGRPC, w.Token, in)))
	}
	return b.String()
}

// TestApiBadRegistryInput puts invalid values into every field of the registry API, over both protocols. Each must be
// refused with the typed error for an invalid field, and nothing may change.
func TestApiBadRegistryInput(t *testing.T) {
	t.Parallel()
	tables := map[string]func(shelf) map[string]badRequest{
		"uids":      badRegistryUIDs,
		"repos":     badRepos,
		"sources":   badSources,
		"readmes":   badReadmes,
		"tags":      badTags,
		"images":    badImages,
		"settings":  badSettings,
		"retention": badRetention,
		"upstreams": badUpstreams,

		"replications": badReplications,
		"copies":       badCopies,
		"masks":        badRegistryMasks,
		"lists":        badRegistryLists,
	}
	storyWorld(t, func(t *testing.T, w *world) {
		y := w.stock(t, w.makeThings(t))
		before := w.shelves(t, y)
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			t.Run(name, func(t *testing.T) { w.refuses(t, tables[name](y)) })
		}
		t.Run("bodies and queries", func(t *testing.T) { w.refusesRegistryRaw(t, y) })
		if diff := cmp.Diff(before, w.shelves(t, y)); diff != "" {
			t.Errorf("something changed:\n%s", diff)
		}
	})
}

func badRegistryUIDs(y shelf) map[string]badRequest {
	requests := map[string]func(uid string) badRequest{
		"get repo":    func(uid string) badRequest { return badRequest{"uid", &registrypb.GetRepoRequest{Uid: uid}} },
		"delete repo": func(uid string) badRequest { return badRequest{"uid", &registrypb.DeleteRepoRequest{Uid: uid}} },
		"update repo": func(uid string) badRequest {
			return badRequest{"uid", &registrypb.UpdateRepoRequest{Repo: &registrypb.Repo{Uid: uid, Name: "x"}}}
		},
		"create repo": func(uid string) badRequest {
			return badRequest{"parent", &registrypb.CreateRepoRequest{Parent: uid, Repo: &registrypb.Repo{Name: "x"}}}
		},
		"get tag":    func(uid string) badRequest { return badRequest{"uid", &registrypb.GetTagRequest{Uid: uid}} },
		"delete tag": func(uid string) badRequest { return badRequest{"uid", &registrypb.DeleteTagRequest{Uid: uid}} },
		"create tag": func(uid string) badRequest {
			return badRequest{
				"parent", &registrypb.CreateTagRequest{Parent: uid, Tag: &registrypb.Tag{Name: "x", Digest: y.digest}},
			}
		},
		"copy to": func(uid string) badRequest {
			return badRequest{
				"group_uid",
				&ocipb.CopyImagesRequest{GroupUid: uid, Repo: "x", FromRepoUid: y.repo, References: []string{"stable"}},
			}
		},
		"get replication": func(uid string) badRequest { return badRequest{"uid", &ocipb.GetReplicationRequest{Uid: uid}} },
		"delete replication": func(uid string) badRequest {
			return badRequest{"uid", &ocipb.DeleteReplicationRequest{Uid: uid}}
		},
		"run replication": func(uid string) badRequest { return badRequest{"uid", &ocipb.RunReplicationRequest{Uid: uid}} },
		"preview replication": func(uid string) badRequest {
			return badRequest{"uid", &ocipb.PreviewReplicationRequest{Uid: uid}}
		},
		"tags of a replication": func(uid string) badRequest {
			return badRequest{"uid", &ocipb.ListReplicationTagsRequest{Uid: uid}}
		},
		"create replication": func(uid string) badRequest {
			return badRequest{"parent", &ocipb.CreateReplicationRequest{Parent: uid, Replication: theReplication("x")}}
		},
		"get upstream":    func(uid string) badRequest { return badRequest{"uid", &ocipb.GetUpstreamRequest{Uid: uid}} },
		"delete upstream": func(uid string) badRequest { return badRequest{"uid", &ocipb.DeleteUpstreamRequest{Uid: uid}} },
		"create upstream": func(uid string) badRequest {
			return badRequest{"parent", &ocipb.CreateUpstreamRequest{Parent: uid, Upstream: &ocipb.Upstream{Name: "docker.io"}}}
		},
		"get retention":    func(uid string) badRequest { return badRequest{"uid", &ocipb.GetRetentionRequest{Uid: uid}} },
		"delete retention": func(uid string) badRequest { return badRequest{"uid", &ocipb.DeleteRetentionRequest{Uid: uid}} },
		"preview retention": func(uid string) badRequest {
			return badRequest{"uid", &ocipb.PreviewRetentionRequest{Uid: uid}}
		},
		"set retention": func(uid string) badRequest {
			return badRequest{"uid", &ocipb.SetRetentionRequest{Retention: &ocipb.Retention{Uid: uid, KeepNewest: 1}}}
		},
		"run retention": func(uid string) badRequest {
			return badRequest{"uid", &ocipb.RunRetentionRequest{Uid: uid, Fingerprint: "AQ"}}
		},
		"get sync": func(uid string) badRequest { return badRequest{"uid", &ocipb.GetSyncRequest{Uid: uid}} },
		"run sync": func(uid string) badRequest { return badRequest{"uid", &ocipb.RunSyncRequest{Uid: uid}} },
		"list syncs": func(uid string) badRequest {
			return badRequest{"group_uid", &ocipb.ListSyncsRequest{GroupUid: uid}}
		},
		"get settings":    func(uid string) badRequest { return badRequest{"uid", &ocipb.GetSettingsRequest{Uid: uid}} },
		"delete settings": func(uid string) badRequest { return badRequest{"uid", &ocipb.DeleteSettingsRequest{Uid: uid}} },
		"update settings": func(uid string) badRequest {
			return badRequest{"uid", &ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: uid, Public: true}}}
		},
	}
	// In these methods, the path continues after the UID.
	within := map[string]func(uid string) badRequest{
		"get readme": func(uid string) badRequest { return badRequest{"uid", &registrypb.GetRepoReadmeRequest{Uid: uid}} },
		"update readme": func(uid string) badRequest {
			return badRequest{
				"uid", &registrypb.UpdateRepoReadmeRequest{RepoReadme: &registrypb.RepoReadme{Uid: uid, Content: "x"}},
			}
		},
		"architectures": func(uid string) badRequest {
			return badRequest{"repo_uid", &registrypb.GetArchitecturesRequest{RepoUid: uid, Digest: y.digest}}
		},
		"size": func(uid string) badRequest {
			return badRequest{"repo_uid", &registrypb.GetSizeRequest{RepoUid: uid, Digest: y.digest}}
		},
		"image": func(uid string) badRequest {
			return badRequest{"repo_uid", &ocipb.GetImageRequest{RepoUid: uid, Reference: "stable"}}
		},
		"referrers": func(uid string) badRequest {
			return badRequest{"repo_uid", &ocipb.GetReferrersRequest{RepoUid: uid, Digest: y.digest}}
		},
		"summaries": func(uid string) badRequest {
			return badRequest{"repo_uid", &ocipb.SummarizeImagesRequest{RepoUid: uid, Digests: []string{y.digest}}}
		},
		"history": func(uid string) badRequest { return badRequest{"repo_uid", &ocipb.ListTagHistoryRequest{RepoUid: uid}} },
		"trash":   func(uid string) badRequest { return badRequest{"uid", &ocipb.GetTrashEntryRequest{Uid: uid}} },
		"restore": func(uid string) badRequest { return badRequest{"uid", &ocipb.RestoreTrashEntryRequest{Uid: uid}} },
		"remove":  func(uid string) badRequest { return badRequest{"uid", &ocipb.DeleteTrashEntryRequest{Uid: uid}} },
		"empty":   func(uid string) badRequest { return badRequest{"uid", &ocipb.EmptyTrashRequest{Uid: uid}} },
	}
	table := map[string]badRequest{}
	for value, uid := range badUIDValues(y.things) {
		for request, with := range requests {
			table[request+" with "+value] = with(uid)
		}
		for request, with := range within {
			if uid != "" {
				table[request+" with "+value] = with(uid)
			}
		}
		if uid != "" && value != "a word" {
			table["repos below "+value] = badRequest{
				"uidp.descendants_of", &registrypb.ListReposRequest{Uidp: &commonpb.UIDPFilter{DescendantsOf: uid}},
			}
			table["tags in "+value] = badRequest{
				"uidp.children_of", &registrypb.ListTagsRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: uid}},
			}
			table["pulls in "+value] = badRequest{
				"uidp.children_of", &ocipb.ListPullsRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: uid}},
			}
			table["trash in "+value] = badRequest{
				"uidp.children_of", &ocipb.ListTrashEntriesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: uid}},
			}
			table["pulls by "+value] = badRequest{"identity_uid", &ocipb.ListPullsRequest{IdentityUid: uid}}
		}
	}
	return table
}

// badRepoNames are invalid names for a repo.
var badRepoNames = map[string]string{
	"no name":            "",
	"capitals":           "App",
	"a slash":            "a/b",
	"a dot at the start": ".a",
	"a dot at the end":   "a.",
	"two dots":           "a..b",
	"dots":               "..",
	"three underscores":  "a___b",
	"a space":            "a b",
	"a colon":            "a:b",
	"an at":              "a@b",
	"a line break":       "a\n",
	"a NUL":              "a\x00",
	"umlauts":            "äpp",
	"a per cent sign":    "a%2fb",
	"too long a name":    strings.Repeat("a", 129),
	"an endless name":    strings.Repeat("a", 1<<20),
}

func badRepos(y shelf) map[string]badRequest {
	create := func(r *registrypb.Repo) proto.Message {
		return &registrypb.CreateRepoRequest{Parent: y.folder, Repo: r}
	}
	update := func(r *registrypb.Repo, paths ...string) proto.Message {
		r.Uid = y.repo
		return &registrypb.UpdateRepoRequest{Repo: r, UpdateMask: mask(paths...)}
	}
	table := map[string]badRequest{
		"create with no repo":       {"name", &registrypb.CreateRepoRequest{Parent: y.folder}},
		"update to no name":         {"name", update(&registrypb.Repo{}, "name")},
		"replaced by nothing":       {"name", update(&registrypb.Repo{}, "*")},
		"a tier there is none of":   {"catalog_tier", create(&registrypb.Repo{Name: "x", CatalogTier: 7})},
		"a negative tier":           {"catalog_tier", update(&registrypb.Repo{CatalogTier: -1}, "catalog_tier")},
		"a bundle there is none of": {"bundles", create(&registrypb.Repo{Name: "x", Bundles: []string{"base", "mine"}})},
		"an empty bundle":           {"bundles", update(&registrypb.Repo{Bundles: []string{""}}, "bundles")},
		"too many bundles": {
			"bundles", create(&registrypb.Repo{Name: "x", Bundles: slices.Repeat([]string{"base"}, 101)}),
		},
		"an alias without a tag": {"aliases", create(&registrypb.Repo{Name: "x", Aliases: []string{"nginx"}})},
		"an alias with a space":  {"aliases", update(&registrypb.Repo{Aliases: []string{"a b:c"}}, "aliases")},
		"too many aliases": {
			"aliases", create(&registrypb.Repo{Name: "x", Aliases: slices.Repeat([]string{"a:b"}, 101)}),
		},
		"an active tag of nothing":  {"active_tags", create(&registrypb.Repo{Name: "x", ActiveTags: []string{""}})},
		"an active tag with a dash": {"active_tags", update(&registrypb.Repo{ActiveTags: []string{"-x"}}, "active_tags")},
	}
	for value, name := range badRepoNames {
		table["create with "+value] = badRequest{"name", create(&registrypb.Repo{Name: name})}
		table["update to "+value] = badRequest{"name", update(&registrypb.Repo{Name: name}, "name")}
	}
	for value, text := range badDescriptions {
		table["create described by "+value] = badRequest{
			"description", create(&registrypb.Repo{Name: "x", Description: text}),
		}
	}
	return table
}

func badSources(y shelf) map[string]badRequest {
	create := func(c *registrypb.SyncConfig) proto.Message {
		return &registrypb.CreateRepoRequest{Parent: y.folder, Repo: &registrypb.Repo{Name: "x", SyncConfig: c}}
	}
	table := map[string]badRequest{
		"no source":       {"sync_config.source", create(&registrypb.SyncConfig{})},
		"a NUL beside it": {"sync_config.google", create(&registrypb.SyncConfig{Source: y.repo, Google: "a\x00"})},
		"endless amazon": {
			"sync_config.amazon", create(&registrypb.SyncConfig{Source: y.repo, Amazon: strings.Repeat("x", 2049)}),
		},
		"a tier beside one": {
			"catalog_tier",
			&registrypb.CreateRepoRequest{
				Parent: y.folder,
				Repo:   &registrypb.Repo{Name: "x", CatalogTier: 1, SyncConfig: &registrypb.SyncConfig{Source: y.repo}},
			},
		},
		"itself": {"sync_config.source", &registrypb.UpdateRepoRequest{
			Repo:       &registrypb.Repo{Uid: y.repo, SyncConfig: &registrypb.SyncConfig{Source: y.repo}},
			UpdateMask: mask("sync_config"),
		}},
	}
	for value, source := range map[string]string{
		"a word":          "app",
		"a group":         y.folder,
		"nothing":         y.folder + "/0123456789abcdef",
		"dots":            "../../app",
		"no path":         "dev/folder/none",
		"another host":    "other.example/dev/folder/app",
		"a NUL":           "dev/\x00",
		"slashes":         "///",
		"a tag alone":     ":latest",
		"an endless path": strings.Repeat("a/", 900) + "app",
	} {
		table["source of "+value] = badRequest{"sync_config.source", create(&registrypb.SyncConfig{Source: source})}
	}
	return table
}

func badReadmes(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	for value, text := range map[string]string{
		"a script":            "<script>alert(1)</script>",
		"a handler":           `<img src="x" onerror="alert(1)">`,
		"a script for a link": "[x](javascript:alert(1))",
		"a frame":             `<iframe src="https://x.example"></iframe>`,
		"a style":             "<style>p{}</style>",
		"a form":              `<form action="x"><button>x</button></form>`,
		"data for a link":     "[x](data:text/html;base64,PHNjcmlwdD4=)",
		"an object":           `<object data="x"></object>`,
		"a link in capitals":  "<A HREF=JAVASCRIPT:x>x</A>",
		"endless quotes":      strings.Repeat(">", 10_000),
		"endless stress":      strings.Repeat("**a_", 10_000),
		"half a script":       "<script",
		"half a comment":      "<!-- x",
		"a NUL":               "a\x00b",
		"too much":            strings.Repeat("x", 256<<10+1),
		"a base":              `<base href="https://x.example">`,
		"a refresh":           `<meta http-equiv="refresh" content="0">`,
	} {
		table[value] = badRequest{
			"content", &registrypb.UpdateRepoReadmeRequest{RepoReadme: &registrypb.RepoReadme{Uid: y.repo, Content: text}},
		}
	}
	return table
}

// Invalid tags and digests.
var (
	badTagNames = map[string]string{
		"no name":             "",
		"a dot at the start":  ".a",
		"a dash at the start": "-a",
		"a slash":             "a/b",
		"a space":             "a b",
		"a colon":             "a:b",
		"a plus":              "a+b",
		"umlauts":             "ä",
		"a NUL":               "a\x00",
		"a line break":        "a\n",
		"129 characters":      strings.Repeat("a", 129),
	}
	badDigests = map[string]string{
		"a word":            "latest",
		"no algorithm":      strings.Repeat("a", 64),
		"another algorithm": "md5:" + strings.Repeat("a", 32),
		"a short one":       "sha256:abc",
		"a long one":        "sha256:" + strings.Repeat("a", 65),
		"capitals":          "sha256:" + strings.Repeat("A", 64),
		"a sha512 of 64":    "sha512:" + strings.Repeat("a", 64),
		"a NUL":             "sha256:\x00",
		"an endless one":    "sha256:" + strings.Repeat("a", 5000),
		"a space":           "sha256:" + strings.Repeat("a", 63) + " ",
	}
)

func badTags(y shelf) map[string]badRequest {
	create := func(t *registrypb.Tag) proto.Message { return &registrypb.CreateTagRequest{Parent: y.repo, Tag: t} }
	table := map[string]badRequest{
		"no tag":    {"name", &registrypb.CreateTagRequest{Parent: y.repo}},
		"no digest": {"digest", create(&registrypb.Tag{Name: "x"})},
		"a bundle there is none of": {
			"bundles", create(&registrypb.Tag{Name: "x", Digest: y.digest, Bundles: []string{"mine"}}),
		},
		"too many bundles": {
			"bundles", create(&registrypb.Tag{Name: "x", Digest: y.digest, Bundles: slices.Repeat([]string{"base"}, 101)}),
		},
	}
	for value, name := range badTagNames {
		table["tag of "+value] = badRequest{"name", create(&registrypb.Tag{Name: name, Digest: y.digest})}
		if name != "" {
			table["history of "+value] = badRequest{"tag", &ocipb.ListTagHistoryRequest{RepoUid: y.repo, Tag: name}}
		}
	}
	for value, digest := range badDigests {
		table["digest of "+value] = badRequest{"digest", create(&registrypb.Tag{Name: "x", Digest: digest})}
		table["list of digest of "+value] = badRequest{"digest", &registrypb.ListTagsRequest{Digest: digest}}
		table["trash of digest of "+value] = badRequest{"digest", &ocipb.ListTrashEntriesRequest{Digest: digest}}
		table["pulls of digest of "+value] = badRequest{"digest", &ocipb.ListPullsRequest{Digest: digest}}
	}
	return table
}

func badImages(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	for value, digest := range badDigests {
		table["architectures of "+value] = badRequest{
			"digest", &registrypb.GetArchitecturesRequest{RepoUid: y.repo, Digest: digest},
		}
		table["size of "+value] = badRequest{"digest", &registrypb.GetSizeRequest{RepoUid: y.repo, Digest: digest}}
		table["summary of "+value] = badRequest{
			"digests", &ocipb.SummarizeImagesRequest{RepoUid: y.repo, Digests: []string{digest}},
		}
		table["referrers of "+value] = badRequest{"digest", &ocipb.GetReferrersRequest{RepoUid: y.repo, Digest: digest}}
		// An empty value is valid and means the first page.
		if digest != "" {
			table["referrers after "+value] = badRequest{
				"after", &ocipb.GetReferrersRequest{RepoUid: y.repo, Digest: y.digest, After: digest},
			}
		}
		// These two values are valid tags.
		if value != "a word" && value != "no algorithm" {
			table["image of "+value] = badRequest{"reference", &ocipb.GetImageRequest{RepoUid: y.repo, Reference: digest}}
		}
	}
	return table
}

func badSettings(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	for value, patterns := range map[string][]string{
		"half a class":           {"["},
		"no pattern":             {"latest", ""},
		"a NUL":                  {"a\x00"},
		"a backslash at the end": {`a\`},
		"an endless one":         {strings.Repeat("a", 129)},
		"too many":               slices.Repeat([]string{"a"}, 51),
	} {
		table["except "+value] = badRequest{"immutable_except", &ocipb.UpdateSettingsRequest{
			Settings: &ocipb.Settings{Uid: y.folder, ImmutableExcept: patterns},
		}}
	}
	for _, days := range []int32{-1, 366} {
		table[fmt.Sprint(days, " days of trash")] = badRequest{"trash_days", &ocipb.UpdateSettingsRequest{
			Settings: &ocipb.Settings{Uid: y.folder, TrashDays: &days},
		}}
	}
	return table
}

func badRetention(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	set := func(name, field string, r *ocipb.Retention) {
		r.Uid = y.repo
		table[name] = badRequest{field, &ocipb.SetRetentionRequest{Retention: r}}
	}
	for value, patterns := range map[string][]string{
		"half a class": {"["}, "no pattern": {"latest", ""}, "a NUL": {"a\x00"}, "an endless one": {strings.Repeat("a", 129)},
		"too many": slices.Repeat([]string{"a"}, 51),
	} {
		set("matching "+value, "keep_matching", &ocipb.Retention{KeepMatching: patterns})
	}
	set("no rule", "keep_newest", &ocipb.Retention{EveryDays: 1})
	set("less than none", "keep_newest", &ocipb.Retention{KeepNewest: -1})
	set("endless", "keep_newest", &ocipb.Retention{KeepNewest: 10_001})
	set("endless minors", "keep_minors", &ocipb.Retention{KeepMinors: 1_001})
	set("endless days", "keep_younger_days", &ocipb.Retention{KeepYoungerDays: 3651})
	set("the future", "keep_younger_days", &ocipb.Retention{KeepYoungerDays: -1})
	set("pulls of the future", "keep_pulled_days", &ocipb.Retention{KeepPulledDays: -1})
	set("pulls that are not recorded any more", "keep_pulled_days", &ocipb.Retention{KeepPulledDays: 91})
	set("backwards", "every_days", &ocipb.Retention{KeepNewest: 1, EveryDays: -1})
	for value, text := range map[string]string{
		"nothing":        "",
		"a word":         "nonsense",
		"padding":        "AQ==",
		"another format": "Ag",
		"half an image":  "AQIDBA",
		"an endless one": strings.Repeat("A", 5000),
	} {
		table["fingerprint of "+value] = badRequest{"fingerprint", &ocipb.RunRetentionRequest{Uid: y.repo, Fingerprint: text}}
	}
	return table
}

func badUpstreams(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	create := func(name, field string, u *ocipb.Upstream) {
		if u.Name == "" {
			u.Name = "docker.io"
		}
		table[name] = badRequest{field, &ocipb.CreateUpstreamRequest{Parent: y.folder, Upstream: u}}
	}
	create("a name in capitals", "name", &ocipb.Upstream{Name: "Docker", Address: "https://a.example"})
	for value, address := range map[string]string{
		"a word":                  "nonsense",
		"a path":                  "https://a.example/v2",
		"a password":              "https://u:p@a.example",
		"a query":                 "https://a.example?x",
		"another scheme":          "ftp://a.example",
		"the metadata of a cloud": "http://169.254.169.254",
		"a private address":       "https://10.0.0.1",
		"no encryption":           "http://a.example",
	} {
		create("address with "+value, "address", &ocipb.Upstream{Address: address})
	}
	create("a realm inside", "realm", &ocipb.Upstream{Realm: "https://192.168.1.1/token"})
	create("a realm that is none", "realm", &ocipb.Upstream{Realm: "token"})
	create("fresh for too short", "fresh_for", &ocipb.Upstream{FreshFor: durationpb.New(time.Millisecond)})
	create("fresh for too long", "fresh_for", &ocipb.Upstream{FreshFor: durationpb.New(1000 * time.Hour)})
	for value, names := range map[string][]string{
		"nothing":      {""},
		"only a mark":  {"!"},
		"half a class": {"["},
		"stars inside": {"a/**/b"},
		"a NUL":        {"a\x00"},
		"too many":     slices.Repeat([]string{"a"}, 101),
	} {
		create("names of "+value, "names", &ocipb.Upstream{Names: names})
	}
	for value, text := range map[string]string{
		"no password":       "robot",
		"no user":           ":secret",
		"an empty password": "robot:",
		"a line break":      "robot:a\nb",
		"endless":           "robot:" + strings.Repeat("a", 10_000),
	} {
		create("credentials with "+value, "credentials", &ocipb.Upstream{Credentials: text})
	}
	create("an identity that is none", "identity", &ocipb.Upstream{Identity: "robot"})
	create("an identity and credentials", "identity", &ocipb.Upstream{Identity: y.org, Credentials: "robot:secret"})
	return table
}

func badCopies(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	add := func(name, field string, change func(*ocipb.CopyImagesRequest)) {
		r := &ocipb.CopyImagesRequest{GroupUid: y.folder, Repo: "x", FromRepoUid: y.repo, References: []string{"stable"}}
		change(r)
		table[name] = badRequest{field, r}
	}
	for value, uid := range badUIDValues(y.things) {
		add("from "+value, "from_repo_uid", func(r *ocipb.CopyImagesRequest) { r.FromRepoUid = uid })
	}
	for value, name := range map[string]string{
		"nothing": "", "capitals": "App", "a path": "a/b", "a NUL": "a\x00", "dots": "..",
	} {
		add("to "+value, "repo", func(r *ocipb.CopyImagesRequest) { r.Repo = name })
	}
	for value, digest := range badDigests {
		// These two values are valid tags.
		if value != "a word" && value != "no algorithm" {
			add("reference of "+value, "references", func(r *ocipb.CopyImagesRequest) { r.References = []string{digest} })
		}
	}
	for value, name := range badTagNames {
		if name != "" {
			add("tag of "+value, "tag", func(r *ocipb.CopyImagesRequest) { r.Tag = name })
		}
	}
	add("nothing", "references", func(r *ocipb.CopyImagesRequest) { r.References = nil })
	add("too many", "references", func(r *ocipb.CopyImagesRequest) {
		r.References = slices.Repeat([]string{"stable"}, 201)
	})
	add("both", "tag_pattern", func(r *ocipb.CopyImagesRequest) { r.TagPattern = "*" })
	add("half a class", "tag_pattern", func(r *ocipb.CopyImagesRequest) { r.References, r.TagPattern = nil, "[" })
	add("a NUL in a pattern", "tag_pattern", func(r *ocipb.CopyImagesRequest) {
		r.References, r.TagPattern = nil, "a\x00"
	})
	add("a tag for two", "tag", func(r *ocipb.CopyImagesRequest) {
		r.References, r.Tag = []string{"stable", "pushed"}, "x"
	})
	add("a reason for nothing", "reason", func(r *ocipb.CopyImagesRequest) { r.Reason = "why" })
	add("a reason with a NUL", "reason", func(r *ocipb.CopyImagesRequest) { r.Promote, r.Reason = true, "\x00" })
	return table
}

func badRegistryMasks(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	for name, p := range badPaths {
		table["repo: "+name] = badRequest{
			"update_mask", &registrypb.UpdateRepoRequest{Repo: &registrypb.Repo{Uid: y.repo, Name: "x"}, UpdateMask: mask(p...)},
		}
		table["readme: "+name] = badRequest{"update_mask", &registrypb.UpdateRepoReadmeRequest{
			RepoReadme: &registrypb.RepoReadme{Uid: y.repo, Content: "x"}, UpdateMask: mask(p...),
		}}
		table["settings: "+name] = badRequest{
			"update_mask",
			&ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: y.folder, Public: true}, UpdateMask: mask(p...)},
		}
	}
	return table
}

func badRegistryLists(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	for name, b := range badPages {
		table["repos: "+name] = badRequest{
			b.field, &registrypb.ListReposRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["tags: "+name] = badRequest{
			b.field, &registrypb.ListTagsRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["pulls: "+name] = badRequest{
			b.field, &ocipb.ListPullsRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["history: "+name] = badRequest{
			b.field,
			&ocipb.ListTagHistoryRequest{RepoUid: y.repo, PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
	}
	for name, b := range badPages {
		table["trash: "+name] = badRequest{
			b.field, &ocipb.ListTrashEntriesRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
	}
	table["history: forwards"] = badRequest{"order_by", &ocipb.ListTagHistoryRequest{RepoUid: y.repo, OrderBy: "time"}}
	table["pulls: sideways"] = badRequest{"direction", &ocipb.ListPullsRequest{Direction: 3}}
	table["pulls: by name"] = badRequest{"order_by", &ocipb.ListPullsRequest{OrderBy: "name"}}
	for value, name := range badTexts {
		table["repos of name of "+value] = badRequest{"name", &registrypb.ListReposRequest{Name: proto.String(name)}}
		table["tags of name of "+value] = badRequest{"name", &registrypb.ListTagsRequest{Name: name}}
	}
	return table
}

// refusesRegistryRaw sends invalid requests that only one of the two protocols can express.
func (w *world) refusesRegistryRaw(t *testing.T, y shelf) {
	const repos = "/registry/v2beta1/repos"
	folder, repo := repos+"/"+y.folder, repos+"/"+y.repo
	tests := map[string]rawRequest{
		"both spellings of a key": {
			"sync_config", "POST", folder, `{"name":"x","syncConfig":{"source":"a/b"},"sync_config":{"source":"a/b"}}`,
		},
		"a key of the source":     {"sourc", "POST", folder, `{"name":"x","syncConfig":{"sourc":"a/b"}}`},
		"half a spelled key":      {"body", "POST", folder, `{"syncConfig":`},
		"a list of keys":          {"body", "POST", folder, `["syncConfig"]`},
		"an unknown key":          {"nmae", "PATCH", repo, `{"nmae":"x"}`},
		"a word for bundles":      {"bundles", "POST", folder, `{"name":"x","bundles":"base"}`},
		"a tier there is none of": {"catalogTier", "POST", folder, `{"name":"x","catalogTier":"CATALOG_TIER_GOLD"}`},
		"a word for a time":       {"updated_since", "GET", "/registry/v2beta1/tags?updated_since=yesterday", ""},
		"a word for a flag":       {"include_dates", "GET", "/registry/v2beta1/tags?include_dates=some", ""},
		"two names":               {"name", "GET", repos + "?name=a&name=b", ""},
		"a number for public":     {"public", "PATCH", "/oci/v1/settings/" + y.folder, `{"public":1}`},
		"a word for a readme":     {"body", "PATCH", repo + "/readme", `"x"`},
		"a patch of two words":    {"update_mask", "PATCH", repo + "?updateMask=name%20description", `{"name":"x"}`},
	}
	w.refusesAsSent(t, tests)
	// JSON cannot express this time.
	_, st := w.overGRPC(t, w.Token, &registrypb.ListTagsRequest{UpdatedSince: &timestamppb.Timestamp{Seconds: -1 << 40}})
	checkInvalid(t, st, "updated_since")
	for _, in := range []proto.Message{
		&registrypb.UpdateRepoRequest{}, &registrypb.UpdateRepoReadmeRequest{}, &ocipb.UpdateSettingsRequest{},
	} {
		_, st := w.overGRPC(t, w.Token, in)
		checkInvalid(t, st, string(in.ProtoReflect().Descriptor().Fields().Get(0).Name()))
	}
}
