package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// registry is the commands about what images are pushed to and pulled from.
func (a *app) registry() *cobra.Command {
	return a.branch("registry", "Manage repos and tags, and see what became of them",
		a.noun(repos()), a.noun(tags()), a.images(), a.pulls(), a.registrySettings())
}

func repos() noun {
	return noun{
		area: "registry", use: "repos", one: "repo",
		about: "Repos are what images are pushed to and pulled from. The first push to a repo makes it, unless the settings\n" +
			"of its group say otherwise. Images are called by the names of the groups and the repo: acme/platform/app:1.2.",
		example:  "  holdfast registry repos create app --parent acme/platform --description \"what customers run\"",
		message:  messageOf(&registrypb.Repo{}),
		argument: "name",
		locate:   locateRepo,
		fields: []field{
			description("repo"),
			{flag: "tier", path: "catalog_tier", help: "`TIER` of a catalog: application, base, fips, ai, devtools or commercial"},
			{flag: "bundle", path: "bundles", help: "`BUNDLE` it is part of, such as base or fips (any number of times)"},
			{flag: "alias", path: "aliases", help: "`IMAGE` it can stand in for (any number of times)"},
			{flag: "active-tag", path: "active_tags", help: "`TAG` that is looked after (any number of times)"},
			{flag: "source", path: "sync_config.source", help: "`REPO` it follows: a uid, a path or an image reference"},
		},
		columns: columnsOf("name", "uid", "description"),
		wide:    columnsOf("catalogTier", "bundles", "createTime", "updateTime"),
		extra:   []func(*app) *cobra.Command{(*app).readme},
	}
}

// locateRepo finds a repo by its name or path, which may begin with the host of
// the registry.
func locateRepo(ctx context.Context, a *app, text string) (string, error) {
	text, err := a.withoutHost(ctx, text)
	if err != nil {
		return "", err
	}
	n := repos()
	n.locate = nil
	return a.resolve(ctx, n, text)
}

func (a *app) readme() *cobra.Command {
	cmd := &cobra.Command{
		Use: "readme REPO", Short: "Print what a repo says about itself, or change it",
		Example: "  holdfast registry repos readme acme/platform/app --set README.md",
	}
	a.about(repos(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		if file := cmd.Flags().Lookup("set"); file.Changed {
			return a.setReadme(ctx, uid, file.Value.String())
		}
		req := &registrypb.GetRepoReadmeRequest{Uid: uid}
		m, err := call(ctx, registrypb.NewReposServiceClient(a).GetRepoReadme, req, map[string]string{"uid": "REPO"})
		if err != nil || m.GetContent() == "" {
			return err
		}
		for line := range strings.SplitSeq(m.GetContent(), "\n") {
			cells := strings.Split(line, "\t")
			for i, cell := range cells {
				cells[i] = printable(cell)
			}
			fmt.Fprintln(a.out, strings.Join(cells, "\t")) // errors stay in the writer until it is flushed
		}
		return nil
	})
	cmd.Flags().String("set", "", "`FILE` of Markdown to put in its place; - is standard input, and \"\" leaves none")
	return cmd
}

func (a *app) setReadme(ctx context.Context, uid, file string) error {
	content := ""
	if file != "" {
		var err error
		if content, err = a.readText(file); err != nil {
			return err
		}
	}
	req := &registrypb.UpdateRepoReadmeRequest{
		RepoReadme: &registrypb.RepoReadme{Uid: uid, Content: content}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"content"}},
	}
	_, err := call(ctx, registrypb.NewReposServiceClient(a).UpdateRepoReadme, req, map[string]string{"content": "--set", "uid": "REPO"})
	return err
}
