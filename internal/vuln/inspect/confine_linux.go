package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// self is this program, even if its file was replaced by a newer version since.
func self() string { return "/proc/self/exe" }

// confinedStarts are ways to start a child, the best first: in namespaces of its own, in
// which it has no network and is nobody; and without, where the system does not let
// users have namespaces. What confine does holds in both.
//
// It has none of process numbers: threads would have other numbers than in /proc, where
// Landlock's library looks for them. Signals for others are denied by a filter instead.
func confinedStarts() []*syscall.SysProcAttr {
	const nobody = 65534
	return []*syscall.SysProcAttr{{
		Pdeathsig:   syscall.SIGKILL,
		Setpgid:     true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}},
	}, {
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true,
	}}
}

// widen has a pipe hold as much as a frame, so that fewer changes of process are needed.
func widen(pipe *os.File) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) // it helps, and is not needed
	})
}

// openMemory returns a function that returns how many bytes of memory this process had at
// most. What is known of an ended process is of no use: it includes the memory of the one
// that it was forked from.
func openMemory() func() int64 {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return func() int64 { return 0 }
	}
	return func() int64 {
		text := make([]byte, 4096)
		n, _ := status.ReadAt(text, 0) // io.EOF
		_, rest, _ := strings.Cut(string(text[:n]), "VmHWM:")
		kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		bytes, _ := strconv.ParseInt(kilobytes, 10, 64)
		return bytes << 10
	}
}

// runtimeBytes is the memory that a Go program has before it does anything, and what it
// maps ahead of its need: arenas are mapped in pieces of 64 MiB.
const runtimeBytes = 192 << 20

// confine takes from this process what it does not need to read an image. Landlock takes
// all files but those in folder, if the kernel has it; seccomp takes the network, other
// programs and other processes.
func confine(l Limits, folder string) error {
	yield()
	closeInherited()
	// The first process to be ended when memory is short.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	limits := map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: 64,
		unix.RLIMIT_FSIZE:  uint64(l.FileBytes) + 1<<20, // a database may add to its file
		unix.RLIMIT_CPU:    uint64(l.Seconds),
		unix.RLIMIT_DATA:   uint64(l.MemoryBytes) + runtimeBytes,
	}
	if raceDetector { // it maps terabytes
		delete(limits, unix.RLIMIT_DATA)
	}
	for resource, value := range limits {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("limit resource %d: %w", resource, err)
		}
	}
	if err := landlock.V5.BestEffort().RestrictPaths(landlock.RWDirs(folder)); err != nil {
		return fmt.Errorf("restrict to a folder: %w", err)
	}
	return denySystemCalls()
}

// yield lets the server go first.
func yield() {
	threads, _ := filepath.Glob("/proc/self/task/*") // the pattern is valid
	for _, t := range threads {
		if id, err := strconv.Atoi(filepath.Base(t)); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, 10) // it helps, and is not needed
		}
	}
}

// closeInherited closes files that the server got from who started it. What Go has opened
// in this process is marked to be closed when another program starts.
func closeInherited() {
	files, _ := filepath.Glob("/proc/self/fd/*") // the pattern is valid
	for _, f := range files {
		fd, err := strconv.Atoi(filepath.Base(f))
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// deniedCalls are system calls that reach out of this process: to the network, to other
// programs and processes, and to parts of the kernel that are seldom used. What is not
// named here is allowed, because what a new version of Go needs is not known.
var deniedCalls = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT,
	unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_IO_URING_SETUP,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_USERFAULTFD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_PRLIMIT64, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO,
	unix.SYS_RT_TGSIGQUEUEINFO,
}

// Places in struct seccomp_data: the number of a system call, the machine, and the lower
// half of the first argument, on machines with the lower half first.
const (
	dataNumber   = 0
	dataMachine  = 4
	dataArgument = 16
)

// x32 is the bit in the numbers of system calls of another calling convention on amd64,
// which nothing here uses.
const x32 = 0x40000000

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// denySystemCalls has the kernel answer EPERM to deniedCalls, to signals for others and to
// new namespaces, in all threads.
func denySystemCalls() error {
	machine := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if machine == 0 {
		return nil
	}
	deny := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	unknown := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataMachine, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: machine, SkipTrue: 1},
		deny,
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		deny,
	}
	// What clone3 is asked for cannot be seen here. Without it, C's library starts threads
	// with clone.
	program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, unknown)
	for _, number := range deniedCalls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1}, deny)
	}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	program = append(program,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_TGKILL, SkipTrue: 3},
		bpf.LoadAbsolute{Off: dataArgument, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(os.Getpid()), SkipTrue: 4},
		deny,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE, SkipTrue: 2},
		bpf.LoadAbsolute{Off: dataArgument, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipTrue: 1},
		allow,
		deny,
	)
	return installFilter(program)
}

// installFilter installs a filter of system calls in all threads of this process.
func installFilter(program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	var filter []unix.SockFilter
	for _, i := range raw {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	runtime.LockOSThread() // the thread may install a filter because it can get no privileges
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("have no new privileges: %w", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})))
	if errno != 0 {
		return fmt.Errorf("deny system calls: %w", errno)
	}
	return nil
}
