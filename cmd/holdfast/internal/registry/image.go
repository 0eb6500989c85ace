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

// imagesCommand returns the commands about what images are like.
func imagesCommand(a *noun.App) *cobra.Command {
	return a.Branch("images", "Inspect and copy images", imagesList(a), imagesInspect(a), imagesPackages(a),
		imagesReferrers(a), imagesSignatures(a), imagesSize(a), imagesCopy(a), imagesPromote(a))
}

// variants shows the images for several systems. known has what is known about each, by
// digest.
func variants(known map[string]string) output.View {
	inspected := func(v *ocipb.Variant) string { return known[v.GetDigest()] }
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

// listedImages is how many images one call summarizes at most.
const listedImages = 50

func imagesList(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list REPO", Short: "List the newest tags of a repo with platforms, sizes and pulls",
		Long: "Lists the fifty tags that were pushed last. Pulls are those of the last 30 days; a number above a hundred may\n" +
			"stand for more. The size of an index is that of its image for amd64, or else of its first.",
	}
	return a.About(repos(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		found, err := signin.Call(ctx, registrypb.NewTagsServiceClient(a).ListTags, &registrypb.ListTagsRequest{
			Uidp: &commonpb.UIDPFilter{ChildrenOf: uid}, PageSize: listedImages, OrderBy: "update_time desc"}, "uidp.children_of=REPO")
		if err != nil || len(found.GetTags()) == 0 {
			return cmp.Or(err, noun.ShowAll(ctx, a, listedView(nil), []*registrypb.Tag{}))
		}
		req := &ocipb.SummarizeImagesRequest{RepoUid: uid}
		for _, t := range found.GetTags() {
			req.Digests = append(req.Digests, t.GetDigest())
		}
		all, err := signin.Call(ctx, ocipb.NewOCIServiceClient(a).SummarizeImages, req, "repo_uid=REPO")
		if err != nil {
			return err
		}
		known := map[string]*ocipb.ImageSummary{}
		for _, s := range all.GetSummaries() {
			known[s.GetDigest()] = s
		}
		return noun.ShowAll(ctx, a, listedView(known), found.GetTags())
	})
}

// listedView shows tags with what is known of their images, by digest.
func listedView(known map[string]*ocipb.ImageSummary) output.View {
	of := func(t *registrypb.Tag) *ocipb.ImageSummary { return known[t.GetDigest()] }
	return output.View{
		Plural: "images", ID: "uid",
		Columns: output.Columns("name",
			output.Text("platforms", func(t *registrypb.Tag) string { return strings.Join(of(t).GetPlatforms(), ", ") }),
			output.Text("size", func(t *registrypb.Tag) string { return size(of(t).GetSize()) }),
			output.Text("pulls", func(t *registrypb.Tag) string { return fmt.Sprint(of(t).GetPullCount()) }),
			output.Text("signed by", func(t *registrypb.Tag) string { return signedBy(of(t)) }), "pushed=updateTime"),
		Wide: output.Columns("digest", "uid"),
	}
}

func imagesInspect(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect REPO:TAG|REPO@DIGEST", Short: "Show the platforms, size and configuration of an image",
		Long: "Prints a line for each platform of the image, with how many packages it has, or why that is not known.\n" +
			"Use -o json to print all details.",
		Example: "  holdfast registry images inspect acme/platform/app:1.2",
	}
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		found, err := getImage(ctx, a, at, "REPO:TAG")
		if err != nil {
			return err
		}
		known := map[string]string{}
		for _, v := range found.GetVariants() {
			known[v.GetDigest()] = packagesOf(ctx, a, at.repo, v.GetDigest())
		}
		return noun.ShowAnswer(ctx, a, variants(known), found, found.GetVariants(), nil)
	})
}

// imagesReferrers lists what is attached to an image.
func imagesReferrers(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "referrers REPO:TAG|REPO@DIGEST", Short: "List the signatures, SBOMs and attestations that are attached to an image",
		Long: "What is attached is the word of whoever may push to the repo; nothing of it is verified, but see\n" +
			"holdfast registry images signatures. They are listed by digest, the first thousand.",
		Example: "  holdfast registry images referrers acme/platform/app:1.2",
	}
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		found, err := getImage(ctx, a, at, "REPO:TAG")
		if err != nil {
			return err
		}
		all, err := referrersOf(ctx, a, at.repo, found.GetDigest())
		if err != nil {
			return err
		}
		if all.GetIncomplete() {
			a.Note("there are more than these")
		}
		view := output.View{Plural: "referrers", ID: "digest", Columns: output.Columns("artifactType", "digest", "size"),
			Wide: output.Columns("mediaType", "annotations")}
		return noun.ShowAnswer(ctx, a, view, all, all.GetReferrers(), nil)
	})
}

// maxReferrers is after how many referrers no other page is read.
const maxReferrers = 1000

// referrersOf returns what is attached to an image, from as many pages as it takes.
func referrersOf(ctx context.Context, a *noun.App, repo, digest string) (*ocipb.Referrers, error) {
	all, req := &ocipb.Referrers{Incomplete: true}, &ocipb.GetReferrersRequest{RepoUid: repo, Digest: digest}
	for all.GetIncomplete() && len(all.GetReferrers()) < maxReferrers {
		some, err := signin.Call(ctx, ocipb.NewOCIServiceClient(a).GetReferrers, req, "digest=REPO:TAG")
		if err != nil {
			return nil, err
		}
		n := len(some.GetReferrers())
		if all.Incomplete = some.GetIncomplete() && n > 0; all.GetIncomplete() {
			req.After = some.GetReferrers()[n-1].GetDigest()
		}
		all.Referrers = append(all.Referrers, some.GetReferrers()...)
	}
	return all, nil
}

// aboutImage makes cmd a command with one argument, which is the reference of an
// image.
func aboutImage(a *noun.App, cmd *cobra.Command, run func(context.Context, image) error) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(1), a.CompleteArgs(repos())
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
		at, err := parseImage(ctx, a, args[0])
		if err != nil {
			return err
		}
		return run(ctx, at)
	})
	return cmd
}

// getImage returns the image of a reference, whose default tag is latest. argument is
// what the usage calls the tag.
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
