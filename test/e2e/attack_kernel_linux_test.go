package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// withoutLandlock is the variable with the path of a program that this program starts without Landlock.
const withoutLandlock = "HOLDFAST_TEST_WITHOUT_LANDLOCK"

// init replaces this process by another program, for which the kernel has no Landlock. A filter returns ENOSYS for
// the first system call of Landlock, as an old kernel does.
func init() {
	program := os.Getenv(withoutLandlock)
	if program == "" {
		return
	}
	const (
		landlockCreateRuleset = 444
		setNoNewPrivileges    = 38
		setSeccomp            = 22
		filterMode            = 2
		allow                 = 0x7fff0000
		fail                  = 0x00050000
	)
	runtime.LockOSThread()
	filter := []syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS},
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 1, K: landlockCreateRuleset},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: fail | uint32(syscall.ENOSYS)},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: allow},
	}
	list := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, err := syscall.Syscall6(syscall.SYS_PRCTL, setNoNewPrivileges, 1, 0, 0, 0, 0)
	if err == 0 {
		_, _, err = syscall.Syscall(syscall.SYS_PRCTL, setSeccomp, filterMode, uintptr(unsafe.Pointer(&list)))
	}
	if err == 0 {
		_ = os.Unsetenv(withoutLandlock) // fails only for an invalid name
		args := append([]string{program}, os.Args[1:]...)
		err, _ = syscall.Exec(program, args, os.Environ()).(syscall.Errno)
	}
	fmt.Fprintln(os.Stderr, "start a program without Landlock:", err)
	os.Exit(1)
}

// holdfastdOn returns a command that runs holdfastd with or without Landlock, and with inspection.
func holdfastdOn(t *testing.T, landlock bool, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	program := testprogram.Holdfastd(t)
	env = append([]string{
		"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_BASE_URL=" + procBase, "HOLDFAST_DATA_DIR=" + dir,
	}, env...)
	if !landlock {
		env = append(env, withoutLandlock+"="+program)
		program = ok[string](t)(os.Executable())
	}
	// A cleanup of procRun ends the process, so the command must not end with the test's context.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	cmd.Env = env
	return cmd
}

// kernelCheck returns the state of the check of the kernel by the doctor command, or "" if there is none.
func kernelCheck(t *testing.T, landlock bool, dir string, env ...string) string {
	t.Helper()
	out, _ := holdfastdOn(t, landlock, dir, env, "doctor", "--json").Output() // fails because no server runs
	var checks []struct{ Check, State string }
	if err := json.Unmarshal(out, &checks); err != nil {
		t.Fatalf("doctor: %v in %s", err, out)
	}
	for _, c := range checks {
		if c.Check == "kernel" {
			return c.State
		}
	}
	return ""
}

// TestAttackKernelWithoutLandlock starts servers on a kernel without Landlock, which cannot keep the process that reads
// hostile images away from files. The server and the doctor must say so. If the operator requires Landlock, the server
// must not start. On a kernel with Landlock, and without inspection, the requirement changes nothing.
func TestAttackKernelWithoutLandlock(t *testing.T) {
	t.Parallel()
	const required, disabled, warning = "HOLDFAST_REQUIRE_LANDLOCK=true", "HOLDFAST_INSPECT_WORKERS=-1",
		"this kernel does not have Landlock"
	for name, tt := range map[string]struct {
		landlock bool
		env      []string
		check    string // state of the check of doctor
		starts   bool
		warns    bool
	}{
		"with Landlock":                       {true, nil, "ok", true, false},
		"with Landlock, which is required":    {true, []string{required}, "ok", true, false},
		"without Landlock":                    {false, nil, "warning", true, true},
		"without Landlock, which is required": {false, []string{required}, "failure", false, false},
		"without inspection":                  {false, []string{required, disabled}, "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := procRun(t, holdfastdOn(t, tt.landlock, dir, tt.env, "--dev"))
			if tt.starts {
				p.waitReady()
			}
			if !tt.starts {
				<-p.ended
				if text := strings.Join(p.lines, "\n"); p.err == nil || !strings.Contains(text, "require_landlock is set") {
					t.Errorf("the server ended with %v:\n%s", p.err, text)
				}
			}
			if p.logged(warning) != "" && !tt.warns && tt.starts || p.logged(warning) == "" && tt.warns {
				t.Errorf("a warning is logged: %t, want %t", !tt.warns, tt.warns)
			}
			if tt.starts && !strings.Contains(name, "inspection") {
				p.inspects(t)
			}
			if got := kernelCheck(t, tt.landlock, dir, tt.env...); got != tt.check {
				t.Errorf("doctor: %q, want %q", got, tt.check)
			}
		})
	}
}

// inspects checks that the server can inspect an image.
func (p *proc) inspects(t *testing.T) {
	t.Helper()
	w := &brokenGallery{contents: map[string]map[string]int{}}
	if err := w.push("v1")(p); err != nil {
		t.Fatal(err)
	}
	w.survey(t, p)
}
