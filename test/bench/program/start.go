// Package program measures holdfastd in a process of its own: compared with other programs, compared with an earlier
// version, and during a backup.
package program

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	startTries = 3
	restAfter  = 3 * time.Second
)

// Starts measures the program in dev mode with an empty data folder: the time until it is ready, and its memory when
// it is idle. Dev mode uses SQLite.
func Starts(ctx context.Context, m *rig.Measurement) {
	if m.Engine.Name() != "sqlite" {
		return
	}
	var ready []time.Duration
	var resident []float64
	for range startTries {
		p := m.StartHoldfastd(ctx, "", "")
		time.Sleep(restAfter)
		ready, resident = append(ready, p.Ready), append(resident, p.Memory("VmRSS"))
		rig.Check(p.Stop())
	}
	m.Below("dev mode: ready after", rig.Median(ready).Seconds(), 1, rig.Seconds)
	m.Below("dev mode: resident at rest", rig.Median(resident), 60e6, rig.Megabytes)
}
