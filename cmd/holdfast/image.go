package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// images is the commands about what images are like.
func (a *app) images() *cobra.Command {
	return a.branch("images", "See what images are made of", a.imagesInspect(), a.imagesSize())
}

func ociMethod(name protoreflect.Name) protoreflect.MethodDescriptor {
	return serviceOf(ocipb.File_holdfast_oci_v1_oci_proto).Methods().ByName(name)
}

// variants is how the images for several systems are shown.
func variants() noun {
	return noun{
		area: "registry", use: "images", one: "image", message: (*ocipb.Variant)(nil).ProtoReflect().Descriptor(), id: "digest",
		columns: []column{
			{name: "platform", text: platformOf},
			{name: "digest", path: "digest"},
			{name: "size", text: func(m protoreflect.Message) string { return size(m.Interface().(*ocipb.Variant).GetSize()) }},
			{name: "layers", path: "layers"},
			{name: "user", path: "config.user"},
			{name: "entrypoint", text: func(m protoreflect.Message) string {
				c := m.Interface().(*ocipb.Variant).GetConfig()
				return strings.Join(append(c.GetEntrypoint(), c.GetCmd()...), " ")
			}},
		},
		wide: []column{
			{name: "createTime", path: "config.createTime"}, {name: "workingDir", path: "config.workingDir"},
			{name: "ports", path: "config.exposedPorts"}, {name: "env", path: "config.env"},
		},
	}
}

func platformOf(m protoreflect.Message) string {
	v := m.Interface().(*ocipb.Variant)
	parts := []string{v.GetOs(), v.GetArchitecture(), v.GetVariant()}
	return strings.Trim(strings.Join(parts, "/"), "/")
}

func (a *app) imagesInspect() *cobra.Command {
	return &cobra.Command{
		Use: "inspect REPO:TAG|REPO@DIGEST", Short: "Show what an image is for, how large it is and how it runs",
		Long:    "Shows a line for each system that the image was made for. -o json shows all there is.",
		Example: "  holdfast registry images inspect acme/platform/app:1.2",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeArgs(repos()),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			at, err := c.image(ctx, args[0])
			if err != nil {
				return err
			}
			m, err := c.call(ctx, ociMethod("GetImage"), &ocipb.GetImageRequest{RepoUid: at.repo, Reference: at.reference()},
				map[string]string{"reference": "REPO:TAG", "repo_uid": "REPO"})
			if err != nil {
				return err
			}
			return a.showImage(m)
		}),
	}
}

// reference is what the registry calls an image by: latest if nothing is said.
func (at image) reference() string {
	switch {
	case at.digest != "":
		return at.digest
	case at.tag != "":
		return at.tag
	}
	return "latest"
}

// showImage prints an image whole, or a line for each of its variants.
func (a *app) showImage(m protoreflect.Message) error {
	format, err := a.value("output")
	if err != nil {
		return err
	}
	if format.value == "json" || format.value == "yaml" {
		return a.show(variants(), m)
	}
	out, err := a.printer(variants(), true)
	if err != nil {
		return err
	}
	for _, v := range m.Interface().(*ocipb.Image).GetVariants() {
		if err := out.add(v.ProtoReflect()); err != nil {
			return err
		}
	}
	return out.close()
}

func (a *app) imagesSize() *cobra.Command {
	var architecture string
	cmd := &cobra.Command{
		Use: "size REPO@DIGEST", Short: "Print how many bytes an image has",
		Long:    "Prints the bytes of the layers and the configuration of an image as they travel.",
		Example: "  holdfast registry images size acme/platform/app@sha256:… --architecture arm64",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeArgs(repos()),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			at, err := c.image(ctx, args[0])
			if err != nil {
				return err
			}
			digest, err := c.digest(ctx, at)
			if err != nil {
				return err
			}
			service := serviceOf(registrypb.File_holdfast_registry_v2beta1_images_proto)
			m, err := c.call(ctx, service.Methods().ByName("GetSize"), &registrypb.GetSizeRequest{RepoUid: at.repo, Digest: digest, Architecture: architecture},
				map[string]string{"digest": "DIGEST", "repo_uid": "REPO", "architecture": "--architecture"})
			if err != nil {
				return err
			}
			fmt.Fprintln(a.out, m.Interface().(*registrypb.Size).GetSize())
			return nil
		}),
	}
	cmd.Flags().StringVar(&architecture, "architecture", "", "`ARCHITECTURE` of the image, if there are several (amd64)")
	return cmd
}

// digest is the digest that a reference stands for now.
func (c *client) digest(ctx context.Context, at image) (string, error) {
	if at.digest != "" {
		return at.digest, nil
	}
	m, err := c.call(ctx, ociMethod("GetImage"), &ocipb.GetImageRequest{RepoUid: at.repo, Reference: at.reference()},
		map[string]string{"reference": "TAG", "repo_uid": "REPO"})
	if err != nil {
		return "", err
	}
	return m.Interface().(*ocipb.Image).GetDigest(), nil
}
