package assembly_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// mountSmall mounts a file system of size bytes at a folder, until the test ends.
func mountSmall(t *testing.T, folder string, size int) error {
	t.Helper()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return err
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	return nil
}
