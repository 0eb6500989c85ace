package main

import (
	"context"
	"time"
)

const (
	program    = "github.com/holdfast-dev/holdfast/cmd/holdfastd"
	startTries = 3
	startLimit = 30 * time.Second
	restAfter  = 3 * time.Second
)

// starts measures the program in dev mode on an empty folder: how soon it is ready, and
// how much memory it uses when idle. Dev mode uses SQLite.
func starts(ctx context.Context, m *measurement) {
	if m.engine.name() != "sqlite" {
		return
	}
	var ready []time.Duration
	var resident []float64
	for range startTries {
		p := m.holdfastd(ctx, "", "")
		time.Sleep(restAfter)
		ready, resident = append(ready, p.ready), append(resident, p.memory("VmRSS"))
		check(p.stop())
	}
	m.under("dev mode: ready after", median(ready).Seconds(), 1, seconds)
	m.under("dev mode: resident at rest", median(resident), 60e6, megabytes)
}
