package registry

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// imagesCheck returns the command that asks whether pull rules refuse images.
func imagesCheck(a *noun.App) *cobra.Command {
	req := &findingspb.CheckImagesRequest{}
	cmd := &cobra.Command{
		Use: "check IMAGE...", Short: "Ask whether images could be pulled, before a cluster pulls them",
		Long: "Asks the server whether its rules refuse pulls of images, and prints the reason that a pull would get.\n" +
			"An index is refused if one of its images is; --platform leaves out the images for other platforms. The exit\n" +
			"code is 3 unless all images are allowed. Nothing is recorded as a pull.",
		Example: "  holdfast registry images check registry.example.com/acme/shop/web:1.2 --platform linux/amd64",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			host, err := a.RegistryAddress()
			if err != nil {
				return err
			}
			for _, image := range args {
				req.Images = append(req.Images, withHost(host, image))
			}
			found, err := signin.Call(ctx, findingspb.NewAdmissionServiceClient(a).CheckImages, req, "images=IMAGE",
				"platforms=--platform")
			if err != nil {
				return err
			}
			if err := noun.ShowAnswer(ctx, a, checkedImages(), found, found.GetChecks(), nil); err != nil {
				return err
			}
			for _, c := range found.GetChecks() {
				if c.GetDecision() != findingspb.ImageDecision_IMAGE_DECISION_ALLOWED {
					return problem.New(problem.ExitNo, "")
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringArrayVar(&req.Platforms, "platform", nil,
		"`PLATFORM` of the nodes, such as linux/amd64; can be repeated")
	return cmd
}

// checkedImages returns the View for decisions about images.
func checkedImages() output.View {
	return output.View{
		Plural: "images", ID: "image", Columns: output.Columns("image", "decision", "platform", "reason"),
		Wide: output.Columns("digest", "repoUid"),
	}
}

// withHost adds the host of the registry to a reference without a host. As in containerd, a host has a dot or a port.
func withHost(host, image string) string {
	first, _, _ := strings.Cut(image, "/")
	if first == image || !strings.ContainsAny(first, ".:") && first != "localhost" {
		return host + "/" + image
	}
	return image
}
