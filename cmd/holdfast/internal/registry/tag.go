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
		Short: "Name images, and show what a name meant before",
		About: "A tag is a name of an image in a repo. By default list omits the tags of signatures and other referrers\n" +
			"(sha256-…), tags with a date (…-20260131) and tags with a build number (…-r3).",
		Example:    "  holdfast registry tags create stable --repo acme/platform/app --digest sha256:…",
		Message:    noun.MessageOf(&registrypb.Tag{}),
		Argument:   "name",
		Parent:     Repos,
		ParentFlag: "repo",
		Locate:     locateTag,
		Fields: []noun.Field{
			{Flag: "digest", Help: "`DIGEST` of the image"},
			{Flag: "deprecated", Help: "mark it as no longer maintained"},
			{Flag: "bundle", Path: "bundles", Help: "`BUNDLE` it belongs to; can be repeated"},
		},
		Filters: []noun.Field{
			{Flag: "repo", Path: "uidp.children_of", Ref: Repos, Help: "only tags of `REPO`"},
			{Flag: "digest", Help: "only tags of the image with `DIGEST`"},
			{Flag: "since", Path: "updated_since", Help: "only tags pushed at or after `TIME`"},
			{Flag: "referrers", Path: "include_referrers", Help: "also list tags of signatures and other referrers"},
			{Flag: "dates", Path: "include_dates", Help: "also list tags with a date"},
			{Flag: "epochs", Path: "include_epochs", Help: "also list tags with a build number"},
		},
		ListFlag: "repo",
		ByName:   true,
		Columns:  output.Columns("name", output.GroupOf("repo", "uid"), "digest", "updateTime"),
		Wide:     output.Columns("uid", "deprecated", "bundles"),
		Extra:    []func(*noun.App) *cobra.Command{tagHistory},
	}
}

// locateTag finds a tag by its repo and name.
func locateTag(ctx context.Context, a *noun.App, text string) (string, error) {
	ref, err := parseImage(ctx, a, text)
	if err != nil {
		return "", err
	}
	if ref.tag == "" || ref.digest != "" {
		return "", problem.Usage("%q does not name a tag", text).Hint("write it as acme/platform/app:1.2")
	}
	return a.FindOne(ctx, tags(), ref.tag, &ref.repo, text)
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
	at.repo, err = a.Resolve(ctx, Repos(), path)
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

// changes returns the Noun for changes of tags.
func changes() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "changes", One: "change",
		Message: noun.MessageOf(&ocipb.TagChange{}), ID: "digest",
		Columns: output.Columns("time", "tag", "digest", output.NameOf("by", "actorUid")),
		Wide:    output.Columns("actorUid"),
	}
}

func tagHistory(a *noun.App) *cobra.Command {
	p := noun.Paging{}
	cmd := &cobra.Command{
		Use: "history REPO[:TAG]", Short: "List the digests of a tag over time, newest first",
		Long: "Lists the changes of a tag, or of all tags of a repo: time, digest and identity.\n" +
			"A change without a digest is the deletion of the tag.",
		Example: "  holdfast registry tags history acme/platform/app:1.2",
	}
	p.Register(cmd)
	problem.Must(cmd.Flags().MarkHidden("order-by")) // the API supports only one order
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		if at.digest != "" {
			return problem.Usage("%q names a digest, but only tags have a history", cmd.Flags().Arg(0))
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
