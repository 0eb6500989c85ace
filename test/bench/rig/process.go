package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// A Process is a server in a process of its own, with a client for it.
type Process struct {
	*Client
	Cmd   *exec.Cmd
	Ready time.Duration // time from the start until the server responded

	Dev    DevInfo // content of dev.json; empty for the registry "distribution"
	Prefix string  // prefix of all repo names
}

// Build compiles a package without cgo, as make does, and returns the path of the program. dir is relative to the
// root of the repository.
func (b *Bench) Build(ctx context.Context, dir, pkg string) string {
	path := filepath.Join(b.Folder, "program-"+filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(testprogram.Root(), dir), "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		Check(fmt.Errorf("build %s: %w\n%s", pkg, err, out))
	}
	return path
}

// freeAddress returns an address on which no program listens.
func freeAddress(ctx context.Context) string {
	l := listen(ctx)
	Check(l.Close())
	return l.Addr().String()
}

// start starts a server and waits until it responds to the path ready with 200. The server runs until the measurement
// ends.
func (m *Measurement) start(ctx context.Context, address, ready string, cmd *exec.Cmd) *Process {
	p := &Process{Client: NewClient("http://"+address, ""), Cmd: cmd}
	begin := time.Now()
	Check(cmd.Start())
	m.AtEnd(p.Stop)
	for {
		_, err := p.Get(ctx, ready)
		if p.Ready = time.Since(begin); err == nil {
			return p
		}
		if p.Ready > startLimit || ctx.Err() != nil {
			Check(fmt.Errorf("%s is not ready: %w", cmd.Path, err))
		}
		time.Sleep(time.Millisecond)
	}
}

// Stop kills the server. A second call does nothing.
func (p *Process) Stop() error {
	p.Close()
	err := p.Cmd.Process.Kill()
	_ = p.Cmd.Wait() // an error is expected, because the process was killed
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// StartHoldfastd starts a holdfastd in dev mode. If binary is "", it builds the program of this repository. If url is
// "", the server uses its default database.
func (m *Measurement) StartHoldfastd(ctx context.Context, binary, url string, env ...string) *Process {
	if binary == "" {
		binary = m.Build(ctx, ".", Program)
	}
	folder, address := m.DataFolder(), freeAddress(ctx)
	args := []string{"--dev", "--listen", address, "--data-dir", folder}
	if url != "" {
		args = append(args, "--database", url)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	p := m.start(ctx, address, "/readyz", cmd)
	p.Dev, p.Prefix = readDev(folder), "dev/"
	p.Token, p.registryToken = p.Dev.Token, p.Dev.RegistryToken
	return p
}

// StartDistribution starts the registry "distribution" with the settings in its example configuration: the filesystem
// driver, and a cache in memory.
func (m *Measurement) StartDistribution(ctx context.Context) *Process {
	program := m.Build(ctx, "tools/distribution", "github.com/distribution/distribution/v3/cmd/registry")
	folder, address := m.DataFolder(), freeAddress(ctx)
	config := fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {cache: {blobdescriptor: inmemory}, filesystem: {rootdirectory: %q}, delete: {enabled: true}}
http: {addr: %q}
`, folder, address)
	path := filepath.Join(folder, "config.yml")
	Check(os.WriteFile(path, []byte(config), 0o600))
	cmd := exec.CommandContext(ctx, program, "serve", path)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	return m.start(ctx, address, "/v2/", cmd)
}

// Memory returns the value of a line in /proc/PID/status, in bytes. VmRSS is the memory of the process, and VmHWM is
// its peak.
func (p *Process) Memory(line string) float64 {
	text := Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid)))
	for l := range strings.Lines(string(text)) {
		var kilobytes float64
		if n, _ := fmt.Sscanf(l, line+": %f kB", &kilobytes); n == 1 {
			return kilobytes * 1024
		}
	}
	panic(failure{fmt.Errorf("no %s in the status of the process", line)})
}

// ResetPeak sets VmHWM, the peak, to VmRSS, the current memory, and returns VmRSS.
func (p *Process) ResetPeak() float64 {
	Check(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Cmd.Process.Pid), []byte("5"), 0))
	return p.Memory("VmRSS")
}

// clockTick is the unit of processor time in /proc.
const clockTick = time.Second / 100

// ProcessorTime returns the processor time that the process has used.
func (p *Process) ProcessorTime() time.Duration {
	text := Must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid)))
	const user, system = 11, 12 // indexes of the fields after the program's name, which is in parentheses
	values := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	ticks := Must(strconv.Atoi(values[user])) + Must(strconv.Atoi(values[system]))
	return time.Duration(ticks) * clockTick
}

// Dial returns a gRPC connection to a server. It is closed when the measurement ends.
func (m *Measurement) Dial(address string) *grpc.ClientConn {
	host := strings.TrimPrefix(address, "http://")
	conn := Must(grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials())))
	m.AtEnd(conn.Close)
	return conn
}

const (
	// Program is the package path of the server program.
	Program = "github.com/holdfast-dev/holdfast/cmd/holdfastd"

	// startLimit is the longest time that a server may take to become ready.
	startLimit = 30 * time.Second
)
