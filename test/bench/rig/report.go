package rig

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// A Report is the table of measurements on one engine, with notes.
type Report struct {
	Title string
	Rows  []Row
	Notes []string
}

// A Row is one measurement in the table. It may have no target.
type Row struct {
	what, measured, baseline, ratio, target string
	missed                                  bool
}

// Note adds a sentence that is printed below the table.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// add adds a row to the table. If hasTarget is false, the row has no target and cannot miss one.
func (r *Report) add(hasTarget bool, x Row) {
	if !hasTarget {
		x.target, x.missed = "", false
	}
	r.Rows = append(r.Rows, x)
}

// Slower reports a duration as a multiple of the baseline. most is the largest allowed ratio; 0 means no target.
func (r *Report) Slower(what string, p Pair, most float64) {
	target := fmt.Sprintf("≤ %.3g ×", most)
	r.add(most > 0, Row{what, FormatDuration(p.A), FormatDuration(p.B), Times(p.Ratio), target, p.Ratio > most})
}

// Faster reports a rate as a multiple of the baseline. least is the smallest allowed ratio; 0 means no target.
func (r *Report) Faster(what string, p Rates, least float64) {
	target := fmt.Sprintf("≥ %.3g ×", least)
	r.add(least > 0, Row{what, PerSecond(p.A), PerSecond(p.B), Times(p.Ratio), target, p.Ratio < least})
}

// Longer reports by how much an operation takes longer than its baseline. most is the largest allowed difference; 0
// means no target.
func (r *Report) Longer(what string, p Pair, most time.Duration) {
	r.add(most > 0,
		Row{
			what, FormatDuration(p.A), FormatDuration(p.B), "+" + FormatDuration(p.A-p.B), "≤ +" + FormatDuration(most),
			p.A-p.B > most,
		})
}

// Below reports a number that must be below a limit; 0 means no target.
func (r *Report) Below(what string, measured, limit float64, show func(float64) string) {
	r.add(limit > 0, Row{what: what, measured: show(measured), target: "< " + show(limit), missed: measured >= limit})
}

// AtLeast reports a rate that must reach a limit; 0 means no target.
func (r *Report) AtLeast(what string, measured, limit float64) {
	target := "≥ " + PerSecond(limit)
	r.add(limit > 0, Row{what: what, measured: PerSecond(measured), target: target, missed: measured < limit})
}

// Zero reports an average count that must be zero. A count up to 0.01 is accepted, because other goroutines may
// contribute to it.
func (r *Report) Zero(what string, measured float64) {
	r.add(true, Row{what: what, measured: fmt.Sprintf("%.2g", measured), target: "0", missed: measured > 0.01})
}

// Exactly reports a count that must be equal to want.
func (r *Report) Exactly(what string, measured, want int64) {
	r.add(true, Row{what: what, measured: fmt.Sprint(measured), target: fmt.Sprint(want), missed: measured != want})
}

// Missed returns the number of rows that miss their targets.
func (r *Report) Missed() (n int) {
	for _, x := range r.Rows {
		if x.missed {
			n++
		}
	}
	return n
}

// Print writes the table and the notes.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n\n", r.Title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tmeasured\tbaseline\tratio\ttarget\t")
	for _, x := range r.Rows {
		verdict := ""
		if x.target != "" {
			verdict = "ok"
		}
		if x.missed {
			verdict = "MISS"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", x.what, x.measured, x.baseline, x.ratio, x.target, verdict)
	}
	_ = w.Flush()
	for _, n := range r.Notes {
		fmt.Fprintf(out, "\n%s\n", n)
	}
}

// FormatDuration formats a duration with three significant digits.
func FormatDuration(d time.Duration) string {
	switch s := d.Seconds(); {
	case s >= 1 || s <= -1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3 || s <= -1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s >= 1e-6 || s <= -1e-6:
		return fmt.Sprintf("%.3g µs", s*1e6)
	default:
		return fmt.Sprintf("%.3g ns", s*1e9)
	}
}

// Seconds formats a number of seconds.
func Seconds(s float64) string { return FormatDuration(time.Duration(s * float64(time.Second))) }

// Megabytes formats a number of bytes in megabytes.
func Megabytes(n float64) string { return fmt.Sprintf("%.0f MB", n/1e6) }

// PerSecond formats a rate.
func PerSecond(n float64) string { return fmt.Sprintf("%.0f/s", n) }

// Times formats a ratio.
func Times(n float64) string { return fmt.Sprintf("%.2f", n) }
