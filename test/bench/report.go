package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// A report is the table of one engine, with notes.
type report struct {
	title string
	rows  []row
	notes []string
}

// A row is one measurement. It may have no target.
type row struct {
	what, measured, baseline, ratio, target string
	missed                                  bool
}

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// add adds a row, without its target if there is none.
func (r *report) add(hasTarget bool, x row) {
	if !hasTarget {
		x.target, x.missed = "", false
	}
	r.rows = append(r.rows, x)
}

// slower reports a time as a multiple of the baseline. most is the target; 0 means none.
func (r *report) slower(what string, p pair, most float64) {
	target := fmt.Sprintf("≤ %.3g ×", most)
	r.add(most > 0, row{what, brief(p.a), brief(p.b), times(p.ratio), target, p.ratio > most})
}

// faster reports a rate as a multiple of the baseline. least is the target; 0 means none.
func (r *report) faster(what string, p rates, least float64) {
	target := fmt.Sprintf("≥ %.3g ×", least)
	r.add(least > 0, row{what, perSecond(p.a), perSecond(p.b), times(p.ratio), target, p.ratio < least})
}

// longer reports how much longer than the baseline something takes. most is the target; 0
// means none.
func (r *report) longer(what string, p pair, most time.Duration) {
	r.add(most > 0, row{what, brief(p.a), brief(p.b), "+" + brief(p.a-p.b), "≤ +" + brief(most), p.a-p.b > most})
}

// under reports a figure that has to be below a limit; 0 means none.
func (r *report) under(what string, measured, limit float64, show func(float64) string) {
	r.add(limit > 0, row{what: what, measured: show(measured), target: "< " + show(limit), missed: measured >= limit})
}

// over reports a rate that has to reach a limit; 0 means none.
func (r *report) over(what string, measured, limit float64) {
	target := "≥ " + perSecond(limit)
	r.add(limit > 0, row{what: what, measured: perSecond(measured), target: target, missed: measured < limit})
}

// none reports an average count that has to be zero. Other goroutines may add a few.
func (r *report) none(what string, measured float64) {
	r.add(true, row{what: what, measured: fmt.Sprintf("%.2g", measured), target: "0", missed: measured > 0.01})
}

// exactly reports a count that has to be want.
func (r *report) exactly(what string, measured, want int64) {
	r.add(true, row{what: what, measured: fmt.Sprint(measured), target: fmt.Sprint(want), missed: measured != want})
}

func (r *report) missed() (n int) {
	for _, x := range r.rows {
		if x.missed {
			n++
		}
	}
	return n
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n\n", r.title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tmeasured\tbaseline\tratio\ttarget\t")
	for _, x := range r.rows {
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
	for _, n := range r.notes {
		fmt.Fprintf(out, "\n%s\n", n)
	}
}

// brief formats a duration with three digits.
func brief(d time.Duration) string {
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

func seconds(s float64) string   { return brief(time.Duration(s * float64(time.Second))) }
func megabytes(n float64) string { return fmt.Sprintf("%.0f MB", n/1e6) }
func perSecond(n float64) string { return fmt.Sprintf("%.0f/s", n) }
func times(n float64) string     { return fmt.Sprintf("%.2f", n) }
