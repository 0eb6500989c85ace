// Package registry has the commands of repos, tags, images and who pulled them.
package registry

import (
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
	return a.Branch("registry", "Manage repos and tags, and see what became of them",
		a.Command(repos()), a.Command(tags()), imagesCommand(a), a.Command(pulls()), a.Command(registrySettings()))
}

func repos() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "repos", One: "repo",
		About: "Repos are what images are pushed to and pulled from. The first push to a repo makes it, unless the settings\n" +
			"of its group say otherwise. Images are called by the names of the groups and the repo: acme/platform/app:1.2.",
		Example:  "  holdfast registry repos create app --parent acme/platform --description \"what customers run\"",
		Message:  noun.MessageOf(&registrypb.Repo{}),
		Argument: "name",
		Locate:   locateRepo,
		Fields: []noun.Field{
			noun.Description("repo"),
			{Flag: "tier", Path: "catalog_tier",
				Help: "`TIER` of a catalog: application, base, fips, ai, devtools or commercial"},
			{Flag: "bundle", Path: "bundles", Help: "`BUNDLE` it is part of, such as base or fips (any number of times)"},
			{Flag: "alias", Path: "aliases", Help: "`IMAGE` it can stand in for (any number of times)"},
			{Flag: "active-tag", Path: "active_tags", Help: "`TAG` that is looked after (any number of times)"},
			{Flag: "source", Path: "sync_config.source", Help: "`REPO` it follows: a uid, a path or an image reference"},
		},
		Columns: output.Columns("name", "uid", "description"),
		Wide:    output.Columns("catalogTier", "bundles", "createTime", "updateTime"),
		Extra:   []func(*noun.App) *cobra.Command{readme},
	}
}

// locateRepo finds a repo by its name or path, which may begin with the host of
// the registry.
func locateRepo(ctx context.Context, a *noun.App, text string) (string, error) {
	text, err := withoutHost(ctx, a, text)
	if err != nil {
		return "", err
	}
	n := repos()
	n.Locate = nil
	return a.Resolve(ctx, n, text)
}

func readme(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "readme REPO", Short: "Print what a repo says about itself, or change it",
		Example: "  holdfast registry repos readme acme/platform/app --set README.md",
	}
	a.About(repos(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
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
			fmt.Fprintln(a.Out, strings.Join(cells, "\t")) // errors stay in the writer until it is flushed
		}
		return nil
	})
	cmd.Flags().String("set", "", "`FILE` of Markdown to put in its place; - is standard input, and \"\" leaves none")
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
		Area: "registry", Use: "settings", One: "settings", Short: "Show and change the rules of a group",
		About: "The rules for the repos in a group and below it: those of the nearest group at or above that has any.\n" +
			"An update gives a group rules of its own; delete takes them away again.",
		Message: noun.MessageOf(&ocipb.Settings{}),
		Named:   noun.Groups,
		Fields: []noun.Field{
			{Flag: "public", Help: "anybody may pull, without a token"},
			{Flag: "create-on-push", Help: "the first push to a repo makes it"},
			{Flag: "immutable-tags", Help: "a tag that is there can be neither moved nor deleted"},
			{Flag: "immutable-except", Help: "`PATTERN` of tags that can all the same, such as dev-* (any number of times)"},
		},
		Columns: output.Columns("public", "createOnPush", "immutableTags", "immutableExcept"),
		Wide:    output.Columns("sourceUid", "updateTime"),
	}
}

func pulls() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "pulls", One: "pull", Short: "See who pulled and pushed what",
		About: "Every pull and push of an image is kept for a time: who, what, when, from where and with which program.\n" +
			"Pulls that anybody may make are counted together if they are many: count says how many a line stands for.\n" +
			"To see them you need identity.list beside repo.list.",
		Message: noun.MessageOf(&ocipb.Pull{}),
		Filters: []noun.Field{
			{Flag: "repo", Path: "uidp.children_of", Ref: repos, Help: "only those of this `REPO`"},
			{Flag: "digest", Help: "only those of the image of this `DIGEST`"},
			{Flag: "identity", Path: "identity_uid", Ref: iam.Identities, Help: "only those by this `IDENTITY`"},
			{Flag: "direction", Help: "only those that went this `WAY`: pull or push"},
		},
		Columns: output.Columns("createTime", "direction", "repo", "tag", "digest", "identity", "count"),
		Wide:    output.Columns("remoteAddress", "userAgent", "repoUid", "identityUid"),
	}
}
