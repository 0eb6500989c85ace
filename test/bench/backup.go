package main

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
)

const (
	rowsPerAdvisory = 8      // with the rows of its names and its event, about
	blobBytesPerRow = 10_000 // 10 GB for a million rows
	backedUpBlob    = 16 << 20
	backupRounds    = 3
)

// backups measures holdfastd backup, in a process of its own beside a server: against a
// plain copy of the files it writes, and what clients of the server notice of it.
func backups(ctx context.Context, m *measurement) {
	url := empty(ctx, m.engine, "backup")
	p := m.holdfastd(ctx, "", url)
	sendArchive(ctx, m.dial(p.address), p.dev, m.archive(m.bench.rows/rowsPerAdvisory))
	total := m.bench.rows * blobBytesPerRow
	for i := range max(total/backedUpBlob, 1) {
		content := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)})
		sum := sha256.New()
		body := io.TeeReader(io.LimitReader(content, backedUpBlob), sum)
		check(p.pushBlob(ctx, "backed-up", body, func() string { return fmt.Sprintf("sha256:%x", sum.Sum(nil)) }))
	}
	var saved, copied []time.Duration
	var peak float64
	var during []time.Duration
	before := m.latencies(ctx, p, func() { time.Sleep(2 * time.Second) })
	for range backupRounds {
		to := m.dataFolder()
		during = append(during, m.latencies(ctx, p, func() {
			begin := time.Now()
			peak = max(peak, p.backup(ctx, url, to))
			saved = append(saved, time.Since(begin))
		})...)
		begin, second := time.Now(), m.dataFolder()
		check(copyFolder(to, second))
		copied = append(copied, time.Since(begin))
		check(errors.Join(os.RemoveAll(to), os.RemoveAll(second)))
	}
	m.slower(fmt.Sprintf("backup: %d MB of blobs, against a copy of the result", total/1e6),
		newPair(median(saved), median(copied)), 1/0.7)
	m.under("backup: memory of its process at most", peak, 500e6, megabytes)
	m.slower("backup: 99 of 100 reads of clients meanwhile, against before",
		newPair(quantile(during, 0.99), quantile(before, 0.99)), 1.5)
}

// backup runs holdfastd backup with the settings of the server, and returns the most
// memory that it used.
func (p *process) backup(ctx context.Context, url, to string) float64 {
	folder := p.cmd.Args[slices.Index(p.cmd.Args, "--data-dir")+1]
	cmd := exec.CommandContext(ctx, p.cmd.Path, "backup", to, "--data-dir", folder, "--database", url)
	if out, err := cmd.CombinedOutput(); err != nil {
		check(fmt.Errorf("back up: %w\n%s", err, out))
	}
	return float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) * 1024
}

// latencies returns how long reads of a group take for a few clients while f runs.
func (m *measurement) latencies(ctx context.Context, p *process, f func()) (all []time.Duration) {
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
				case <-time.After(5 * time.Millisecond): // clients do not load the server, they use it
				}
				begin := time.Now()
				_, _, err := p.do(ctx, http.StatusOK, http.MethodGet, "/iam/v2beta1/groups/"+string(p.dev.Organization), nil)
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				all = append(all, time.Since(begin))
				mu.Unlock()
			}
		})
	}
	f()
	close(done)
	wg.Wait()
	close(errs)
	check(errors.Join(<-errs))
	return all
}

// copyFolder copies the files of a folder, one after the other, and syncs each.
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
		defer func() { _ = in.Close() }() // it was only read
		out, err := os.Create(filepath.Join(to, name))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Sync(), out.Close())
	})
}
