// Package registry contains the commands about Repos, tags, images, findings and pulls.
package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// Command returns the commands of the registry.
func Command(a *noun.App) *cobra.Command {
	return a.Branch("registry", "Work with Repos, tags and images",
		a.Command(Repos()), a.Command(tags()), imagesCommand(a), a.Command(pulls()), a.Command(registrySettings()),
		a.Command(trash()), a.Command(retention()), a.Command(upstreams()), a.Command(signers()), syncCommand(a),
		a.Command(replications()))
}

func Repos() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "repos", One: "repo",
		Short: "Create and change Repos, which contain images",
		About: "Repos contain images. The first push to a repo creates it, unless the settings of its group do not allow\n" +
			"that. The name of an image contains the names of the groups and the repo: acme/platform/app:1.2.",
		Example:  "  holdfast registry repos create app --parent acme/platform --description \"images for customers\"",
		Message:  noun.MessageOf(&registrypb.Repo{}),
		Console:  noun.PageAt("/repos/"),
		Kind:     "repos",
		Argument: "name",
		Locate:   locateRepo,
		Fields: []noun.Field{
			noun.Description("repo"),
			{Flag: "tier", Path: "catalog_tier",
				Help: "catalog `TIER`: application, base, fips, ai, devtools or commercial"},
			{Flag: "bundle", Path: "bundles", Help: "`BUNDLE` it belongs to, such as base or fips; can be repeated"},
			{Flag: "alias", Path: "aliases", Help: "`IMAGE` that it can replace; can be repeated"},
			{Flag: "active-tag", Path: "active_tags", Help: "`TAG` that is maintained; can be repeated"},
			{Flag: "source", Path: "sync_config.source", Help: "`REPO` to follow: a uid, path or image reference"},
		},
		ByName:  true,
		Columns: output.Columns("name", output.PathOf("path", "uid"), "description"),
		Wide:    output.Columns("uid", "catalogTier", "bundles", "createTime", "updateTime"),
		Extra:   []func(*noun.App) *cobra.Command{readme},
	}
}

// locateRepo finds a repo by its name or path, which may start with the host of the
// registry.
func locateRepo(ctx context.Context, a *noun.App, text string) (string, error) {
	text, err := withoutHost(ctx, a, text)
	if err != nil {
		return "", err
	}
	n := Repos()
	n.Locate = nil
	return a.Resolve(ctx, n, text)
}

func readme(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "readme REPO", Short: "Print or change the README of a repo",
		Example: "  holdfast registry repos readme acme/platform/app --set README.md",
	}
	a.About(Repos(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		if file := cmd.Flags().Lookup("set"); file.Changed {
			return setReadme(ctx, a, uid, file.Value.String())
		}
		req := &registrypb.GetRepoReadmeRequest{Uid: uid}
		m, err := signin.Call(ctx, registrypb.NewReposServiceClient(a).GetRepoReadme, req, "uid=REPO")
		if err != nil || m.GetContent() == "" {
			return err
		}
		for line := range strings.SplitSeq(m.GetContent(), "\n") {
			cells := strings.Split(line, "\t")
			for i, cell := range cells {
				cells[i] = output.Printable(cell)
			}
			fmt.Fprintln(a.Out, strings.Join(cells, "\t")) // the writer returns the error when it is flushed
		}
		return nil
	})
	cmd.Flags().String("set", "", "`FILE` with the new README in Markdown; - is standard input, \"\" removes it")
	return cmd
}

func setReadme(ctx context.Context, a *noun.App, uid, file string) error {
	content := ""
	if file != "" {
		var err error
		if content, err = a.ReadText(file); err != nil {
			return err
		}
	}
	req := &registrypb.UpdateRepoReadmeRequest{
		RepoReadme: &registrypb.RepoReadme{Uid: uid, Content: content},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"content"}},
	}
	_, err := signin.Call(ctx, registrypb.NewReposServiceClient(a).UpdateRepoReadme, req, "content=--set", "uid=REPO")
	return err
}

func registrySettings() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "settings", One: "settings", Short: "Show and change the registry settings of a group",
		About: "Settings apply to the repos in a group and its subgroups. A group without settings uses the settings of\n" +
			"the nearest parent group that has any. update creates the settings of a group, and delete removes them.",
		Message: noun.MessageOf(&ocipb.Settings{}),
		Named:   noun.Groups,
		Fields: []noun.Field{
			{Flag: "public", Help: "allow pulls without a token"},
			{Flag: "create-on-push", Help: "create a repo at its first push"},
			{Flag: "create-groups-on-push", Help: "create the groups of a repo at its first push"},
			{Flag: "immutable-tags", Help: "forbid moving and deleting tags"},
			{Flag: "immutable-except", Help: "`PATTERN` of tags that can be moved and deleted, such as dev-*; can be repeated"},
			{
				Flag: "trash-days", Read: readDays("trash_days"),
				Help: "number of `DAYS` for which deleted items can be restored; 0: none",
			},
		},
		Columns: output.Columns("public", "createOnPush", "createGroupsOnPush", "immutableTags", "immutableExcept",
			"trashDays"),
		Wide: output.Columns("sourceUid", "updateTime"),
	}
}

func pulls() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "pulls", One: "pull", Short: "List pulls and pushes",
		About: "Every pull and push of an image is recorded for a limited time: identity, image, time, address and\n" +
			"program. Anonymous pulls are aggregated if there are many; count is their number. To list pulls you need\n" +
			"the capabilities identity.list and repo.list.",
		Message: noun.MessageOf(&ocipb.Pull{}),
		Filters: []noun.Field{
			{Flag: "repo", Path: "uidp.children_of", Ref: Repos, Help: "only pulls of `REPO`"},
			{Flag: "digest", Help: "only pulls of the image with `DIGEST`"},
			{Flag: "identity", Path: "identity_uid", Ref: iam.Identities, Help: "only pulls by `IDENTITY`"},
			{Flag: "direction", Help: "only this `DIRECTION`: pull or push"},
		},
		Columns: output.Columns("createTime", "direction", "repo", "tag", "digest", puller(), "count"),
		Wide:    output.Columns("remoteAddress", "userAgent", "repoUid", "identityUid"),
	}
}

// puller returns the column with the identity that pulled: its display name, or the
// recorded name.
func puller() output.Column {
	uids := func(p *ocipb.Pull) []string { return []string{p.GetIdentityUid()} }
	return output.Named("identity", uids, func(p *ocipb.Pull, called output.Called) string {
		if name := called(p.GetIdentityUid()).Title; name != p.GetIdentityUid() {
			return name
		}
		return cmp.Or(p.GetIdentity(), p.GetIdentityUid())
	})
}
