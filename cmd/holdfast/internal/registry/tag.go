package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

func tags() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "tags", One: "tag", Form: "REPO:TAG",
		About: "Tags are names that stand for an image of a repo. A list leaves out those of signatures and other referrers\n" +
			"(sha256-…), of days (…-20260131) and of builds (…-r3), unless it is asked for them.",
		Example:    "  holdfast registry tags create stable --repo acme/platform/app --digest sha256:…",
		Message:    noun.MessageOf(&registrypb.Tag{}),
		Argument:   "name",
		Parent:     repos,
		ParentFlag: "repo",
		Locate:     locateTag,
		Fields: []noun.Field{
			{Flag: "digest", Help: "`DIGEST` of the image it stands for"},
			{Flag: "deprecated", Help: "nobody looks after it any more"},
			{Flag: "bundle", Path: "bundles", Help: "`BUNDLE` it is part of (any number of times)"},
		},
		Filters: []noun.Field{
			{Flag: "repo", Path: "uidp.children_of", Ref: repos, Help: "only tags of this `REPO`"},
			{Flag: "digest", Help: "only tags of this `DIGEST`"},
			{Flag: "since", Path: "updated_since", Help: "only tags pushed at this `TIME` or later"},
			{Flag: "referrers", Path: "include_referrers", Help: "also those of signatures and other referrers"},
			{Flag: "dates", Path: "include_dates", Help: "also those of days"},
			{Flag: "epochs", Path: "include_epochs", Help: "also those of builds"},
		},
		Columns: output.Columns("name", "digest", "updateTime"),
		Wide:    output.Columns("uid", "deprecated", "bundles"),
		Extra:   []func(*noun.App) *cobra.Command{tagHistory},
	}
}

// locateTag finds a tag by its repo and name.
func locateTag(ctx context.Context, a *noun.App, text string) (string, error) {
	at, err := parseImage(ctx, a, text)
	if err != nil {
		return "", err
	}
	if at.tag == "" || at.digest != "" {
		return "", problem.Usage("%q does not name a tag", text).Hint("write it as acme/platform/app:1.2")
	}
	return a.FindOne(ctx, tags(), at.tag, &at.repo, text)
}

// An image is a parsed reference: a repo, and perhaps a tag or digest.
type image struct{ repo, tag, digest string }

// parseImage parses a reference such as acme/platform/app:1.2 or uid@sha256:….
func parseImage(ctx context.Context, a *noun.App, text string) (at image, err error) {
	var path string
	path, at.digest, _ = strings.Cut(text, "@")
	if i := strings.LastIndexByte(path, ':'); i > strings.LastIndexByte(path, '/') {
		path, at.tag = path[:i], path[i+1:]
		if at.tag == "" {
			return at, problem.Usage("%q has nothing after the colon", text)
		}
	}
	at.repo, err = a.Resolve(ctx, repos(), path)
	return at, err
}

// withoutHost removes the host of the registry from the start of a reference.
func withoutHost(ctx context.Context, a *noun.App, text string) (string, error) {
	first, rest, ok := strings.Cut(text, "/")
	if !ok || !strings.ContainsAny(first, ".:") {
		return text, nil
	}
	host, err := Host(ctx, a)
	if err != nil || first != host {
		return text, err
	}
	return rest, nil
}

// Host returns the host of the registry.
func Host(ctx context.Context, a *noun.App) (string, error) {
	m, err := signin.Call(ctx, ocipb.NewOCIServiceClient(a).GetRegistry, &ocipb.GetRegistryRequest{})
	return m.GetHost(), err
}

// changes are the digests that a tag has stood for.
func changes() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "changes", One: "change",
		Message: noun.MessageOf(&ocipb.TagChange{}), ID: "digest",
		Columns: output.Columns("time", "tag", "digest", "actorUid"),
	}
}

func tagHistory(a *noun.App) *cobra.Command {
	p := noun.Paging{}
	cmd := &cobra.Command{
		Use: "history REPO[:TAG]", Short: "List every digest that a tag has stood for, the newest first",
		Long: "Lists what became of one tag, or of all tags of a repo: when, which digest, and who did it.\n" +
			"A change without a digest is the end of the tag.",
		Example: "  holdfast registry tags history acme/platform/app:1.2",
	}
	p.Register(cmd)
	problem.Must(cmd.Flags().MarkHidden("order-by")) // there is one order
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		if at.digest != "" {
			return problem.Usage("%q names a digest; history is of tags", cmd.Flags().Arg(0))
		}
		return a.PrintAll(ctx, changes(), &ocipb.ListTagHistoryRequest{RepoUid: at.repo, Tag: at.tag}, p)
	})
}

// size formats a number of bytes.
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
