package blob

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginWriting asks the kernel to begin writing a range of a file to disk. The range is durable
// only after the sync at the end.
func beginWriting(f *os.File, offset, n int64) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.SyncFileRange(int(fd), offset, n, unix.SYNC_FILE_RANGE_WRITE)
	})
}
