package program

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	rowsPerAdvisory = 8      // approximate number of rows, including rows for its names and its event
	blobBytesPerRow = 10_000 // 10 GB of blobs for a million rows
	backedUpBlob    = 16 << 20
	backupRounds    = 3
)

// Backups measures the command holdfastd backup in a process of its own while a server runs. It compares the backup
// with a plain copy of the files that the backup writes. It also measures how much the backup slows down clients of
// the server.
func Backups(ctx context.Context, m *rig.Measurement) {
	url := rig.EmptyDatabase(ctx, m.Engine, "backup")
	p := m.StartHoldfastd(ctx, "", url)
	rig.SendArchive(ctx, m.Dial(p.Address), p.Dev, m.Archive(m.Bench.Rows/rowsPerAdvisory))
	total := m.Bench.Rows * blobBytesPerRow
	for i := range max(total/backedUpBlob, 1) {
		content := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)})
		sum := sha256.New()
		body := io.TeeReader(io.LimitReader(content, backedUpBlob), sum)
		rig.Check(p.PushBlob(ctx, "backed-up", body, func() string { return fmt.Sprintf("sha256:%x", sum.Sum(nil)) }))
	}
	var saved, copied []time.Duration
	var peak float64
	var during []time.Duration
	before := latencies(ctx, m, p, func() { time.Sleep(2 * time.Second) })
	for range backupRounds {
		to := m.DataFolder()
		during = append(during, latencies(ctx, m, p, func() {
			begin := time.Now()
			peak = max(peak, backup(ctx, p, url, to))
			saved = append(saved, time.Since(begin))
		})...)
		begin, second := time.Now(), m.DataFolder()
		rig.Check(copyFolder(to, second))
		copied = append(copied, time.Since(begin))
		rig.Check(errors.Join(os.RemoveAll(to), os.RemoveAll(second)))
	}
	m.Slower(fmt.Sprintf("backup: %d MB of blobs, against a copy of the result", total/1e6),
		rig.NewPair(rig.Median(saved), rig.Median(copied)), 1/0.7)
	m.Below("backup: memory of its process at most", peak, 500e6, rig.Megabytes)
	m.Slower("backup: 99 of 100 reads of clients meanwhile, against before",
		rig.NewPair(rig.Quantile(during, 0.99), rig.Quantile(before, 0.99)), 1.5)
}

// backup runs the command holdfastd backup with the settings of the server, and returns the command's peak memory in
// bytes.
func backup(ctx context.Context, p *rig.Process, url, to string) float64 {
	folder := p.Cmd.Args[slices.Index(p.Cmd.Args, "--data-dir")+1]
	cmd := exec.CommandContext(ctx, p.Cmd.Path, "backup", to, "--data-dir", folder, "--database", url)
	if out, err := cmd.CombinedOutput(); err != nil {
		rig.Check(fmt.Errorf("back up: %w\n%s", err, out))
	}
	return float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) * 1024
}

// latencies lets a few clients read a group while f runs, and returns the durations of the reads.
func latencies(ctx context.Context, m *rig.Measurement, p *rig.Process, f func()) (times []time.Duration) {
	const readers = 4
	done := make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make(chan error, readers)
	for range readers {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond): // the pause makes the load moderate
				}
				begin := time.Now()
				_, _, err := p.Do(ctx, http.StatusOK, http.MethodGet, "/iam/v2beta1/groups/"+string(p.Dev.Organization), nil)
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				times = append(times, time.Since(begin))
				mu.Unlock()
			}
		})
	}
	f()
	close(done)
	wg.Wait()
	close(errs)
	rig.Check(errors.Join(<-errs))
	return times
}

// copyFolder copies the files in a folder, one after the other, and syncs each copy to disk.
func copyFolder(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }() // the file was only read
		out, err := os.Create(filepath.Join(to, name))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Sync(), out.Close())
	})
}
