package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A process is a server in a process of its own, and a client of it.
type process struct {
	address string
	cmd     *exec.Cmd
	http    *http.Client
	ready   time.Duration // how long it took to start

	dev    devInfo // empty for distribution
	prefix string  // of the names of repos
}

// build compiles a program as make does.
func (b *bench) build(ctx context.Context, dir, pkg string) (string, error) {
	path := filepath.Join(b.folder, "program-"+filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-C", dir, "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// freeAddress returns an address that nothing listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := listen(ctx)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts a server and waits until it responds to the path ready with 200.
func (b *bench) start(ctx context.Context, address, ready string, cmd *exec.Cmd) (*process, error) {
	p := &process{address: address, cmd: cmd, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for {
		_, _, err := p.do(ctx, http.StatusOK, http.MethodGet, ready, nil)
		if p.ready = time.Since(begin); err == nil {
			return p, nil
		}
		if p.ready > startLimit || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("%s is not ready: %w", cmd.Path, err), p.stop())
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *process) stop() error {
	p.http.CloseIdleConnections()
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // returns an error, because the process was killed
	return err
}

// holdfastd starts a holdfastd in dev mode on the database at url, or on its default
// one if that is "". It builds the program of this repository if binary is "".
func (b *bench) holdfastd(ctx context.Context, binary, url string) (*process, error) {
	var err error
	if binary == "" {
		if binary, err = b.build(ctx, ".", program); err != nil {
			return nil, err
		}
	}
	folder, err := b.dataFolder()
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"--dev", "--listen", address, "--data-dir", folder}
	if url != "" {
		args = append(args, "--database", url)
	}
	p, err := b.start(ctx, address, "/readyz", exec.CommandContext(ctx, binary, args...))
	if err != nil {
		return nil, err
	}
	if p.dev, err = readDev(folder); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.prefix = "dev/"
	return p, nil
}

// distribution starts distribution with the settings of its own example: the
// filesystem driver, and a cache in memory.
func (b *bench) distribution(ctx context.Context) (*process, error) {
	program, err := b.build(ctx, "tools/distribution", "github.com/distribution/distribution/v3/cmd/registry")
	if err != nil {
		return nil, err
	}
	folder, err := b.dataFolder()
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {cache: {blobdescriptor: inmemory}, filesystem: {rootdirectory: %q}, delete: {enabled: true}}
http: {addr: %q}
`, folder, address)
	path := filepath.Join(folder, "config.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "serve", path)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	return b.start(ctx, address, "/v2/", cmd)
}

// do sends a request and reads the response. It returns an error for another status.
func (p *process) do(
	ctx context.Context, status int, method, path string, body io.Reader, headers ...string,
) (http.Header, []byte, error) {
	if !strings.HasPrefix(path, "http") {
		path = "http://" + p.address + path
	}
	req, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	token := p.dev.RegistryToken
	if !strings.Contains(path, "/v2/") {
		token = p.dev.Token
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := p.http.Do(req)
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

// doJSON sends a request whose status must be 200, and decodes the response into out.
func (p *process) doJSON(
	ctx context.Context, method, path string, body io.Reader, out any, headers ...string,
) error {
	_, text, err := p.do(ctx, http.StatusOK, method, path, body, headers...)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// pushBlob pushes a blob as most clients do: in an upload with one stream of bytes, and
// with the digest at the end.
func (p *process) pushBlob(ctx context.Context, repo string, body io.Reader, digest func() string) error {
	h, _, err := p.do(ctx, http.StatusAccepted, http.MethodPost, "/v2/"+p.prefix+repo+"/blobs/uploads/", nil)
	if err != nil {
		return err
	}
	h, _, err = p.do(ctx, http.StatusAccepted, http.MethodPatch, h.Get("Location"), body,
		"Content-Type", "application/octet-stream")
	if err != nil {
		return err
	}
	at := h.Get("Location")
	sep := "?"
	if strings.Contains(at, "?") {
		sep = "&"
	}
	_, _, err = p.do(ctx, http.StatusCreated, http.MethodPut, at+sep+"digest="+digest(), nil)
	return err
}

const ociImage = "application/vnd.oci.image.manifest.v1+json"

func (p *process) putManifest(ctx context.Context, repo, reference string, m []byte) error {
	path := "/v2/" + p.prefix + repo + "/manifests/" + reference
	_, _, err := p.do(ctx, http.StatusCreated, http.MethodPut, path, bytes.NewReader(m), "Content-Type", ociImage)
	return err
}

// memory returns a line of the status of the process, in bytes: VmRSS is its memory, and
// VmHWM its peak.
func (p *process) memory(line string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		var kilobytes float64
		if n, _ := fmt.Sscanf(l, line+": %f kB", &kilobytes); n == 1 {
			return kilobytes * 1024, nil
		}
	}
	return 0, fmt.Errorf("no %s in the status of the process", line)
}

// resetPeak resets VmHWM.
func (p *process) resetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)
}

// clockTick is the unit of processor time in /proc.
const clockTick = time.Second / 100

// processor returns the processor time of the process.
func (p *process) processor() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
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
