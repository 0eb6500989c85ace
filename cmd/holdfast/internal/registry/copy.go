package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

const copyUse = "REPO:TAG|REPO@DIGEST|REPO:PATTERN REPO[:TAG]"

// copies returns the View for copied images.
func copies() output.View {
	state := func(c *ocipb.CopiedImage) string {
		switch {
		case c.GetReplacedDigest() != "":
			return "moved from " + c.GetReplacedDigest()
		case c.GetPresent():
			return "was there"
		}
		return "new"
	}
	return output.View{
		Plural: "images", ID: "digest",
		Columns: output.Columns("from=fromTag", "tag", "digest", output.Text("copy", state)),
		Wide:    output.Columns("replacedDigest"),
	}
}

func imagesCopy(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "copy " + copyUse, Short: "Copy images to another repo, on this server or another",
		Long: "Copies images with their tags, and the images that they list, from one repo to another. It copies all of\n" +
			"them or none, and transfers no data. A pattern such as 'v1.*' copies all matching tags. The target repo\n" +
			"is created if it does not exist and you may create it. With --dry-run it shows what would be copied. If\n" +
			"one of the references starts with the host of another registry, this program reads the images from one\n" +
			"registry and writes them to the other, with the passwords that docker has for them.",
		Example: "  holdfast registry images copy acme/dev/app:1.2 acme/prod/app\n" +
			"  holdfast registry images copy 'acme/dev/app:1.*' acme/prod/app --with-referrers --dry-run\n" +
			"  holdfast registry images copy ghcr.io/acme/app:1.2 acme/mirror/app",
	}
	return copyCommand(a, cmd, &ocipb.CopyImagesRequest{}, "copied")
}

func imagesPromote(a *noun.App) *cobra.Command {
	req := &ocipb.CopyImagesRequest{Promote: true}
	cmd := &cobra.Command{
		Use: "promote " + copyUse, Short: "Copy images to another repo, and record who approved it",
		Long: "Copies images and their referrers, like holdfast registry images copy --with-referrers. The event of the\n" +
			"promotion and the audit log record that you approved it, and why.",
		Example: "  holdfast registry images promote acme/staging/app:1.2 acme/prod/app:stable " +
			"--reason \"passed the tests\"",
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "reason for the promotion")
	return copyCommand(a, cmd, req, "promoted")
}

// copyCommand makes cmd a command that completes req with its arguments and sends it. The
// parameter what is the verb in the message about the result.
func copyCommand(a *noun.App, cmd *cobra.Command, req *ocipb.CopyImagesRequest, what string) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(2), a.CompleteArgs(Repos())
	cmd.Flags().BoolVar(&req.WithReferrers, "with-referrers", req.GetPromote(),
		"copy signatures, SBOMs and other referrers")
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		elsewhere, err := isElsewhere(ctx, a, args)
		if err != nil {
			return err
		}
		if elsewhere {
			return copyBetween(ctx, a, cmd, req, args)
		}
		if err := copyFrom(ctx, a, req, args[0]); err != nil {
			return err
		}
		if err := copyTo(ctx, a, req, args[1]); err != nil {
			return err
		}
		method := ocipb.File_holdfast_oci_v1_copy_proto.Services().Get(0).Methods().Get(0)
		m, err := a.Write(ctx, cmd, method, req.ProtoReflect(), map[string]string{
			"group_uid": "the second argument", "repo": "the second argument", "tag": "the second argument",
			"references": "the first argument", "tag_pattern": "the first argument", "from_repo_uid": "the first argument",
			"reason": "--reason",
		})
		if err != nil {
			return err
		}
		done := m.Interface().(*ocipb.ImageCopy)
		if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
			what = "would be " + what
		}
		a.Note("%s %s; new in %s: %s, %s", noun.Count(len(done.GetImages()), "image"), what, args[1],
			noun.Count(done.GetManifests(), "manifest"), size(done.GetBytes()))
		return noun.ShowAnswer(ctx, a, copies(), done, done.GetImages(), nil)
	})
	return cmd
}

// copyFrom sets the source of a copy.
func copyFrom(ctx context.Context, a *noun.App, req *ocipb.CopyImagesRequest, text string) error {
	ref, err := parseImage(ctx, a, text)
	if err != nil {
		return err
	}
	req.FromRepoUid = ref.repo
	switch {
	case ref.digest != "":
		req.References = []string{ref.digest}
	case strings.ContainsAny(ref.tag, "*?["):
		req.TagPattern = ref.tag
	case ref.tag != "":
		req.References = []string{ref.tag}
	default:
		return problem.Usage("%s is a repo: name a tag, a digest or a pattern of tags", text).Hint(
			fmt.Sprintf("all tags: holdfast registry images copy '%s:*' …", text))
	}
	return nil
}

// copyTo sets the target of a copy.
func copyTo(ctx context.Context, a *noun.App, req *ocipb.CopyImagesRequest, text string) error {
	path, err := withoutHost(ctx, a, text)
	if err != nil {
		return err
	}
	if i := strings.LastIndexByte(path, ':'); i > strings.LastIndexByte(path, '/') {
		path, req.Tag = path[:i], path[i+1:]
	}
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.Contains(path, "@") {
		return problem.Usage("%q is not a repo or a tag of one, such as acme/prod/app:1.2", text)
	}
	req.Repo = path[i+1:]
	req.GroupUid, err = a.Resolve(ctx, noun.Groups(), path[:i])
	return err
}
