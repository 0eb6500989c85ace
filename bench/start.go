package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	program    = "github.com/holdfast-dev/holdfast/cmd/holdfastd"
	startTries = 3
	startLimit = 30 * time.Second
	restAfter  = 3 * time.Second
)

// starts measures the program itself, in dev mode on an empty folder: how soon
// it is ready, and how much memory it has at rest. Dev mode is SQLite's.
func starts(ctx context.Context, b *bench, e engine, r *report) error {
	if e.name() != "sqlite" {
		return nil
	}
	binary, err := b.build(ctx, ".", program)
	if err != nil {
		return err
	}
	var ready []time.Duration
	var resident []float64
	for range startTries {
		took, bytes, err := startOnce(ctx, b, binary)
		if err != nil {
			return err
		}
		ready, resident = append(ready, took), append(resident, bytes)
	}
	r.under("dev mode: ready after", median(ready).Seconds(), 1, seconds)
	r.under("dev mode: resident at rest", median(resident), 60e6, megabytes)
	return nil
}

func startOnce(ctx context.Context, b *bench, binary string) (ready time.Duration, resident float64, err error) {
	folder, err := b.dataFolder()
	if err != nil {
		return 0, 0, err
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, binary, "--dev", "--data-dir", folder, "--listen", addr)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) }()
	if err := awaitReady(ctx, "http://"+addr+"/readyz"); err != nil {
		return 0, 0, err
	}
	ready = time.Since(begin)
	time.Sleep(restAfter)
	resident, err = residentBytes(cmd.Process.Pid)
	return ready, resident, err
}

func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// awaitReady asks until the answer is 200.
func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c := newClient("")
	defer c.close()
	for {
		_, _, err := c.do(ctx, http.MethodGet, url, "")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// residentBytes is the memory a process has, as Linux tells it.
func residentBytes(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "VmRSS:")
	words := strings.Fields(rest)
	if !ok || len(words) < 2 {
		return 0, errors.New("no VmRSS in the status of the process")
	}
	kb, err := strconv.ParseFloat(words[0], 64)
	return kb * 1024, err
}
