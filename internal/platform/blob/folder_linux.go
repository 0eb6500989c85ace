package blob

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginWriting asks the kernel to begin writing a range of a file to disk. Only the sync at the end makes it durable.
func beginWriting(f *os.File, offset, n int64) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.SyncFileRange(int(fd), offset, n, unix.SYNC_FILE_RANGE_WRITE)
	})
}
