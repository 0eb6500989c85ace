package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

// A depot is a registry in a process of its own, and a client of it.
type depot struct {
	address string
	cmd     *exec.Cmd
	http    *http.Client
	token   string       // for the registry; "" where everybody may
	api     string       // for the API; "" where there is none
	refresh string       // for the next token of the API; likewise
	prefix  string       // of the names of repos
	org     resource.UID // that they are in
}

// build makes a program of this repository, as make does.
func (b *bench) build(ctx context.Context, dir, pkg string) (string, error) {
	path := filepath.Join(b.folder, "program-"+filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-C", dir, "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// free returns an address nobody listens on.
func free(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (b *bench) start(ctx context.Context, address, ready string, cmd *exec.Cmd) (*depot, error) {
	d := &depot{address: address, cmd: cmd, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for range 1000 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+ready, nil)
		if err != nil {
			return nil, err
		}
		if resp, err := d.http.Do(req); err == nil {
			resp.Body.Close()
			return d, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("%s does not answer", cmd.Path), d.stop())
}

func (d *depot) stop() error {
	d.http.CloseIdleConnections()
	err := d.cmd.Process.Kill()
	_ = d.cmd.Wait() // it was killed
	return err
}

// ours starts the holdfastd of this repository on the database at url.
func (b *bench) ours(ctx context.Context, url string) (*depot, error) {
	binary, err := b.build(ctx, ".", program)
	if err != nil {
		return nil, err
	}
	return b.holdfastd(ctx, binary, url)
}

// holdfastd starts a holdfastd in dev mode on the database at url, with its own
// settings.
func (b *bench) holdfastd(ctx context.Context, binary, url string) (*depot, error) {
	folder, err := b.dataFolder()
	if err != nil {
		return nil, err
	}
	address, err := free(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "--dev", "--listen", address, "--data-dir", folder, "--database", url)
	d, err := b.start(ctx, address, "/readyz", cmd)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "dev.json"))
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	var dev struct {
		Token, RegistryToken, RefreshToken string
		Organization                       resource.UID `json:"organizationUid"`
	}
	if err := json.Unmarshal(text, &dev); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	d.token, d.api, d.refresh, d.org, d.prefix = dev.RegistryToken, dev.Token, dev.RefreshToken, dev.Organization, "dev/"
	return d, nil
}

// stock starts distribution as its own example has it: on its filesystem
// driver, with its cache in memory.
func (b *bench) stock(ctx context.Context) (*depot, error) {
	program, err := b.build(ctx, "tools/distribution", "github.com/distribution/distribution/v3/cmd/registry")
	if err != nil {
		return nil, err
	}
	folder, err := b.dataFolder()
	if err != nil {
		return nil, err
	}
	address, err := free(ctx)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  cache:\n    blobdescriptor: inmemory\n  filesystem:\n    rootdirectory: %s\n  delete:\n    enabled: true\nhttp:\n  addr: %s\n", folder, address)
	path := filepath.Join(folder, "config.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "serve", path)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	return b.start(ctx, address, "/v2/", cmd)
}

// do sends a request and reads the answer to its end. It fails on another
// status.
func (d *depot) do(ctx context.Context, status int, method, path string, body io.Reader, headers ...string) (http.Header, []byte, error) {
	if !strings.HasPrefix(path, "http") {
		path = "http://" + d.address + path
	}
	req, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	token := d.token
	if !strings.Contains(path, "/v2/") {
		token = d.api
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	var content bytes.Buffer
	if resp.ContentLength > 1<<20 {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		_, err = content.ReadFrom(resp.Body)
	}
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, content.Bytes())
	}
	return resp.Header, content.Bytes(), err
}

// pushBlob pushes as most clients do: a session, the bytes in one stream, the
// digest at the end.
func (d *depot) pushBlob(ctx context.Context, repo string, body io.Reader, digest func() string) error {
	h, _, err := d.do(ctx, http.StatusAccepted, http.MethodPost, "/v2/"+d.prefix+repo+"/blobs/uploads/", nil)
	if err != nil {
		return err
	}
	if h, _, err = d.do(ctx, http.StatusAccepted, http.MethodPatch, h.Get("Location"), body, "Content-Type", "application/octet-stream"); err != nil {
		return err
	}
	at := h.Get("Location")
	sep := "?"
	if strings.Contains(at, "?") {
		sep = "&"
	}
	_, _, err = d.do(ctx, http.StatusCreated, http.MethodPut, at+sep+"digest="+digest(), nil)
	return err
}

const ociImage = "application/vnd.oci.image.manifest.v1+json"

func (d *depot) putManifest(ctx context.Context, repo, reference string, m []byte) error {
	_, _, err := d.do(ctx, http.StatusCreated, http.MethodPut, "/v2/"+d.prefix+repo+"/manifests/"+reference, bytes.NewReader(m), "Content-Type", ociImage)
	return err
}

// memory is a line of the status of the process, in bytes: VmRSS is what it
// holds, VmHWM the most it held.
func (d *depot) memory(line string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no %s", line)
}

// forgetPeak makes the process begin anew with VmHWM.
func (d *depot) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte("5"), 0)
}

// clockTick is the unit of processor time in /proc: Linux has 100 in a second for
// programs, whatever it counts with itself.
const clockTick = time.Second / 100

// processor is the processor time that the process has used.
func (d *depot) processor() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	const user, system = 11, 12 // after the name, which is in parentheses
	values := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(values) <= system {
		return 0, errors.New("no processor time in the status of the process")
	}
	var ticks time.Duration
	for _, v := range []string{values[user], values[system]} {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += time.Duration(n)
	}
	return ticks * clockTick, nil
}
