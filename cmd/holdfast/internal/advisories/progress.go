package advisories

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
)

// A progress shows how far long work is: a line on a terminal that is written
// over and over, and nothing anywhere else.
type progress struct {
	console *output.Console
	live    bool // standard error is a terminal
	total   int64
	start   time.Time
	shown   time.Time
	records int64
	dirty   bool // the line is there
}

const (
	progressWidth = 24
	progressEvery = 100 * time.Millisecond
)

func newProgress(c *output.Console, total int64) *progress {
	return &progress{console: c, live: output.IsTerminal(c.Err), total: total, start: time.Now()}
}

// show tells that so many bytes, and records in them, are done.
func (p *progress) show(bytes, records int64) {
	p.records = records
	if !p.live || time.Since(p.shown) < progressEvery && bytes < p.total {
		return
	}
	p.shown, p.dirty = time.Now(), true
	fmt.Fprintf(p.console.Err, "\r\x1b[K%s", progressLine(bytes, p.total, records, time.Since(p.start)))
}

// progressLine is a bar, the number of records, their rate and the time left.
func progressLine(bytes, total, records int64, took time.Duration) string {
	part := 1.0
	if total > 0 {
		part = min(1, float64(bytes)/float64(total))
	}
	full := int(part * progressWidth)
	left := "?"
	if part > 0 {
		left = time.Duration(float64(took) * (1 - part) / part).Round(time.Second).String()
	}
	return fmt.Sprintf("[%s%s] %3.0f%%  %d records, %s/s, %s left", strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full),
		part*100, records, perSecond(records, took), left)
}

func perSecond(n int64, took time.Duration) string {
	if took <= 0 {
		return "0"
	}
	return fmt.Sprintf("%.0f", float64(n)/took.Seconds())
}

// clear takes the line away.
func (p *progress) clear() {
	if p.dirty {
		fmt.Fprint(p.console.Err, "\r\x1b[K")
		p.dirty = false
	}
}

func (p *progress) took() time.Duration { return time.Since(p.start).Round(time.Millisecond) }

func (p *progress) rate() string { return perSecond(p.records, time.Since(p.start)) }
