package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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

	"github.com/holdfast-dev/holdfast/inspect"
)

// probe writes what a confined process may do.
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
	_, err = net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it must not work
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
			runtime.LockOSThread() // the thread ends with the goroutine, so that each needs its own
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
	fmt.Println("variables:", slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }))

	interfaces, err := net.Interfaces()
	try("see interfaces", errors.Join(err, map[bool]error{true: os.ErrNotExist}[len(interfaces) == 0]))
}

// TestConfined names all that is left to a process that reads images.
func TestConfined(t *testing.T) {
	t.Setenv("HOLDFAST_DATABASE", "postgres://secret")
	inherited, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // as one that who starts the server leaves open
	must(err)
	defer func() { must(unix.Close(inherited)) }()
	said, err := inspect.RunProbe(t.Context(), t.TempDir())
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	want := "can: write its folder\ncan: signal itself\ncan: start threads\nfiles: []\nvariables: []\n"
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCanceled sees the child end when nobody waits for its answer any more.
func TestCanceled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	blocked := layers(nil)
	blocked[0].Open = func(ctx context.Context) (io.ReadCloser, error) {
		time.AfterFunc(50*time.Millisecond, cancel)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := inspect.Image(ctx, blocked, inspect.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	left, err := os.ReadDir(os.TempDir())
	if len(left) > 0 || err != nil {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}
