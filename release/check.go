package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	// publishedAdvisories is the address of all published advisories about Go modules and the standard library.
	publishedAdvisories = "https://storage.googleapis.com/osv-vulnerabilities/Go/all.zip"

	maxAdvisories   = 256 << 20 // bytes
	downloadTimeout = 5 * time.Minute
	startTimeout    = 2 * time.Minute
	inspectTimeout  = "5m"
)

// ourRule has the flags of the rule that the image of a release must pass.
var ourRule = []string{"--min-severity", "high", "--unknown-severity", "refuse", "--fixable", "--refuse-unknown",
	"--mode", "enforce"}

// errNoAdvisories is returned if the advisories cannot be downloaded.
var errNoAdvisories = errors.New("the advisories cannot be downloaded")

// checkRelease starts the server of this source, pushes the image for this architecture to it, imports advisories, and
// returns an error if our own rule refuses the image. If the advisories cannot be downloaded, it only writes that
// the image was not checked, unless the options require the check.
func checkRelease(ctx context.Context, b *builder, opts options, out io.Writer) error {
	file, err := readAdvisories(ctx, opts.advisories, b.work)
	if errors.Is(err, errNoAdvisories) && !opts.required {
		fmt.Fprintf(out, "NOT CHECKED: %v. Findings of the image are unknown; give a file with -advisories\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	on := platform{"linux", runtime.GOARCH}
	img, err := makeImage(ctx, b, server, []platform{on})
	if err != nil {
		return err
	}
	dev, stop, err := startServer(ctx, b)
	if err != nil {
		return err
	}
	defer stop()
	if err := dev.judge(ctx, img, file, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "checked: our rule (%s) allows the image for %s\n", strings.Join(ourRule, " "), on)
	return nil
}

// readAdvisories returns the path of a file with advisories. from is a path, an address, or "" for
// publishedAdvisories.
func readAdvisories(ctx context.Context, from, dir string) (string, error) {
	if from == "" {
		from = publishedAdvisories
	}
	if !strings.HasPrefix(from, "https://") && !strings.HasPrefix(from, "http://") {
		_, err := os.Stat(from)
		return from, err
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoAdvisories, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%w: %s: HTTP status %d", errNoAdvisories, from, resp.StatusCode)
	}
	path := filepath.Join(dir, "advisories.zip")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	n, err := io.Copy(f, io.LimitReader(resp.Body, maxAdvisories+1))
	if err != nil {
		return "", errors.Join(fmt.Errorf("%w: %w", errNoAdvisories, err), f.Close())
	}
	if n > maxAdvisories {
		return "", errors.Join(fmt.Errorf("%s has more than %d bytes", from, maxAdvisories), f.Close())
	}
	return path, f.Close()
}

// A devServer is a server in dev mode, and the client for it.
type devServer struct {
	BaseURL, RegistryHost, RegistryToken, Token string

	client, home string
}

// startServer starts the server of this source with an empty database. The caller must call stop.
func startServer(ctx context.Context, b *builder) (dev *devServer, stop func(), err error) {
	here := platform{runtime.GOOS, runtime.GOARCH}
	binary, err := b.binary(ctx, server, here)
	if err != nil {
		return nil, nil, err
	}
	dev = &devServer{home: filepath.Join(b.work, "check")}
	if dev.client, err = b.binary(ctx, client, here); err != nil {
		return nil, nil, err
	}
	data := filepath.Join(dev.home, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, nil, err
	}
	log, err := os.Create(filepath.Join(dev.home, "log"))
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, "--dev", "--data-dir", data, "--listen", "127.0.0.1:0")
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, log, log
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // the log says why it ended
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that the server has already ended
		<-ended
		_ = log.Close()
	}
	if err := dev.await(ctx, filepath.Join(data, "dev.json"), ended); err != nil {
		stop()
		said, _ := os.ReadFile(log.Name())
		return nil, nil, fmt.Errorf("%w\n%s", err, said)
	}
	return dev, stop, nil
}

// await waits until the server is ready, and reads its addresses and tokens from the file that it writes.
func (d *devServer) await(ctx context.Context, file string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, d) == nil {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.BaseURL+"/readyz", nil)
			if err != nil {
				return err
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close() // only the status is needed
				if resp.StatusCode == http.StatusOK {
					return nil
				}
			}
		}
		select {
		case <-ended:
			return errors.New("the server ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// run runs the client.
func (d *devServer) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.client, args...)
	cmd.Env = []string{"HOLDFAST_API=" + d.BaseURL, "HOLDFAST_TOKEN=" + d.Token, "HOME=" + d.home}
	return output(cmd)
}

// judge imports advisories, pushes an image, and pulls it as a client would. It returns an error if the pull is
// refused, or if most packages were not compared, because then the absence of findings means nothing.
func (d *devServer) judge(ctx context.Context, img releaseImage, advisories string, out io.Writer) error {
	if _, err := d.run(ctx, "advisories", "import", advisories, "--group", "dev"); err != nil {
		return err
	}
	create := append([]string{"findings", "rules", "create", "--parent", "dev"}, ourRule...)
	if _, err := d.run(ctx, create...); err != nil {
		return err
	}
	tag, err := parseTag(d.RegistryHost + "/dev/holdfastd:check")
	if err != nil {
		return err
	}
	access := remote.WithAuth(&authn.Basic{Username: "_token", Password: d.RegistryToken})
	if err := img.pushWith(tag, remote.WithContext(ctx), access); err != nil {
		return err
	}
	image := "dev/holdfastd:check"
	text, err := d.run(ctx, "findings", "list", image, "--wait", inspectTimeout, "--architecture", runtime.GOARCH,
		"-o", "json")
	if err != nil {
		return err
	}
	var answer struct {
		Coverage struct {
			Packages struct{ Packages, Covered int }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return fmt.Errorf("findings list: %w", err)
	}
	if n := answer.Coverage.Packages; n.Covered*2 <= n.Packages { // the image also has packages of the console
		return fmt.Errorf("there are advisories for only %d of the %d packages of the image, so its findings are unknown",
			n.Covered, n.Packages)
	}
	table, err := d.run(ctx, "findings", "list", image, "--architecture", runtime.GOARCH)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, table)
	return d.pull(ctx, img, tag.Repository.Name(), access)
}

// pull reads the manifest of each platform's image.
func (d *devServer) pull(ctx context.Context, img releaseImage, repo string, access remote.Option) error {
	manifest, err := img.index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		ref, err := parseDigest(repo + "@" + m.Digest.String())
		if err != nil {
			return err
		}
		_, err = remote.Get(ref, remote.WithContext(ctx), access)
		if refused, ok := errors.AsType[*transport.Error](err); ok && refused.StatusCode == http.StatusForbidden {
			return fmt.Errorf("our rule refuses the image for %s: %w", m.Platform, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
