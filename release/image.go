package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageUser = 65532 // numeric ID of the user, so that a cluster can check that the user is not root
	imageData = "/var/lib/holdfast"
	imagePort = "8080"
)

// A releaseImage has the index of all platforms, and the SBOM of each platform's image.
type releaseImage struct {
	index v1.ImageIndex
	sboms []v1.Image
}

// writeImage writes the image as an OCI layout, and pushes it if the options say where.
func writeImage(ctx context.Context, b *builder, opts options, out io.Writer) error {
	img, err := makeImage(ctx, b, opts.program, opts.platforms)
	if err != nil {
		return err
	}
	if err := emptyFolder(opts.out, "oci-layout"); err != nil {
		return err
	}
	if err := img.write(opts.out, b.source); err != nil {
		return err
	}
	if err := finish(opts.out); err != nil {
		return err
	}
	digest, err := img.index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s written to %s\n", b.source.version, digest, opts.out)
	if opts.push == "" {
		return nil
	}
	tag, err := parseTag(opts.push)
	if err != nil {
		return err
	}
	if err := img.push(ctx, tag); err != nil {
		return fmt.Errorf("push to %s: %w", tag, err)
	}
	fmt.Fprintf(out, "pushed as %s@%s\n", tag, digest)
	return nil
}

// makeImage builds the image of a program for the given Linux platforms, or for all Linux
// platforms if none are given.
func makeImage(ctx context.Context, b *builder, p program, only []platform) (releaseImage, error) {
	img := releaseImage{index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
	base, err := baseLayer(b.source.date)
	if err != nil {
		return img, err
	}
	for _, on := range p.platforms {
		if on.os != "linux" || len(only) > 0 && !slices.Contains(only, on) {
			continue
		}
		one, sbom, err := platformImage(ctx, b, p, on, base)
		if err != nil {
			return img, fmt.Errorf("image for %s: %w", on, err)
		}
		img.index = mutate.AppendManifests(img.index, mutate.IndexAddendum{
			Add: runnable{one}, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: on.os, Architecture: on.arch}},
		})
		img.sboms = append(img.sboms, sbom)
	}
	if len(img.sboms) == 0 {
		return img, errors.New("-platforms: an image needs a linux platform")
	}
	img.index = mutate.Annotations(img.index, annotations(b.source, p)).(v1.ImageIndex)
	return img, nil
}

// A runnable is an image that can be run, so it is not an artifact. The library would
// give its entry in the index an artifact type, and clients may skip artifacts.
type runnable struct{ v1.Image }

// ArtifactType returns "", because the image is not an artifact.
func (runnable) ArtifactType() (string, error) { return "", nil }

// platformImage returns the image of a program for one platform, and its SBOM as an
// artifact whose subject is the image.
func platformImage(
	ctx context.Context, b *builder, p program, on platform, base v1.Layer,
) (img, sbom v1.Image, err error) {
	binary, err := b.binary(ctx, p, on)
	if err != nil {
		return nil, nil, err
	}
	layer, err := programLayer(ctx, b, p, binary, on)
	if err != nil {
		return nil, nil, err
	}
	img = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	history := func(what string) v1.History {
		return v1.History{Created: v1.Time{Time: b.source.date}, CreatedBy: "release image: " + what}
	}
	img, err = mutate.Append(img, mutate.Addendum{Layer: base, History: history("certificates, user, folders")},
		mutate.Addendum{Layer: layer, History: history(p.name + " " + b.source.version)})
	if err != nil {
		return nil, nil, err
	}
	if img, err = configure(img, b.source, p, on); err != nil {
		return nil, nil, err
	}
	img = mutate.Annotations(img, annotations(b.source, p)).(v1.Image)
	document, err := sbomOf(b.source, p, binary)
	if err != nil {
		return nil, nil, err
	}
	sbom, err = attach(img, document, b.source.date)
	return img, sbom, err
}

// configure sets the user, the environment and the command of the image.
func configure(img v1.Image, s source, p program, on platform) (v1.Image, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = on.os, on.arch, v1.Time{Time: s.date}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", imageUser, imageUser),
		Entrypoint: []string{"/usr/bin/" + p.name},
		Env:        []string{"PATH=/usr/bin"},
		StopSignal: "SIGTERM",
		Labels:     annotations(s, p),
	}
	if p.name == server.name {
		config.Config.Env = append(config.Config.Env, "HOLDFAST_DATA_DIR="+imageData, "HOLDFAST_LISTEN=:"+imagePort)
		config.Config.WorkingDir = imageData
		config.Config.Volumes = map[string]struct{}{imageData: {}}
		config.Config.ExposedPorts = map[string]struct{}{imagePort + "/tcp": {}}
	}
	return mutate.ConfigFile(img, config)
}

// annotations returns the annotations of the image. They are also its labels, because
// some tools read annotations and others read labels.
func annotations(s source, p program) map[string]string {
	const image = "org.opencontainers.image."
	return map[string]string{
		image + "title":       p.name,
		image + "description": p.summary,
		image + "version":     s.version,
		image + "revision":    s.commit,
		image + "created":     s.date.Format(time.RFC3339),
		image + "source":      homepage,
		image + "licenses":    "Apache-2.0",
		image + "vendor":      "Holdfast",
	}
}

// baseLayer has the parts of a system that a program needs: certificates of the public
// authorities, a name for its user, and folders to write to.
func baseLayer(date time.Time) (v1.Layer, error) {
	user := fmt.Sprintf("holdfast:x:%d:", imageUser)
	return layerOf(date, []file{
		{path: "etc/ssl/certs/ca-certificates.crt", data: certificates()},
		{path: "etc/passwd", data: fmt.Appendf(nil, "%s%d:Holdfast:%s:/sbin/nologin\n", user, imageUser, imageData)},
		{path: "etc/group", data: []byte(user + "\n")},
		{path: "tmp/", mode: os.ModeDir | os.ModeSticky | 0o777},
		{path: imageData[1:] + "/", mode: os.ModeDir | 0o700},
	})
}

func programLayer(ctx context.Context, b *builder, p program, binary string, on platform) (v1.Layer, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	documents, err := b.documents(ctx, p, on)
	if err != nil {
		return nil, err
	}
	content := []file{{path: "usr/bin/" + p.name, mode: 0o755, data: data}}
	for _, f := range documents {
		if !strings.Contains(f.path, "/") { // only the licenses, because an image needs no manual pages
			content = append(content, file{path: "usr/share/doc/" + p.name + "/" + f.path, data: f.data})
		}
	}
	return layerOf(b.source.date, content)
}

// layerOf returns a layer with files and their folders. The data folder belongs to the
// user of the image, everything else to root.
func layerOf(date time.Time, content []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range sorted(withParents(content)) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.path, Mode: int64(f.mode.Perm()), Size: int64(len(f.data)),
			ModTime: date, Format: tar.FormatUSTAR,
		}
		if f.mode.IsDir() {
			header.Typeflag = tar.TypeDir
		}
		if f.mode&os.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		if f.path == imageData[1:]+"/" {
			header.Uid, header.Gid = imageUser, imageUser
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compressedLayer(b.Bytes())
}

// withParents adds the parent folders of files.
func withParents(content []file) []file {
	seen := map[string]bool{}
	for _, f := range content {
		seen[f.path] = true
	}
	entries := slices.Clone(content)
	for _, f := range content {
		for i := range len(f.path) - 1 {
			if dir := f.path[:i+1]; f.path[i] == '/' && !seen[dir] {
				seen[dir] = true
				entries = append(entries, file{path: dir, mode: os.ModeDir | 0o755})
			}
		}
	}
	return entries
}

// certificates returns the certificates of the authorities that Mozilla trusts without
// conditions, in the version that go.mod names. It omits the other authorities, because a
// file of certificates cannot express conditions.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a buffer never fails
		}
	}
	return b.Bytes()
}

// write writes an OCI layout with the index, tagged with its version, and the SBOMs.
func (r releaseImage) write(dir string, s source) error {
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": s.version})
	if err := path.AppendIndex(r.index, name); err != nil {
		return err
	}
	for _, sbom := range r.sboms {
		if err := path.AppendImage(sbom); err != nil {
			return err
		}
	}
	return nil
}

// push writes the image and its SBOMs to a registry, with the credentials in Docker's
// settings.
func (r releaseImage) push(ctx context.Context, tag name.Tag) error {
	return r.pushWith(tag, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// pushWith writes the image and its SBOMs to a registry.
func (r releaseImage) pushWith(tag name.Tag, opts ...remote.Option) error {
	if err := remote.WriteIndex(tag, r.index, opts...); err != nil {
		return err
	}
	for _, sbom := range r.sboms {
		digest, err := sbom.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(tag.Digest(digest.String()), sbom, opts...); err != nil {
			return err
		}
	}
	return nil
}

// parseTag reads an address like registry.example.com/acme/holdfastd:1.2.3.
func parseTag(s string) (name.Tag, error) {
	tag, err := name.NewTag(s, name.StrictValidation)
	if err != nil {
		return tag, fmt.Errorf("%q is not HOST/REPO:TAG: %w", s, err)
	}
	return tag, nil
}

// parseDigest reads an address like registry.example.com/acme/holdfastd@sha256:….
func parseDigest(s string) (name.Digest, error) {
	ref, err := name.NewDigest(s, name.StrictValidation)
	if err != nil {
		return ref, fmt.Errorf("%q is not HOST/REPO@DIGEST: %w", s, err)
	}
	return ref, nil
}
