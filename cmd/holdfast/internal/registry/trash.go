package registry

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// trash returns the Noun for deleted items that can be restored.
func trash() noun.Noun {
	name := func(e *ocipb.TrashEntry) string {
		switch e.GetKind() {
		case ocipb.TrashKind_TRASH_KIND_TAG:
			return e.GetRepo() + ":" + e.GetTag()
		case ocipb.TrashKind_TRASH_KIND_MANIFEST:
			return e.GetRepo() + "@" + e.GetDigest()
		}
		return e.GetRepo()
	}
	bytes := func(e *ocipb.TrashEntry) string {
		if e.GetSize() == 0 {
			return ""
		}
		return size(e.GetSize())
	}
	return noun.Noun{
		Area: "registry", Use: "trash", One: "trash entry", Short: "Restore deleted tags, images and repos",
		Form: "REPO[:TAG|@DIGEST]",
		About: "Deleted tags, manifests and repos cannot be pulled, but can be restored for seven days, or for the time\n" +
			"that the settings of the group define. Until then they count as stored.",
		Message: noun.MessageOf(&ocipb.TrashEntry{}),
		Locate:  locateTrash,
		Filters: []noun.Field{
			{Flag: "repo", Path: "uidp.children_of", Ref: Repos, Help: "only items deleted from `REPO`"},
			{Flag: "digest", Help: "only the image with `DIGEST`, and its tags"},
		},
		Columns: output.Columns("kind", output.Text("name", name), output.Text("size", bytes), "deleted=createTime",
			"expires=expireTime", output.NameOf("by", "actorUid")),
		Wide:  output.Columns("uid", "repoUid", "digest", "mediaType"),
		Extra: []func(*noun.App) *cobra.Command{trashRestore, trashEmpty},
	}
}

// locateTrash finds the last deleted entry for a repo, or for a tag or manifest of a repo
// that exists.
func locateTrash(ctx context.Context, a *noun.App, text string) (string, error) {
	req := &ocipb.ListTrashEntriesRequest{PageSize: 200}
	last := text[strings.LastIndexByte(text, '/')+1:]
	var found func(*ocipb.TrashEntry) bool
	if strings.ContainsAny(last, ":@") {
		ref, err := parseImage(ctx, a, text)
		if err != nil {
			return "", err
		}
		req.Uidp, req.Digest = &commonpb.UIDPFilter{ChildrenOf: ref.repo}, ref.digest
		found = func(e *ocipb.TrashEntry) bool {
			return e.GetKind() != ocipb.TrashKind_TRASH_KIND_REPO && e.GetTag() == ref.tag
		}
	} else {
		group, err := a.Resolve(ctx, noun.Groups(), strings.TrimSuffix(strings.TrimSuffix(text, last), "/"))
		if err != nil {
			return "", err
		}
		req.Uidp = &commonpb.UIDPFilter{DescendantsOf: group}
		found = func(e *ocipb.TrashEntry) bool {
			return e.GetKind() == ocipb.TrashKind_TRASH_KIND_REPO && e.GetRepo() == last &&
				e.GetRepoUid()[:strings.LastIndexByte(e.GetRepoUid(), '/')] == group
		}
	}
	for {
		page, err := signin.Call(ctx, ocipb.NewTrashServiceClient(a).ListTrashEntries, req)
		if err != nil {
			return "", err
		}
		for _, e := range page.GetEntries() {
			if found(e) {
				return e.GetUid(), nil
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return "", problem.New(problem.ExitNotFound, "there is no %q in the trash that you can see", text).Hint(
				"list the trash: holdfast registry trash list")
		}
	}
}

func trashRestore(a *noun.App) *cobra.Command {
	var replace, withoutTags bool
	cmd := &cobra.Command{
		Use: "restore " + trash().Form, Short: "Restore a deleted tag, image or repo",
		Long: "Restores a tag with its manifest; or a manifest with the tags deleted with it, the manifests that it\n" +
			"lists, and the signatures and other referrers deleted with it or later; or a repo with its contents. The\n" +
			"argument can also be a uid from holdfast registry trash list.",
		Example: "  holdfast registry trash restore acme/platform/app:1.2",
	}
	cmd.Flags().BoolVar(&replace, "replace", false, "move tags that now point to another image")
	cmd.Flags().BoolVar(&withoutTags, "without-tags", false, "leave the tags of a manifest in the trash")
	noun.AddDryRun(cmd)
	return a.About(trash(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &ocipb.RestoreTrashEntryRequest{Uid: uid, Replace: replace, WithoutTags: withoutTags}
		m, err := a.Write(ctx, cmd, trash().Method("Restore"), req.ProtoReflect(), nil)
		if err != nil {
			return err
		}
		return noun.ShowAll(ctx, a, trash().View(), m.Interface().(*ocipb.RestoreTrashEntryResponse).GetEntries())
	})
}

func trashEmpty(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "empty GROUP|REPO", Short: "Remove deleted items permanently",
		Long: "Removes everything that was deleted from a group and its subgroups, or from a repo. It can no longer be\n" +
			"restored. With --dry-run it shows how much would be removed.",
		Example: "  holdfast registry trash empty acme/platform --dry-run",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		uid, err := a.Resolve(ctx, noun.Groups(), args[0])
		if err != nil {
			var notRepo error
			if uid, notRepo = a.Resolve(ctx, Repos(), args[0]); notRepo != nil {
				return err
			}
		}
		n := trash()
		n.One = "the trash of"
		if err := a.Confirm(ctx, cmd, n, args, []string{uid}); err != nil {
			return err
		}
		method := n.Message.ParentFile().Services().Get(0).Methods().ByName("EmptyTrash")
		m, err := a.Write(ctx, cmd, method, (&ocipb.EmptyTrashRequest{Uid: uid}).ProtoReflect(), nil)
		if err != nil {
			return err
		}
		gone := m.Interface().(*ocipb.EmptyTrashResponse)
		a.Note("%d entries with %s are removed permanently", gone.GetEntries(), size(gone.GetBytes()))
		return nil
	})
	return cmd
}
