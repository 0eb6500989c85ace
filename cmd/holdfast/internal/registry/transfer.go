package registry

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/transfer"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// hostOf returns the host at the start of a reference, or "".
func hostOf(reference string) string {
	first, _, ok := strings.Cut(reference, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first
	}
	return ""
}

// isElsewhere reports whether one of the references names another registry.
func isElsewhere(ctx context.Context, a *noun.App, references []string) (bool, error) {
	for _, r := range references {
		if host := hostOf(r); host != "" {
			ours, err := Host(ctx, a)
			if err != nil || host != ours {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// An endpoint is one side of a copy between registries.
type endpoint struct {
	transfer.Repo
	tag, digest string
}

// newEndpoint returns the endpoint of a reference, with its password: a token for our own
// registry, and docker's password for another registry.
func newEndpoint(ctx context.Context, a *noun.App, reference string) (at endpoint, _ error) {
	ours, err := Host(ctx, a)
	if err != nil {
		return at, err
	}
	host, rest := hostOf(reference), reference
	if host != "" {
		rest = reference[len(host)+1:]
	}
	rest, at.digest, _ = strings.Cut(rest, "@")
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, at.tag = rest[:i], rest[i+1:]
	}
	if (host == "docker.io" || host == "index.docker.io") && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	at.Name = rest
	if host != "" && host != ours {
		user, pass, err := transfer.Login(ctx, host)
		at.Registry = transfer.New(host, user, pass)
		return at, err
	}
	token, err := a.TokenFor(ctx, ours)
	at.Registry = transfer.New(ours, "_token", token)
	return at, err
}

// copyBetween copies images from one registry to another.
func copyBetween(
	ctx context.Context, a *noun.App, cmd *cobra.Command, req *ocipb.CopyImagesRequest, args []string,
) error {
	if req.GetPromote() {
		return problem.Usage("images can only be promoted within one server").
			Hint("copy them first: holdfast registry images copy")
	}
	from, err := newEndpoint(ctx, a, args[0])
	if err != nil {
		return err
	}
	to, err := newEndpoint(ctx, a, args[1])
	if err != nil {
		return err
	}
	references, err := from.references(ctx, to, args)
	if err != nil {
		return err
	}
	dry, _ := cmd.Flags().GetBool("dry-run")
	c := &transfer.Copier{From: from.Repo, To: to.Repo, Referrers: req.GetWithReferrers(), DryRun: dry}
	done := &ocipb.ImageCopy{}
	for _, reference := range references {
		i := &ocipb.CopiedImage{Tag: to.tag}
		if from.digest == "" {
			i.FromTag = reference
			if i.Tag == "" {
				i.Tag = reference
			}
		}
		if i.Digest, err = c.Copy(ctx, reference, i.Tag); err != nil {
			return err
		}
		done.Images = append(done.Images, i)
	}
	done.Manifests, done.Bytes = int64(c.Manifests), c.Bytes
	if dry {
		a.Note("dry run: nothing was changed")
	}
	a.Note("copied %s with %s to %s; %s of blobs were transferred, and %s existed",
		noun.Count(len(done.GetImages()), "image"), noun.Count(c.Manifests, "manifest"), args[1], size(c.Bytes),
		noun.Count(c.Present, "blob"))
	view := output.View{Plural: "images", ID: "digest", Columns: output.Columns("from=fromTag", "tag", "digest")}
	return noun.ShowAnswer(ctx, a, view, done, done.GetImages(), nil)
}

// references returns the tags or the digest to copy.
func (from endpoint) references(ctx context.Context, to endpoint, args []string) ([]string, error) {
	switch {
	case to.digest != "":
		return nil, problem.Usage("%q is not a repo or a tag of one", args[1])
	case from.digest != "":
		return []string{from.digest}, nil
	case from.tag == "":
		return nil, problem.Usage("%s is a repo: add a tag, a digest or a pattern of tags", args[0])
	case !strings.ContainsAny(from.tag, "*?["):
		return []string{from.tag}, nil
	case to.tag != "":
		return nil, problem.Usage("%s names one tag, and %s is a pattern", args[1], args[0])
	}
	tags, err := from.Tags(ctx, from.tag)
	if err == nil && len(tags) == 0 {
		err = problem.New(problem.ExitNotFound, "no tag of %s matches", args[0])
	}
	return tags, err
}
