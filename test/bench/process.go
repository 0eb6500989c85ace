package main

import (
	"bytes"
	"context"
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

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// A process is a server in a process of its own, and a client of it.
type process struct {
	*client
	cmd   *exec.Cmd
	ready time.Duration // how long it took to start

	dev    devInfo // empty for distribution
	prefix string  // of the names of repos
}

// build compiles a package as make does. dir is relative to the repository.
func (b *bench) build(ctx context.Context, dir, pkg string) string {
	path := filepath.Join(b.folder, "program-"+filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(testprogram.Root(), dir), "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		check(fmt.Errorf("build %s: %w\n%s", pkg, err, out))
	}
	return path
}

// freeAddress returns an address that nothing listens on.
func freeAddress(ctx context.Context) string {
	l := listen(ctx)
	check(l.Close())
	return l.Addr().String()
}

// start starts a server, which runs until the measurement ends, and waits until it responds
// to the path ready with 200.
func (m *measurement) start(ctx context.Context, address, ready string, cmd *exec.Cmd) *process {
	p := &process{client: newClient("http://"+address, ""), cmd: cmd}
	begin := time.Now()
	check(cmd.Start())
	m.atEnd(p.stop)
	for {
		_, err := p.get(ctx, ready)
		if p.ready = time.Since(begin); err == nil {
			return p
		}
		if p.ready > startLimit || ctx.Err() != nil {
			check(fmt.Errorf("%s is not ready: %w", cmd.Path, err))
		}
		time.Sleep(time.Millisecond)
	}
}

// stop kills the server. It does nothing if that is done already.
func (p *process) stop() error {
	p.close()
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // returns an error, because the process was killed
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// holdfastd starts a holdfastd in dev mode on the database at url, or on its default
// one if that is "". It builds the program of this repository if binary is "".
func (m *measurement) holdfastd(ctx context.Context, binary, url string, env ...string) *process {
	if binary == "" {
		binary = m.build(ctx, ".", program)
	}
	folder, address := m.dataFolder(), freeAddress(ctx)
	args := []string{"--dev", "--listen", address, "--data-dir", folder}
	if url != "" {
		args = append(args, "--database", url)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	p := m.start(ctx, address, "/readyz", cmd)
	p.dev, p.prefix = readDev(folder), "dev/"
	p.token, p.registryToken = p.dev.Token, p.dev.RegistryToken
	return p
}

// distribution starts distribution with the settings of its own example: the
// filesystem driver, and a cache in memory.
func (m *measurement) distribution(ctx context.Context) *process {
	program := m.build(ctx, "tools/distribution", "github.com/distribution/distribution/v3/cmd/registry")
	folder, address := m.dataFolder(), freeAddress(ctx)
	config := fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {cache: {blobdescriptor: inmemory}, filesystem: {rootdirectory: %q}, delete: {enabled: true}}
http: {addr: %q}
`, folder, address)
	path := filepath.Join(folder, "config.yml")
	check(os.WriteFile(path, []byte(config), 0o600))
	cmd := exec.CommandContext(ctx, program, "serve", path)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	return m.start(ctx, address, "/v2/", cmd)
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

// pushChunks pushes a blob in chunks.
func (p *process) pushChunks(ctx context.Context, repo string, content []byte, digest string) error {
	h, _, err := p.do(ctx, http.StatusAccepted, http.MethodPost, "/v2/"+p.prefix+repo+"/blobs/uploads/", nil)
	for at := 0; err == nil && at < len(content); at += layerChunk {
		end := min(at+layerChunk, len(content))
		h, _, err = p.do(ctx, http.StatusAccepted, http.MethodPatch, h.Get("Location"), bytes.NewReader(content[at:end]),
			"Content-Type", "application/octet-stream", "Content-Range", fmt.Sprintf("%d-%d", at, end-1))
	}
	if err != nil {
		return err
	}
	at, sep := h.Get("Location"), "?"
	if strings.Contains(at, "?") {
		sep = "&"
	}
	_, _, err = p.do(ctx, http.StatusCreated, http.MethodPut, at+sep+"digest="+digest, nil)
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
func (p *process) memory(line string) float64 {
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)))
	for l := range strings.Lines(string(text)) {
		var kilobytes float64
		if n, _ := fmt.Sscanf(l, line+": %f kB", &kilobytes); n == 1 {
			return kilobytes * 1024
		}
	}
	panic(failure{fmt.Errorf("no %s in the status of the process", line)})
}

// resetPeak resets VmHWM, and returns VmRSS.
func (p *process) resetPeak() float64 {
	check(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0))
	return p.memory("VmRSS")
}

// clockTick is the unit of processor time in /proc.
const clockTick = time.Second / 100

// processor returns the processor time of the process.
func (p *process) processor() time.Duration {
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)))
	const user, system = 11, 12 // after the name, which is in parentheses
	values := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	ticks := must(strconv.Atoi(values[user])) + must(strconv.Atoi(values[system]))
	return time.Duration(ticks) * clockTick
}
