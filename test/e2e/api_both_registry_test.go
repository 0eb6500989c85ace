package e2e_test

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

func repoSteps() []step {
	create := func(r *registrypb.Repo) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &registrypb.CreateRepoRequest{Parent: s.uid("images"), Repo: r}
		}
	}
	update := func(r *registrypb.Repo, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			r := proto.Clone(r).(*registrypb.Repo)
			r.Uid = s.uid("repo")
			req := &registrypb.UpdateRepoRequest{Repo: r}
			if paths != nil {
				req.UpdateMask = mask(paths...)
			}
			return req
		}
	}
	follows := func(name, source string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			source := strings.ReplaceAll(source, "UID", s.uid("repo"))
			return create(&registrypb.Repo{
				Name: name, SyncConfig: &registrypb.SyncConfig{Source: source, Google: "gcr.example/x"},
			})(s)
		}
	}
	readme := func(text string, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &registrypb.UpdateRepoReadmeRequest{
				RepoReadme: &registrypb.RepoReadme{Uid: s.uid("repo"), Content: text}, UpdateMask: mask(paths...),
			}
		}
	}
	full := &registrypb.Repo{
		Name:        "app",
		Description: "what runs",
		CatalogTier: registrypb.CatalogTier_CATALOG_TIER_FIPS,
		Bundles:     []string{"base", "fips"},
		Aliases:     []string{"docker.io/library/nginx:latest"},
		ActiveTags:  []string{"1.2"},
	}
	return []step{
		{name: "images", in: func(s *story) proto.Message {
			return &iampb.CreateGroupRequest{Parent: s.org(), Group: &iampb.Group{Name: "images"}}
		}},
		{name: "repo", in: create(full)},
		{name: "repo twice", code: codes.AlreadyExists, in: create(&registrypb.Repo{Name: "app"})},
		{name: "repo of nothing right", code: codes.InvalidArgument, in: create(&registrypb.Repo{
			Name:        "App",
			Description: "a\nb",
			CatalogTier: 9,
			Bundles:     []string{"x"},
			Aliases:     []string{"x"},
			ActiveTags:  []string{"-"},
		})},
		{
			name: "repo with an overlay",
			code: codes.FailedPrecondition,
			in:   create(&registrypb.Repo{Name: "x", CustomOverlay: &registrypb.CustomOverlay{}}),
		},
		{name: "repo in nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.CreateRepoRequest{Parent: s.org() + "/0123456789abcdef", Repo: full}
		}},
		{name: "repo elsewhere", code: codes.PermissionDenied, in: create(full), as: "ada"},
		{name: "get repo", in: func(s *story) proto.Message { return &registrypb.GetRepoRequest{Uid: s.uid("repo")} }},
		{name: "get no repo", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.GetRepoRequest{Uid: s.uid("images") + "/0123456789abcdef"}
		}},
		{name: "get a group for a repo", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.GetRepoRequest{Uid: s.org()}
		}},
		{name: "describe repo", in: update(&registrypb.Repo{Description: "new"})},
		{
			name: "tidy repo",
			in: update(&registrypb.Repo{Aliases: []string{"a:b"}, Description: "ignored"},
				"aliases", "activeTags", "createTime"),
		},
		{name: "replace repo", in: update(full, "*")},
		{name: "repo of no field", code: codes.InvalidArgument, in: update(&registrypb.Repo{}, "nmae")},
		{name: "rename repo to nothing", code: codes.InvalidArgument, in: update(&registrypb.Repo{}, "name")},
		{
			name: "overlay later",
			code: codes.FailedPrecondition,
			in:   update(&registrypb.Repo{CustomOverlay: &registrypb.CustomOverlay{}}, "custom_overlay"),
		},
		{name: "follower", in: follows("follower", "dev/images/app")},
		{name: "follower by uid", in: follows("by-uid", "UID")},
		{name: "follower of nothing", code: codes.InvalidArgument, in: follows("x", "dev/images/nothing")},
		{name: "follower of nonsense", code: codes.InvalidArgument, in: follows("x", "../..")},
		{name: "change what is followed", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &registrypb.UpdateRepoRequest{Repo: &registrypb.Repo{Uid: s.uid("follower"), Bundles: []string{"base"}}}
		}},
		{name: "follow another", in: func(s *story) proto.Message {
			return &registrypb.UpdateRepoRequest{
				Repo: &registrypb.Repo{
					Uid: s.uid("follower"), SyncConfig: &registrypb.SyncConfig{Source: "dev/images/by-uid:tag"},
				},
				UpdateMask: mask("sync_config.source"),
			}
		}},
		{name: "follow itself", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &registrypb.UpdateRepoRequest{
				Repo:       &registrypb.Repo{Uid: s.uid("follower"), SyncConfig: &registrypb.SyncConfig{Source: s.uid("follower")}},
				UpdateMask: mask("syncConfig.source"),
			}
		}},
		{name: "follow no longer", in: func(s *story) proto.Message {
			return &registrypb.UpdateRepoRequest{Repo: &registrypb.Repo{Uid: s.uid("follower")}, UpdateMask: mask("syncConfig")}
		}},
		{name: "list repos", in: func(s *story) proto.Message {
			return &registrypb.ListReposRequest{OrderBy: "name desc", Uidp: &commonpb.UIDPFilter{ChildrenOf: s.uid("images")}}
		}},
		{name: "list repos of a name", in: func(*story) proto.Message {
			return &registrypb.ListReposRequest{Name: proto.String("app"), PageSize: 1}
		}},
		{name: "list repos of a stranger", in: func(*story) proto.Message {
			return &registrypb.ListReposRequest{}
		}, as: "stranger"},
		{name: "no readme", in: func(s *story) proto.Message { return &registrypb.GetRepoReadmeRequest{Uid: s.uid("repo")} }},
		{name: "readme", in: readme("# App\n\n<img src=\"logo.png\" width=\"20\">\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n")},
		{name: "readme with a mask", in: readme("# App", "content")},
		{name: "readme with a script", code: codes.InvalidArgument, in: readme("<script>x</script>")},
		{name: "readme of another field", code: codes.InvalidArgument, in: readme("x", "text")},
		{name: "get readme", in: func(s *story) proto.Message {
			return &registrypb.GetRepoReadmeRequest{Uid: s.uid("repo")}
		}},
		{name: "readme of what is followed", in: func(s *story) proto.Message {
			return &registrypb.GetRepoReadmeRequest{Uid: s.uid("follower by uid")}
		}},
		{name: "readme of a follower", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &registrypb.UpdateRepoReadmeRequest{
				RepoReadme: &registrypb.RepoReadme{Uid: s.uid("follower by uid"), Content: "x"},
			}
		}},
		{name: "sync", in: func(s *story) proto.Message {
			s.w.equal(s.t, s.uid("follower by uid"))
			return &ocipb.GetSyncRequest{Uid: s.uid("follower by uid")}
		}},
		{name: "sync of a repo that follows none", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &ocipb.GetSyncRequest{Uid: s.uid("repo")}
		}},
		{name: "syncs", in: func(s *story) proto.Message {
			return &ocipb.ListSyncsRequest{GroupUid: s.uid("images"), PageSize: 1}
		}},
		{name: "syncs in another order", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &ocipb.ListSyncsRequest{GroupUid: s.uid("images"), OrderBy: "uid desc"}
		}},
		{name: "try to run a sync", in: func(s *story) proto.Message {
			return &ocipb.RunSyncRequest{Uid: s.uid("follower by uid"), ValidateOnly: true}
		}},
		{name: "run no sync", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &ocipb.RunSyncRequest{Uid: s.uid("repo")}
		}},
		// This step stops the sync before its first scheduled run.
		{name: "follower by uid follows no longer", in: func(s *story) proto.Message {
			return &registrypb.UpdateRepoRequest{
				Repo: &registrypb.Repo{Uid: s.uid("follower by uid")}, UpdateMask: mask("syncConfig"),
			}
		}},
		{name: "readme of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.UpdateRepoReadmeRequest{
				RepoReadme: &registrypb.RepoReadme{Uid: s.uid("images") + "/0123456789abcdef", Content: "x"},
			}
		}},
	}
}

func tagSteps() []step {
	const repo = "dev/images/app"
	digest := func(s *story) string {
		return s.once("image", func() string { return s.w.pushImage(s.t, repo, "1.2", "arm64", "layer") })
	}
	index := func(s *story) string {
		return s.once("index", func() string { return s.w.pushIndex(s.t, repo, "multi", "amd64", "arm64") })
	}
	create := func(t *registrypb.Tag) func(*story) proto.Message {
		return func(s *story) proto.Message {
			t := proto.Clone(t).(*registrypb.Tag)
			if t.Digest == "" {
				t.Digest = digest(s)
			}
			return &registrypb.CreateTagRequest{Parent: s.uid("repo"), Tag: t}
		}
	}
	list := func(r *registrypb.ListTagsRequest) func(*story) proto.Message {
		return func(s *story) proto.Message {
			r := proto.Clone(r).(*registrypb.ListTagsRequest)
			r.Uidp = &commonpb.UIDPFilter{ChildrenOf: s.uid("repo")}
			return r
		}
	}
	settings := func(set *ocipb.Settings, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			set := proto.Clone(set).(*ocipb.Settings)
			set.Uid = s.uid("images")
			return &ocipb.UpdateSettingsRequest{Settings: set, UpdateMask: mask(paths...)}
		}
	}
	absent := "sha256:" + strings.Repeat("0", 64)
	return []step{
		{name: "tag", in: create(&registrypb.Tag{Name: "stable", Bundles: []string{"base"}})},
		{name: "tag again", in: create(&registrypb.Tag{Name: "stable", Deprecated: true})},
		{name: "tag moved", in: func(s *story) proto.Message {
			return create(&registrypb.Tag{Name: "stable", Digest: index(s)})(s)
		}},
		{name: "tag of a day", in: create(&registrypb.Tag{Name: "1.2-20260131"})},
		{name: "tag of a build", in: create(&registrypb.Tag{Name: "1.2-r3"})},
		{name: "tag of a referrer", in: create(&registrypb.Tag{Name: "sha256-abc.sig"})},
		{name: "tag of no image", code: codes.NotFound, in: create(&registrypb.Tag{Name: "x", Digest: absent})},
		{
			name: "tag of nothing right",
			code: codes.InvalidArgument,
			in:   create(&registrypb.Tag{Name: "-x", Digest: "sha256:abc", Bundles: []string{"x"}}),
		},
		{name: "tag in nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.CreateTagRequest{
				Parent: s.uid("images") + "/0123456789abcdef", Tag: &registrypb.Tag{Name: "x", Digest: absent},
			}
		}},
		{name: "tag elsewhere", code: codes.PermissionDenied, in: create(&registrypb.Tag{Name: "x"}), as: "ada"},
		{name: "get tag", in: func(s *story) proto.Message { return &registrypb.GetTagRequest{Uid: s.uid("tag")} }},
		{name: "get no tag", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.GetTagRequest{Uid: s.uid("repo") + "/0123456789abcdef"}
		}},
		{name: "list tags", in: list(&registrypb.ListTagsRequest{OrderBy: "name"})},
		{
			name: "list all tags",
			in: list(&registrypb.ListTagsRequest{
				OrderBy: "update_time desc", IncludeDates: true, IncludeEpochs: true, IncludeReferrers: true,
			}),
		},
		{
			name: "list tags of builds",
			in:   list(&registrypb.ListTagsRequest{OrderBy: "name", IncludeEpochs: true, PageSize: 2}),
		},
		{name: "list a hidden tag", in: list(&registrypb.ListTagsRequest{Name: "1.2-r3"})},
		{name: "list tags of an image", in: func(s *story) proto.Message {
			return list(&registrypb.ListTagsRequest{Digest: digest(s), IncludeDates: true, OrderBy: "name"})(s)
		}},
		{
			name: "list tags of tomorrow",
			in:   list(&registrypb.ListTagsRequest{UpdatedSince: &timestamppb.Timestamp{Seconds: 4e9}}),
		},
		{
			name: "list tags of always",
			in:   list(&registrypb.ListTagsRequest{UpdatedSince: &timestamppb.Timestamp{Seconds: 1}, OrderBy: "name desc"}),
		},
		{name: "list tags by creation", in: list(&registrypb.ListTagsRequest{OrderBy: "create_time"})},
		{name: "history", in: func(s *story) proto.Message {
			return &ocipb.ListTagHistoryRequest{RepoUid: s.uid("repo"), Tag: "stable"}
		}},
		{name: "history of all", in: func(s *story) proto.Message {
			return &ocipb.ListTagHistoryRequest{RepoUid: s.uid("repo"), PageSize: 2, Skip: 1}
		}},
		{name: "history of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.ListTagHistoryRequest{RepoUid: s.uid("images") + "/0123456789abcdef"}
		}},
		{name: "settings there are none of", in: func(s *story) proto.Message {
			return &ocipb.GetSettingsRequest{Uid: s.uid("images")}
		}},
		{name: "immutable", in: settings(&ocipb.Settings{ImmutableTags: true, ImmutableExcept: []string{"dev-*"}})},
		{name: "not made by a push", in: settings(&ocipb.Settings{}, "createOnPush")},
		{name: "settings of below", in: func(s *story) proto.Message {
			return &ocipb.GetSettingsRequest{Uid: s.uid("images")}
		}},
		{
			name: "settings of nonsense",
			code: codes.InvalidArgument,
			in:   settings(&ocipb.Settings{ImmutableExcept: []string{"["}}),
		},
		{name: "settings of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: s.org() + "/0123456789abcdef", Public: true}}
		}},
		{name: "immutable tag moved", code: codes.FailedPrecondition, in: create(&registrypb.Tag{Name: "stable"})},
		{name: "immutable tag deleted", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &registrypb.DeleteTagRequest{Uid: s.uid("tag")}
		}},
		{name: "new tag all the same", in: create(&registrypb.Tag{Name: "2.0"})},
		{name: "settings gone", in: func(s *story) proto.Message {
			return &ocipb.DeleteSettingsRequest{Uid: s.uid("images")}
		}},
		{name: "settings gone again", in: func(s *story) proto.Message {
			return &ocipb.DeleteSettingsRequest{Uid: s.uid("images")}
		}},
		{name: "architectures", in: func(s *story) proto.Message {
			return &registrypb.GetArchitecturesRequest{RepoUid: s.uid("repo"), Digest: index(s)}
		}},
		{name: "architecture", in: func(s *story) proto.Message {
			return &registrypb.GetArchitecturesRequest{RepoUid: s.uid("repo"), Digest: digest(s)}
		}},
		{name: "size", in: func(s *story) proto.Message {
			return &registrypb.GetSizeRequest{RepoUid: s.uid("repo"), Digest: digest(s)}
		}},
		{name: "size of an index", in: func(s *story) proto.Message {
			return &registrypb.GetSizeRequest{RepoUid: s.uid("repo"), Digest: index(s)}
		}},
		{name: "size for one", in: func(s *story) proto.Message {
			return &registrypb.GetSizeRequest{RepoUid: s.uid("repo"), Digest: index(s), Architecture: "arm64"}
		}},
		{name: "size for none", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.GetSizeRequest{RepoUid: s.uid("repo"), Digest: index(s), Architecture: "riscv64"}
		}},
		{name: "size of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.GetSizeRequest{RepoUid: s.uid("repo"), Digest: absent}
		}},
		{name: "image", in: func(s *story) proto.Message {
			return &ocipb.GetImageRequest{RepoUid: s.uid("repo"), Reference: "1.2"}
		}},
		{name: "image by digest", in: func(s *story) proto.Message {
			return &ocipb.GetImageRequest{RepoUid: s.uid("repo"), Reference: index(s)}
		}},
		{name: "summaries", in: func(s *story) proto.Message {
			return &ocipb.SummarizeImagesRequest{RepoUid: s.uid("repo"), Digests: []string{index(s), absent}}
		}},
		{name: "no summaries", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &ocipb.SummarizeImagesRequest{RepoUid: s.uid("repo")}
		}},
		{name: "too many summaries", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &ocipb.SummarizeImagesRequest{RepoUid: s.uid("repo"), Digests: slices.Repeat([]string{absent}, 51)}
		}},
		{name: "summaries in no repo", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.SummarizeImagesRequest{RepoUid: s.org() + "/0123456789abcdef", Digests: []string{absent}}
		}},
		{name: "referrers", in: func(s *story) proto.Message {
			return &ocipb.GetReferrersRequest{RepoUid: s.uid("repo"), Digest: index(s)}
		}},
		{name: "referrers of nothing", in: func(s *story) proto.Message {
			return &ocipb.GetReferrersRequest{RepoUid: s.uid("repo"), Digest: absent}
		}},
		{name: "referrers of a tag", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &ocipb.GetReferrersRequest{RepoUid: s.uid("repo"), Digest: "1.2"}
		}},
		{name: "referrers in no repo", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.GetReferrersRequest{RepoUid: s.org() + "/0123456789abcdef", Digest: absent}
		}},
		{name: "no image", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.GetImageRequest{RepoUid: s.uid("repo"), Reference: "9.9"}
		}},
		{name: "delete tag", in: func(s *story) proto.Message {
			return &registrypb.DeleteTagRequest{Uid: s.uid("tag of a day")}
		}},
		{name: "delete tag again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.DeleteTagRequest{Uid: s.uid("tag of a day")}
		}},
		{name: "history of the dead", in: func(s *story) proto.Message {
			return &ocipb.ListTagHistoryRequest{RepoUid: s.uid("repo"), Tag: "1.2-20260131"}
		}},
		{name: "trash", in: func(s *story) proto.Message {
			return &ocipb.ListTrashEntriesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: s.uid("repo")}}
		}},
		{name: "trashed tag", in: func(s *story) proto.Message {
			return &ocipb.GetTrashEntryRequest{Uid: deleted(s, "trash")}
		}},
		{name: "restore of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.RestoreTrashEntryRequest{Uid: s.uid("repo") + "/0123456789abcdef"}
		}},
		{name: "restore", in: func(s *story) proto.Message {
			return &ocipb.RestoreTrashEntryRequest{Uid: deleted(s, "trash")}
		}},
		{name: "restore again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.RestoreTrashEntryRequest{Uid: deleted(s, "trash")}
		}},
		{name: "delete restored tag", in: func(s *story) proto.Message {
			return &registrypb.DeleteTagRequest{Uid: s.uid("tag of a day")}
		}},
		{name: "trash again", in: func(s *story) proto.Message {
			return &ocipb.ListTrashEntriesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: s.uid("repo")}}
		}},
		{name: "remove from the trash", in: func(s *story) proto.Message {
			return &ocipb.DeleteTrashEntryRequest{Uid: deleted(s, "trash again")}
		}},
		{name: "empty the trash", in: func(s *story) proto.Message { return &ocipb.EmptyTrashRequest{Uid: s.uid("images")} }},
		{name: "empty nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.EmptyTrashRequest{Uid: s.org() + "/0123456789abcdef"}
		}},
		{name: "copy", in: func(s *story) proto.Message {
			return &ocipb.CopyImagesRequest{
				GroupUid:      s.uid("images"),
				Repo:          "copy",
				FromRepoUid:   s.uid("repo"),
				References:    []string{index(s)},
				WithReferrers: true,
			}
		}},
		{name: "promotion", in: func(s *story) proto.Message {
			return &ocipb.CopyImagesRequest{
				GroupUid:    s.uid("images"),
				Repo:        "copy",
				FromRepoUid: s.uid("repo"),
				References:  []string{index(s)},
				Tag:         "stable",
				Promote:     true,
				Reason:      "tested",
			}
		}},
		{name: "copy of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.CopyImagesRequest{
				GroupUid: s.uid("images"), Repo: "copy", FromRepoUid: s.uid("repo"), References: []string{"none"},
			}
		}},
		{name: "delete copy", in: func(s *story) proto.Message {
			return &registrypb.DeleteRepoRequest{Uid: s.answers["copy"].(*ocipb.ImageCopy).GetRepoUid()}
		}},
		{name: "no retention", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.GetRetentionRequest{Uid: s.uid("repo")}
		}},
		{name: "retention of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.SetRetentionRequest{Retention: &ocipb.Retention{Uid: s.org() + "/0123456789abcdef", KeepNewest: 1}}
		}},
		{name: "set retention", in: func(s *story) proto.Message {
			return &ocipb.SetRetentionRequest{
				Retention: &ocipb.Retention{Uid: s.uid("images"), KeepMatching: []string{"none"}, KeepYoungerDays: 1},
			}
		}},
		{name: "retention", in: func(s *story) proto.Message { return &ocipb.GetRetentionRequest{Uid: s.uid("repo")} }},
		{name: "preview of retention", in: func(s *story) proto.Message {
			return &ocipb.PreviewRetentionRequest{Uid: s.uid("repo")}
		}},
		{name: "preview of a group", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.PreviewRetentionRequest{Uid: s.uid("images")}
		}},
		{name: "run of retention", in: func(s *story) proto.Message {
			return &ocipb.RunRetentionRequest{
				Uid: s.uid("repo"), Fingerprint: s.answers["preview of retention"].(*ocipb.RetentionPlan).GetFingerprint(),
			}
		}},
		{name: "delete retention", in: func(s *story) proto.Message {
			return &ocipb.DeleteRetentionRequest{Uid: s.uid("images")}
		}},
		{name: "delete retention again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.DeleteRetentionRequest{Uid: s.uid("images")}
		}},
		{name: "mirror", in: func(s *story) proto.Message {
			return &iampb.CreateGroupRequest{Parent: s.org(), Group: &iampb.Group{Name: "mirror"}}
		}},
		{name: "upstream", in: func(s *story) proto.Message {
			return &ocipb.CreateUpstreamRequest{
				Parent:   s.uid("mirror"),
				Upstream: &ocipb.Upstream{Name: "docker.io", Names: []string{"library/*"}, Credentials: "robot:secret"},
			}
		}},
		{name: "another upstream", code: codes.AlreadyExists, in: func(s *story) proto.Message {
			return &ocipb.CreateUpstreamRequest{Parent: s.uid("mirror"), Upstream: &ocipb.Upstream{Name: "ghcr.io"}}
		}},
		{name: "upstream of a group with repos", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &ocipb.CreateUpstreamRequest{Parent: s.uid("images"), Upstream: &ocipb.Upstream{Name: "ghcr.io"}}
		}},
		{name: "get upstream", in: func(s *story) proto.Message { return &ocipb.GetUpstreamRequest{Uid: s.uid("upstream")} }},
		{name: "update upstream", in: func(s *story) proto.Message {
			return &ocipb.UpdateUpstreamRequest{Upstream: &ocipb.Upstream{Uid: s.uid("upstream"), Anyone: true}}
		}},
		{name: "upstream elsewhere", in: func(s *story) proto.Message {
			return &ocipb.UpdateUpstreamRequest{
				Upstream: &ocipb.Upstream{Uid: s.uid("upstream"), Address: "https://ghcr.io"}, UpdateMask: mask("address"),
			}
		}},
		{name: "list upstreams", in: func(s *story) proto.Message {
			return &ocipb.ListUpstreamsRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: s.uid("mirror")}, OrderBy: "name"}
		}},
		{name: "delete upstream", in: func(s *story) proto.Message {
			return &ocipb.DeleteUpstreamRequest{Uid: s.uid("upstream")}
		}},
		{name: "delete upstream again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.DeleteUpstreamRequest{Uid: s.uid("upstream")}
		}},
		{name: "replication", in: func(s *story) proto.Message {
			r := theReplication("partner")
			r.Credentials = "robot:secret"
			return &ocipb.CreateReplicationRequest{Parent: s.uid("images"), Replication: r}
		}},
		{name: "replication of the same name", code: codes.AlreadyExists, in: func(s *story) proto.Message {
			return &ocipb.CreateReplicationRequest{Parent: s.uid("images"), Replication: theReplication("partner")}
		}},
		{name: "get replication", in: func(s *story) proto.Message {
			return &ocipb.GetReplicationRequest{Uid: s.uid("replication")}
		}},
		{name: "preview replication", in: func(s *story) proto.Message {
			return &ocipb.PreviewReplicationRequest{Uid: s.uid("replication")}
		}},
		{name: "list replication tags", in: func(s *story) proto.Message {
			return &ocipb.ListReplicationTagsRequest{Uid: s.uid("replication")}
		}},
		{name: "update replication", in: func(s *story) proto.Message {
			return &ocipb.UpdateReplicationRequest{
				Replication: &ocipb.Replication{Uid: s.uid("replication"), Tags: []string{"v*"}}, UpdateMask: mask("tags")}
		}},
		{name: "replication elsewhere", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &ocipb.UpdateReplicationRequest{
				Replication: &ocipb.Replication{Uid: s.uid("replication"), Address: "https://ghcr.io"},
				UpdateMask:  mask("address"),
			}
		}},
		{name: "pause replication", in: func(s *story) proto.Message {
			return &ocipb.UpdateReplicationRequest{
				Replication: &ocipb.Replication{Uid: s.uid("replication"), Paused: true}, UpdateMask: mask("paused")}
		}},
		{name: "run paused replication", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &ocipb.RunReplicationRequest{Uid: s.uid("replication")}
		}},
		{name: "continue replication", in: func(s *story) proto.Message {
			return &ocipb.UpdateReplicationRequest{
				Replication: &ocipb.Replication{Uid: s.uid("replication")}, UpdateMask: mask("paused")}
		}},
		{name: "list replications", in: func(s *story) proto.Message {
			return &ocipb.ListReplicationsRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: s.uid("images")}, OrderBy: "name"}
		}},
		{name: "run replication", in: func(s *story) proto.Message {
			return &ocipb.RunReplicationRequest{Uid: s.uid("replication"), ValidateOnly: true}
		}},
		{name: "delete replication", in: func(s *story) proto.Message {
			return &ocipb.DeleteReplicationRequest{Uid: s.uid("replication")}
		}},
		{name: "delete replication again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.DeleteReplicationRequest{Uid: s.uid("replication")}
		}},
		{name: "signer", in: func(s *story) proto.Message {
			return &ocipb.CreateSignerRequest{
				Parent: s.uid("images"), Signer: &ocipb.Signer{Name: "release", Description: "of releases", Key: storyKey()},
			}
		}},
		{name: "signer twice", code: codes.AlreadyExists, in: func(s *story) proto.Message {
			return &ocipb.CreateSignerRequest{Parent: s.uid("images"), Signer: &ocipb.Signer{Name: "release", Key: storyKey()}}
		}},
		{name: "signer of nothing", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &ocipb.CreateSignerRequest{Parent: s.uid("images"), Signer: &ocipb.Signer{Name: "Release"}}
		}},
		{name: "get signer", in: func(s *story) proto.Message { return &ocipb.GetSignerRequest{Uid: s.uid("signer")} }},
		{name: "signers", in: func(s *story) proto.Message { return &ocipb.ListSignersRequest{Name: "release"} }},
		{name: "signatures", in: func(s *story) proto.Message {
			return &ocipb.GetSignaturesRequest{RepoUid: s.uid("repo"), Reference: index(s)}
		}},
		{name: "signatures of nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.GetSignaturesRequest{RepoUid: s.uid("repo"), Reference: "nothing"}
		}},
		{name: "delete signer", in: func(s *story) proto.Message { return &ocipb.DeleteSignerRequest{Uid: s.uid("signer")} }},
		{name: "delete signer again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &ocipb.DeleteSignerRequest{Uid: s.uid("signer")}
		}},
		{name: "pulls by somebody", in: func(s *story) proto.Message {
			return &ocipb.ListPullsRequest{IdentityUid: s.uid("images")}
		}},
		{name: "registry", in: func(*story) proto.Message { return &ocipb.GetRegistryRequest{} }, as: "stranger"},
		{name: "registry of nobody", code: codes.Unauthenticated, in: func(*story) proto.Message {
			return &ocipb.GetRegistryRequest{}
		}, as: "nobody"},
		{name: "group with repos", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("images")}
		}},
		{name: "delete repo", in: func(s *story) proto.Message { return &registrypb.DeleteRepoRequest{Uid: s.uid("repo")} }},
		{name: "delete repo again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.DeleteRepoRequest{Uid: s.uid("repo")}
		}},
		{name: "tag went with it", code: codes.NotFound, in: func(s *story) proto.Message {
			return &registrypb.GetTagRequest{Uid: s.uid("tag")}
		}},
	}
}

// deleted returns the UID of the first entry that a step has listed in the trash.
func deleted(s *story, step string) string {
	return s.answers[step].(*ocipb.ListTrashEntriesResponse).GetEntries()[0].GetUid()
}
