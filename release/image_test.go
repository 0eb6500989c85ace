package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const mostImage = 45 << 20 // maximum number of bytes that a pull of the image may transfer

// TestImage pushes the image to a Holdfast server, as `make image ARGS='-push …'` does,
// pulls it back and runs it.
func TestImage(t *testing.T) {
	m := released(t)
	dev := startDev(t, m)
	index, err := layout.ImageIndexFromPath(m.image)
	if err != nil {
		t.Fatal(err)
	}
	pushed := pushedImage(t, index)
	tag, err := parseTag(dev.RegistryHost + "/dev/holdfastd:test")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dockerConfig(t, dev))
	if err := pushed.push(t.Context(), tag); err != nil {
		t.Fatal(err)
	}
	keychain := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	img, err := remote.Image(tag, keychain, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: here.arch}))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("is small and says what it is", func(t *testing.T) { checkImage(t, m, img) })
	t.Run("has its SBOM attached", func(t *testing.T) { checkAttached(t, m, dev, tag, img, keychain) })
	t.Run("runs", func(t *testing.T) { runImage(t, m, img) })
}

// TestKubeImage makes the image of the program for clusters, and runs the program.
func TestKubeImage(t *testing.T) {
	m := released(t)
	img, err := makeImage(t.Context(), m.builder, kube, []platform{here})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || len(img.sboms) != 1 {
		t.Fatalf("%v, %v", manifest, err)
	}
	one, err := img.index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := one.ConfigFile()
	if err != nil || config.Config.User != "65532:65532" || config.Config.Volumes != nil ||
		!slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/holdfast-kube"}) {
		t.Errorf("configuration: %+v, %v", config.Config, err)
	}
	root := t.TempDir()
	unpackImage(t, one, root)
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/holdfast-kube"), "--version").Output()
	if want := m.source.version + "\n"; err != nil || string(out) != want {
		t.Errorf("the program prints %q, want %q, %v", out, want, err)
	}
}

// devFile has the fields of dev.json that tests need.
type devFile struct {
	BaseURL, RegistryHost, Token, RegistryToken string
}

// startDev starts the server that was built, in dev mode.
func startDev(t *testing.T, m *made) (dev devFile) {
	t.Helper()
	binary, err := m.binary(t.Context(), server, here)
	if err != nil {
		t.Fatal(err)
	}
	data, address := t.TempDir(), freeAddress(t)
	ctx := context.WithoutCancel(t.Context()) // the test's cleanup stops the server
	cmd := exec.CommandContext(ctx, binary, "--dev", "--data-dir", data, "--listen", address)
	cmd.Env = []string{}
	start(t, cmd, address)
	text, err := os.ReadFile(filepath.Join(data, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dev); err != nil {
		t.Fatal(err)
	}
	return dev
}

// dockerConfig returns a folder with the settings of a Docker that is logged in.
func dockerConfig(t *testing.T, dev devFile) string {
	t.Helper()
	config, err := json.Marshal(map[string]any{"auths": map[string]any{
		dev.RegistryHost: map[string]string{"username": "_token", "password": dev.RegistryToken},
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pushedImage reads the image that writeImage has written.
func pushedImage(t *testing.T, written v1.ImageIndex) (r releaseImage) {
	t.Helper()
	manifest, err := written.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() {
			r.index, err = written.ImageIndex(d.Digest)
		} else {
			var sbom v1.Image
			sbom, err = written.Image(d.Digest)
			r.sboms = append(r.sboms, sbom)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestIndex checks that every image in the index is for Linux, and that none is an
// artifact, because clients may skip artifacts.
func TestIndex(t *testing.T) {
	written, err := layout.ImageIndexFromPath(released(t).image)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := pushedImage(t, written).index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) == 0 || manifest.Annotations["org.opencontainers.image.title"] != "holdfastd" {
		t.Errorf("the index is %+v", manifest)
	}
	for _, d := range manifest.Manifests {
		if d.ArtifactType != "" || d.Platform.OS != "linux" {
			t.Errorf("%s for %s is of type %q", d.Digest, d.Platform, d.ArtifactType)
		}
	}
}

func checkImage(t *testing.T, m *made, img v1.Image) {
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	size := manifest.Config.Size
	for _, l := range manifest.Layers {
		size += l.Size
	}
	t.Logf("%.1f MB", float64(size)/1e6)
	if size > mostImage {
		t.Errorf("%d bytes, want at most %d", size, mostImage)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	for _, labels := range []map[string]string{manifest.Annotations, config.Config.Labels} {
		if got := labels["org.opencontainers.image.revision"]; got != m.source.commit {
			t.Errorf("revision is %q, want %s", got, m.source.commit)
		}
	}
	if config.Config.User != "65532:65532" || config.Architecture != here.arch {
		t.Errorf("user %s on %s", config.Config.User, config.Architecture)
	}
}

// checkAttached checks that the SBOM is a referrer of the image, and that the server
// lists the packages of the image.
func checkAttached(t *testing.T, m *made, dev devFile, tag name.Tag, img v1.Image, opts ...remote.Option) {
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(tag.Digest(digest.String()), opts...)
	if err != nil {
		t.Fatal(err)
	}
	found, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Manifests) != 1 || found.Manifests[0].ArtifactType != sbomType {
		t.Errorf("referrers are %+v", found.Manifests)
	}
	binary, err := m.binary(t.Context(), client, here)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "registry", "repos", "get", "dev/holdfastd", "-o", "id")
	cmd.Env = []string{"HOLDFAST_API=" + dev.BaseURL, "HOLDFAST_TOKEN=" + dev.Token, "HOME=" + t.TempDir()}
	repo, err := output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("%s/registry/v1/repos/%s/digests/%s/sbom", dev.BaseURL, repo, digest)
	status, body := get(t, url, dev.Token)
	if status != 200 || !strings.Contains(body, "pkg:golang/modernc.org/sqlite@v") {
		t.Errorf("%s: %d %.300s", url, status, body)
	}
}

// runImage unpacks the image and runs it as a container would: in its root, as its user,
// with its environment. Nothing changes outside of the data folder, so the root can be
// read-only.
func runImage(t *testing.T, m *made, img v1.Image) {
	if os.Getuid() != 0 {
		t.Skip("only root can change the root of a process")
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the user of the image must be able to enter the folder
			t.Fatal(err)
		}
	}
	unpackImage(t, img, root)
	before := tree(t, root)
	address := freeAddress(t)
	ctx := context.WithoutCancel(t.Context()) // the test's cleanup stops the server
	cmd := exec.CommandContext(ctx, config.Config.Entrypoint[0], "--listen", address)
	cmd.Env, cmd.Dir = config.Config.Env, config.Config.WorkingDir
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser},
	}
	start(t, cmd, address)
	if _, err := os.Stat(filepath.Join(root, imageData, "holdfast.db")); err != nil {
		t.Error(err)
	}
	if after := tree(t, root); !slices.Equal(before, after) {
		t.Errorf("the root was\n%s\nand is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	for _, shell := range []string{"bin", "sbin", "lib", "usr/lib", "usr/bin/sh"} {
		if _, err := os.Stat(filepath.Join(root, shell)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", shell, err)
		}
	}
	if version, _ := m.ask(t.Context(), server, "version"); !strings.Contains(version, m.source.version) {
		t.Errorf("version is %s", version)
	}
}

// unpackImage unpacks an image into a folder, with owners and modes.
func unpackImage(t *testing.T, img v1.Image, root string) {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var content []byte
			if content, err = io.ReadAll(files); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		err = errors.Join(err, os.Chown(path, h.Uid, h.Gid), os.Chmod(path, h.FileInfo().Mode()))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tree returns the paths of the files below a root, without the contents of the data
// folder.
func tree(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		all = append(all, fmt.Sprint(name, " ", info.Mode(), " ", info.Sys().(*syscall.Stat_t).Uid))
		if name == imageData {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
