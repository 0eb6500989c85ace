package inspect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// probe tries operations, and prints those that a confined process may do.
func probe() {
	try := func(what string, err error) {
		if err == nil {
			fmt.Println("can:", what)
		}
	}
	_, err := os.ReadFile("/etc/passwd")
	try("read a file", err)
	_, err = os.ReadDir("/")
	try("list a folder", err)
	try("write its folder", os.WriteFile(filepath.Join(os.TempDir(), "x"), nil, 0o600))
	try("write another folder", os.WriteFile("/var/tmp/holdfast-probe", nil, 0o600))
	_, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	try("listen", err)
	_, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	try("open a socket", err)
	_, err = os.StartProcess("/proc/self/exe", []string{"x"}, &os.ProcAttr{})
	try("start a program", err)
	try("signal its parent", syscall.Kill(os.Getppid(), 0))
	try("signal its parent, as a thread", unix.Tgkill(os.Getppid(), os.Getppid(), 0))
	try("signal itself", unix.Tgkill(os.Getpid(), os.Getpid(), 0))
	var started sync.WaitGroup
	for range 20 {
		started.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine, so that each goroutine needs a new thread
			time.Sleep(time.Millisecond)
		})
	}
	started.Wait()
	fmt.Println("can: start threads")
	try("get privileges", unix.Unshare(unix.CLONE_NEWUSER))
	try("trace", unix.PtraceAttach(os.Getppid()))
	var files []int
	for fd := 3; fd < 100; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			files = append(files, fd)
		}
	}
	fmt.Println("files:", files)
	fmt.Println("variables:", slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v,
			"TMPDIR=")
	}))

	interfaces, err := net.Interfaces()
	try("see interfaces", errors.Join(err, map[bool]error{true: os.ErrNotExist}[len(interfaces) == 0]))
}

// TestConfined checks which operations a process that reads images may do, with namespaces and without them.
func TestConfined(t *testing.T) {
	t.Setenv("HOLDFAST_DATABASE", "postgres://secret")
	inherited, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // like a file that the server inherited
	must(err)
	defer func() { must(unix.Close(inherited)) }()
	want := "can: write its folder\ncan: signal itself\ncan: start threads\nfiles: []\nvariables: []\n"
	for worse, name := range []string{"in namespaces", "without"} {
		t.Run(name, func(t *testing.T) {
			said, err := inspect.RunProbe(t.Context(), t.TempDir(), worse)
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if diff := cmp.Diff(want, said); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// orphaned is the parent process in TestOrphan. It waits for a child that runs an endless query in a database.
func orphaned() {
	ctx := context.Background()
	image := layers(archive(file{name: "var/lib/rpm/rpmdb.sqlite", content: endlessSqlite(ctx, os.TempDir())}), nil)
	// Open is called when the child has received all of the first layer.
	image[1].Open = func(context.Context) (io.ReadCloser, error) {
		time.AfterFunc(300*time.Millisecond, func() { fmt.Println("waiting") })
		return io.NopCloser(strings.NewReader("")), nil
	}
	_, err := inspect.Image(ctx, image, inspect.Limits{})
	fmt.Println(err)
}

// TestOrphan checks that the child ends when its parent is killed.
func TestOrphan(t *testing.T) {
	parent := exec.CommandContext(t.Context(), "/proc/self/exe")
	parent.Args = []string{orphanName}
	parent.Env = []string{"TMPDIR=" + t.TempDir()}
	out, err := parent.StdoutPipe()
	must(err)
	must(parent.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "waiting\n" {
		t.Fatalf("%q, %v", line, err)
	}
	var children []byte
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent.Process.Pid))
	must(err)
	for _, f := range threads {
		later, err := os.ReadFile(f)
		must(err)
		children = append(children, later...)
	}
	pids := strings.Fields(string(children))
	if len(pids) == 0 {
		t.Fatal("there is no child")
	}
	must(parent.Process.Kill())
	_ = parent.Wait() // always returns an error, because the process was killed
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		command, _ := os.ReadFile("/proc/" + pids[0] + "/cmdline") // empty or missing after the child has ended
		if len(command) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the child still runs: %q", command)
		}
	}
}

// TestCanceled checks that the child ends when the context ends, both while it waits for a layer and while it reads a
// layer. The error must be context.Canceled and not NotUnderstood, because the image is not the cause.
func TestCanceled(t *testing.T) {
	waits := layers(nil)
	waits[0].Open = func(ctx context.Context) (io.ReadCloser, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, image := range map[string][]inspect.Layer{
		"while it waits": waits,
		"while it reads": layers(archive(file{name: "var/lib/rpm/rpmdb.sqlite", content: endlessSqlite(t.Context(),
			t.TempDir())})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, err := inspect.Image(ctx, image, inspect.Limits{}); !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v, want %v", err, context.Canceled)
			}
			left, err := os.ReadDir(os.TempDir())
			if len(left) > 0 || err != nil {
				t.Errorf("left in the temporary folder: %v, %v", left, err)
			}
		})
	}
}
