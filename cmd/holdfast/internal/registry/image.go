package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// imagesCommand returns the commands about images.
func imagesCommand(a *noun.App) *cobra.Command {
	return a.Branch("images", "Inspect and copy images", imagesList(a), imagesInspect(a), imagesPackages(a),
		imagesReferrers(a), imagesSignatures(a), imagesSize(a), imagesCheck(a), imagesCopy(a), imagesPromote(a))
}

// variants returns the View for an image's platforms.
func variants() output.View {
	inspected := func(v *ocipb.Variant) string { return packagesOf(v.GetInspection()) }
	bytes := func(v *ocipb.Variant) string { return size(v.GetSize()) }
	entrypoint := func(v *ocipb.Variant) string {
		return strings.Join(append(v.GetConfig().GetEntrypoint(), v.GetConfig().GetCmd()...), " ")
	}
	return output.View{
		Plural: "images", ID: "digest",
		Columns: output.Columns(output.Text("platform", platformOf), "digest", output.Text("size", bytes), "layers",
			output.Text("packages", inspected), "user=config.user", output.Text("entrypoint", entrypoint)),
		Wide: output.Columns("createTime=config.createTime", "workingDir=config.workingDir", "ports=config.exposedPorts",
			"env=config.env"),
	}
}

func platformOf(v *ocipb.Variant) string {
	return strings.Trim(strings.Join([]string{v.GetOs(), v.GetArchitecture(), v.GetVariant()}, "/"), "/")
}

// listedImages is the number of images that one call can summarize.
const listedImages = 50

func imagesList(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list REPO", Short: "List the newest tags of a repo with platforms, sizes and pulls",
		Long: "Lists the fifty tags that were pushed last. Pulls are counted for the last 30 days; a number above a\n" +
			"hundred may be too low. The size of an index is the size of its image for amd64, or of its first image.",
	}
	return a.About(Repos(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &registrypb.ListTagsRequest{
			Uidp: &commonpb.UIDPFilter{ChildrenOf: uid}, PageSize: listedImages, OrderBy: "update_time desc",
		}
		found, err := signin.Call(ctx, registrypb.NewTagsServiceClient(a).ListTags, req, "uidp.children_of=REPO")
		if err != nil || len(found.GetTags()) == 0 {
			return cmp.Or(err, noun.ShowAll(ctx, a, listedView(nil), []*registrypb.Tag{}))
		}
		images := &ocipb.SummarizeImagesRequest{RepoUid: uid}
		for _, t := range found.GetTags() {
			images.Digests = append(images.Digests, t.GetDigest())
		}
		answer, err := signin.Call(ctx, ocipb.NewOCIServiceClient(a).SummarizeImages, images, "repo_uid=REPO")
		if err != nil {
			return err
		}
		known := map[string]*ocipb.ImageSummary{}
		for _, s := range answer.GetSummaries() {
			known[s.GetDigest()] = s
		}
		return noun.ShowAll(ctx, a, listedView(known), found.GetTags())
	})
}

// listedView returns the View for tags. known contains the summaries of their images, by
// digest.
func listedView(known map[string]*ocipb.ImageSummary) output.View {
	summary := func(t *registrypb.Tag) *ocipb.ImageSummary { return known[t.GetDigest()] }
	return output.View{
		Plural: "images", ID: "uid",
		Columns: output.Columns("name",
			output.Text("platforms", func(t *registrypb.Tag) string { return strings.Join(summary(t).GetPlatforms(), ", ") }),
			output.Text("size", func(t *registrypb.Tag) string { return size(summary(t).GetSize()) }),
			output.Text("pulls", func(t *registrypb.Tag) string { return fmt.Sprint(summary(t).GetPullCount()) }),
			output.Text("signed by", func(t *registrypb.Tag) string { return signedBy(summary(t)) }), "pushed=updateTime"),
		Wide: output.Columns("digest", "uid"),
	}
}

func imagesInspect(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect REPO:TAG|REPO@DIGEST", Short: "Show the platforms, size and configuration of an image",
		Long: "Prints a line for each platform of the image, with the number of packages, or the reason why it is\n" +
			"unknown. Use -o json to print all details.",
		Example: "  holdfast registry images inspect acme/platform/app:1.2",
	}
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		found, err := getImage(ctx, a, at, "REPO:TAG")
		if err != nil {
			return err
		}
		return noun.ShowAnswer(ctx, a, variants(), found, found.GetVariants(), nil)
	})
}

// imagesReferrers returns the command that lists the artifacts attached to an image.
func imagesReferrers(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "referrers REPO:TAG|REPO@DIGEST",
		Short: "List the signatures, SBOMs and attestations attached to an image",
		Long: "Lists the first thousand artifacts, by digest. Anyone who may push to the repo can attach artifacts, and\n" +
			"nothing is verified here. To verify signatures: holdfast registry images signatures",
		Example: "  holdfast registry images referrers acme/platform/app:1.2",
	}
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		found, err := getImage(ctx, a, at, "REPO:TAG")
		if err != nil {
			return err
		}
		referrers, err := referrersOf(ctx, a, at.repo, found.GetDigest())
		if err != nil {
			return err
		}
		if referrers.GetIncomplete() {
			a.Note("there are more referrers")
		}
		view := output.View{Plural: "referrers", ID: "digest", Columns: output.Columns("artifactType", "digest", "size"),
			Wide: output.Columns("mediaType", "annotations")}
		return noun.ShowAnswer(ctx, a, view, referrers, referrers.GetReferrers(), nil)
	})
}

// maxReferrers is the number of referrers after which no further page is read.
const maxReferrers = 1000

// referrersOf returns the artifacts that are attached to an image. It reads several pages
// if necessary.
func referrersOf(ctx context.Context, a *noun.App, repo, digest string) (*ocipb.Referrers, error) {
	found, req := &ocipb.Referrers{Incomplete: true}, &ocipb.GetReferrersRequest{RepoUid: repo, Digest: digest}
	for found.GetIncomplete() && len(found.GetReferrers()) < maxReferrers {
		page, err := signin.Call(ctx, ocipb.NewOCIServiceClient(a).GetReferrers, req, "digest=REPO:TAG")
		if err != nil {
			return nil, err
		}
		n := len(page.GetReferrers())
		if found.Incomplete = page.GetIncomplete() && n > 0; found.GetIncomplete() {
			req.After = page.GetReferrers()[n-1].GetDigest()
		}
		found.Referrers = append(found.Referrers, page.GetReferrers()...)
	}
	return found, nil
}

// aboutImage makes cmd a command with one argument: the reference of an image.
func aboutImage(a *noun.App, cmd *cobra.Command, run func(context.Context, image) error) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(1), a.CompleteArgs(Repos())
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
		ref, err := parseImage(ctx, a, args[0])
		if err != nil {
			return err
		}
		return run(ctx, ref)
	})
	return cmd
}

// getImage returns the image of a reference. The default tag is latest. argument is the
// name of the tag in the usage.
func getImage(ctx context.Context, a *noun.App, at image, argument string) (*ocipb.Image, error) {
	req := &ocipb.GetImageRequest{RepoUid: at.repo, Reference: cmp.Or(at.digest, at.tag, "latest")}
	return signin.Call(ctx, ocipb.NewOCIServiceClient(a).GetImage, req, "reference="+argument, "repo_uid=REPO")
}

func imagesSize(a *noun.App) *cobra.Command {
	var architecture string
	cmd := &cobra.Command{
		Use: "size REPO@DIGEST", Short: "Print the size of an image in bytes",
		Long:    "Prints the compressed size of the layers and the configuration.",
		Example: "  holdfast registry images size acme/platform/app@sha256:… --architecture arm64",
	}
	cmd.Flags().StringVar(&architecture, "architecture", "", "`ARCHITECTURE` of an image with several (default: amd64)")
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		if at.digest == "" {
			found, err := getImage(ctx, a, at, "TAG")
			if err != nil {
				return err
			}
			at.digest = found.GetDigest()
		}
		req := &registrypb.GetSizeRequest{RepoUid: at.repo, Digest: at.digest, Architecture: architecture}
		m, err := signin.Call(ctx, registrypb.NewImagesServiceClient(a).GetSize, req, "digest=DIGEST", "repo_uid=REPO",
			"architecture=--architecture")
		if err != nil {
			return err
		}
		fmt.Fprintln(a.Out, m.GetSize())
		return nil
	})
}
