package main

import (
	"context"
	"errors"
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
func starts(ctx context.Context, b *bench, e engine, r *report) error {
	if e.name() != "sqlite" {
		return nil
	}
	var ready []time.Duration
	var resident []float64
	for range startTries {
		p, err := b.holdfastd(ctx, "", "")
		if err != nil {
			return err
		}
		time.Sleep(restAfter)
		bytes, err := p.memory("VmRSS")
		if err := errors.Join(err, p.stop()); err != nil {
			return err
		}
		ready, resident = append(ready, p.ready), append(resident, bytes)
	}
	r.under("dev mode: ready after", median(ready).Seconds(), 1, seconds)
	r.under("dev mode: resident at rest", median(resident), 60e6, megabytes)
	return nil
}
