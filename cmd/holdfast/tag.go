package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

func tags() noun {
	return noun{
		area: "registry", use: "tags", one: "tag", form: "REPO:TAG",
		about: "Tags are names that stand for an image of a repo. A list leaves out those of signatures and other referrers\n" +
			"(sha256-…), of days (…-20260131) and of builds (…-r3), unless it is asked for them.",
		example:    "  holdfast registry tags create stable --repo acme/platform/app --digest sha256:…",
		message:    messageOf(&registrypb.Tag{}),
		argument:   "name",
		parent:     repos,
		parentFlag: "repo",
		locate:     locateTag,
		fields: []field{
			{flag: "digest", path: "digest", help: "`DIGEST` of the image it stands for"},
			{flag: "deprecated", path: "deprecated", help: "nobody looks after it any more"},
			{flag: "bundle", path: "bundles", help: "`BUNDLE` it is part of (any number of times)"},
		},
		filters: []field{
			{flag: "repo", path: "uidp.children_of", ref: repos, help: "only tags of this `REPO`"},
			{flag: "digest", path: "digest", help: "only tags of this `DIGEST`"},
			{flag: "since", path: "updated_since", help: "only tags pushed at this `TIME` or later"},
			{flag: "referrers", path: "include_referrers", help: "also those of signatures and other referrers"},
			{flag: "dates", path: "include_dates", help: "also those of days"},
			{flag: "epochs", path: "include_epochs", help: "also those of builds"},
		},
		columns: columnsOf("name", "digest", "updateTime"),
		wide:    columnsOf("uid", "deprecated", "bundles"),
		extra:   []func(*app) *cobra.Command{(*app).tagHistory},
	}
}

// locateTag finds a tag by its repo and name.
func locateTag(ctx context.Context, a *app, text string) (string, error) {
	at, err := a.image(ctx, text)
	if err != nil {
		return "", err
	}
	if at.tag == "" || at.digest != "" {
		return "", usage("%q does not name a tag", text).hint("write it as acme/platform/app:1.2")
	}
	return a.findOne(ctx, tags(), at.tag, &at.repo, text)
}

// An image is what a reference names: a repo, and perhaps which image of it.
type image struct{ repo, tag, digest string }

// image reads a reference such as acme/platform/app:1.2 or, with a uid in place
// of the path, uid@sha256:… .
func (a *app) image(ctx context.Context, text string) (at image, err error) {
	var path string
	path, at.digest, _ = strings.Cut(text, "@")
	if i := strings.LastIndexByte(path, ':'); i > strings.LastIndexByte(path, '/') {
		path, at.tag = path[:i], path[i+1:]
		if at.tag == "" {
			return at, usage("%q has nothing after the colon", text)
		}
	}
	at.repo, err = a.resolve(ctx, repos(), path)
	return at, err
}

// withoutHost takes the host of the registry off a reference, if it begins with
// that.
func (a *app) withoutHost(ctx context.Context, text string) (string, error) {
	first, rest, ok := strings.Cut(text, "/")
	if !ok || !strings.ContainsAny(first, ".:") {
		return text, nil
	}
	host, err := a.registryHost(ctx)
	if err != nil || first != host {
		return text, err
	}
	return rest, nil
}

func (a *app) registryHost(ctx context.Context) (string, error) {
	m, err := call(ctx, ocipb.NewOCIServiceClient(a).GetRegistry, &ocipb.GetRegistryRequest{}, nil)
	return m.GetHost(), err
}

// changes is how moments in the life of a tag are shown.
func changes() noun {
	return noun{
		area: "registry", use: "changes", one: "change",
		message: messageOf(&ocipb.TagChange{}), id: "digest",
		columns: columnsOf("time", "tag", "digest", "actorUid"),
	}
}

func (a *app) tagHistory() *cobra.Command {
	p := paging{}
	cmd := &cobra.Command{
		Use: "history REPO[:TAG]", Short: "List every digest that a tag has stood for, the newest first",
		Long: "Lists what became of one tag, or of all tags of a repo: when, which digest, and who did it.\n" +
			"A change without a digest is the end of the tag.",
		Example: "  holdfast registry tags history acme/platform/app:1.2",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeArgs(repos()),
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			at, err := a.image(ctx, args[0])
			if err != nil {
				return err
			}
			if at.digest != "" {
				return usage("%q names a digest; history is of tags", args[0])
			}
			return a.printAll(ctx, changes(), &ocipb.ListTagHistoryRequest{RepoUid: at.repo, Tag: at.tag}, p)
		}),
	}
	p.register(cmd)
	must(cmd.Flags().MarkHidden("order-by")) // there is one order
	return cmd
}

// size is bytes as people read them.
func size(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, 0
	for value >= unit && prefix < 4 {
		value, prefix = value/unit, prefix+1
	}
	return fmt.Sprintf("%.1f %cB", value, "kMGTP"[prefix])
}
