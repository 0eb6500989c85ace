package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// self returns the path of this program. It works even if a newer version has replaced the file.
func self() string { return "/proc/self/exe" }

// confinedStarts returns two ways to start a child, the better one first. The first uses new namespaces, in which the
// child has no network and is the user nobody. The second uses no namespaces, for systems on which users may not create
// them. The restrictions of confine apply in both cases.
//
// There is no PID namespace, because in such a namespace the numbers of threads would differ from the numbers in /proc,
// where the Landlock library looks for threads. Instead, a filter denies signals to other processes.
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

// widen enlarges the buffer of a pipe to more than a frame, so that fewer context switches are needed.
func widen(pipe *os.File) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		// A failure is harmless, because this is only an optimization.
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20)
	})
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// processorOf returns the processor time of another process, or 0 if the process has ended.
func processorOf(pid int) time.Duration {
	const schedClock = 2 // the clock of a process has its number, inverted, above three bits for the kind
	var used unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|schedClock), &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// openMemory returns a function that returns the peak memory of this process in bytes. The child measures it itself,
// because the usage that the system reports for an ended process includes the memory of the process that forked it.
func openMemory() func() int64 {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return func() int64 { return 0 }
	}
	return func() int64 {
		text := make([]byte, 4096)
		n, _ := status.ReadAt(text, 0) // returns io.EOF, because the file is shorter than text
		_, rest, _ := strings.Cut(string(text[:n]), "VmHWM:")
		kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		bytes, _ := strconv.ParseInt(kilobytes, 10, 64)
		return bytes << 10
	}
}

// runtimeBytes is the memory of a Go program at its start, plus the memory that it maps in advance: arenas are mapped
// in pieces of 64 MiB.
const runtimeBytes = 192 << 20

// Landlock reports whether the kernel has Landlock and allows this process to use it.
func Landlock() bool {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version > 0
}

// confine removes all rights of this process that it does not need to read an image. Landlock denies access to all
// files outside folder, if the kernel supports it. Seccomp denies access to the network, to other programs and to other
// processes.
func confine(l Limits, folder string) error {
	closeInherited()
	// The kernel kills this process first if memory is short.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	limits := map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: 64,
		unix.RLIMIT_FSIZE:  uint64(l.FileBytes) + 1<<20, // room for data that a library adds to a database file
		unix.RLIMIT_CPU:    uint64(l.Seconds),
		unix.RLIMIT_DATA:   uint64(l.MemoryBytes) + runtimeBytes,
	}
	if raceDetector { // the race detector needs terabytes of address space
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

// yield lowers the priority of all threads of a process. If idle is true, they get the lowest priority for processors
// and disks: the kernel runs them only when nothing else needs the processor. Threads that the process starts later
// inherit the priority, and the process cannot raise it. A thread that has the old priority may start another one, so
// the threads are listed until all have the new one.
func yield(pid int, idle bool) {
	want := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: 10}
	if idle {
		want.Policy, want.Nice = unix.SCHED_IDLE, 19
	}
	for range 100 { // a bound in case that the system denies the change
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // cannot fail, because the pattern is valid
		changed := false
		for _, t := range threads {
			id, err := strconv.Atoi(filepath.Base(t))
			if err != nil {
				continue
			}
			current, err := unix.SchedGetAttr(id, 0)
			if err != nil || current.Policy == want.Policy && (idle || current.Nice == want.Nice) {
				continue
			}
			// Failures are harmless, because the limits of a child hold at any priority.
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, int(want.Nice))
			_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(id), ioprioIdle)
			changed = unix.SchedSetAttr(id, &want, 0) == nil || changed
		}
		if !changed {
			return
		}
	}
}

// runnable reports whether a thread of a process runs or waits for a processor.
func runnable(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // cannot fail, because the pattern is valid
	for _, t := range threads {
		text, _ := os.ReadFile(t) // fails if the thread has ended
		if i := strings.LastIndexByte(string(text), ')'); i >= 0 && strings.HasPrefix(string(text[i:]), ") R") {
			return true
		}
	}
	return false
}

// Arguments of ioprio_set: the kind of the second argument, and the class idle.
const (
	ioprioProcess = 1
	ioprioIdle    = 3 << 13
)

// closeInherited closes files that the server inherited from its own parent. It keeps files with the flag
// close-on-exec, because these are the files that Go has opened in this process.
func closeInherited() {
	files, _ := filepath.Glob("/proc/self/fd/*") // cannot fail, because the pattern is valid
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

// deniedCalls are system calls that give access to the network, to other programs and processes, and to rarely used
// parts of the kernel. All other system calls are allowed, because a new version of Go may need more of them.
var deniedCalls = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT,
	unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_IO_URING_SETUP,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_SETNS,
	unix.SYS_UNSHARE,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_USERFAULTFD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_PRLIMIT64, unix.SYS_SETRLIMIT,
	unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO,
	unix.SYS_RT_TGSIGQUEUEINFO,
}

// Offsets in struct seccomp_data: the number of the system call, the machine, and the lower half of the first argument
// on little-endian machines.
const (
	dataNumber   = 0
	dataMachine  = 4
	dataArgument = 16
)

// x32 is the bit that marks system calls of the x32 calling convention on amd64, which this program does not use.
const x32 = 0x40000000

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// denySystemCalls installs a filter in all threads. With it, the kernel returns EPERM for deniedCalls, for signals to
// other processes, and for new namespaces. On machines other than amd64 and arm64 it does nothing.
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
	// A filter cannot see the arguments of clone3. If clone3 does not exist, the C library starts threads with clone.
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

// installFilter installs a filter for system calls in all threads of this process.
func installFilter(program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	var filter []unix.SockFilter
	for _, i := range raw {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	runtime.LockOSThread() // only a thread that has set PR_SET_NO_NEW_PRIVS may install a filter
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})))
	if errno != 0 {
		return fmt.Errorf("deny system calls: %w", errno)
	}
	return nil
}
