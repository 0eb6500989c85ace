package event

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	responseRead = 2 << 10             // bytes of a response from which the excerpt is made
	responseKept = 300                 // characters of a response in the delivery log
	maxLogged    = eventdb.MaxAttempts // attempts of a subscription that wait to be stored
)

// A deliveryLog contains the attempts of a worker that are not stored yet, and the state of its sink. The worker's
// mutex guards it.
type deliveryLog struct {
	failing  resource.Failing
	attempts []eventdb.Attempt
	changed  bool // the log has changed since it was stored
	reported bool // the failures were reported
}

// add records an attempt.
func (l *deliveryLog) add(a eventdb.Attempt) {
	l.changed = true
	l.attempts = append(l.attempts, a)
	if n := len(l.attempts) - maxLogged; n > 0 {
		l.attempts = slices.Delete(l.attempts, 0, n)
	}
	switch {
	case a.Error == "":
		l.failing, l.reported = resource.Failing{}, false
	case l.failing.Failing():
		l.failing.Error = a.Error
	default:
		l.failing = resource.Failing{Since: a.Time, Error: a.Error}
	}
}

// take returns the attempts to store, and whether the failures have lasted long enough for a report.
func (l *deliveryLog) take(asOf time.Time, alarm time.Duration) (r eventdb.SinkReport, changed, report bool) {
	r = eventdb.SinkReport{Failing: l.failing, Attempts: l.attempts}
	changed, l.changed, l.attempts = l.changed, false, nil
	return r, changed, l.failing.Failing() && !l.reported && asOf.Sub(l.failing.Since) >= alarm
}

// attempt returns an attempt to deliver an event, which begins now.
func (d *Dispatcher) attempt(e resource.Event) eventdb.Attempt {
	return eventdb.Attempt{EventSeq: e.Seq, EventID: e.ID, Type: e.Type, Subject: e.Subject, Time: d.cfg.Now()}
}

// saveLogs stores the delivery logs of the workers, and reports sinks that have been failing for Config.Alarm.
func (d *Dispatcher) saveLogs(ctx context.Context) {
	reports := map[resource.UID]eventdb.SinkReport{}
	var alarms []*worker
	for uid, w := range d.workers {
		w.mu.Lock()
		r, changed, report := w.log.take(d.cfg.Now(), d.cfg.Alarm)
		w.mu.Unlock()
		if changed {
			reports[uid] = r
		}
		if report {
			alarms = append(alarms, w)
		}
	}
	if len(reports) > 0 {
		if err := d.store.SaveReports(ctx, d.history, reports); err != nil {
			d.cfg.Log.WarnContext(ctx, "save the log of deliveries", "err", err)
			d.restore(reports)
			return
		}
	}
	for _, w := range alarms {
		d.report(ctx, w)
	}
}

// restore returns attempts that could not be stored to their logs.
func (d *Dispatcher) restore(reports map[resource.UID]eventdb.SinkReport) {
	for uid, r := range reports {
		l := &d.workers[uid].log
		d.workers[uid].mu.Lock()
		l.attempts = append(r.Attempts, l.attempts...)
		l.attempts = l.attempts[max(0, len(l.attempts)-maxLogged):]
		l.changed = true
		d.workers[uid].mu.Unlock()
	}
}

// report records that a sink has been failing for long.
func (d *Dispatcher) report(ctx context.Context, w *worker) {
	err := d.store.ReportFailing(ctx, w.sub.UID, func(t *store.Tx, v resource.Subscription) error {
		if d.cfg.Failing == nil {
			return nil
		}
		return d.cfg.Failing(ctx, t, v)
	})
	if err != nil {
		d.cfg.Log.WarnContext(ctx, "report a failing sink", "subscription", w.sub.UID, "err", err)
		return
	}
	w.mu.Lock()
	w.log.reported = w.log.failing.Failing()
	w.mu.Unlock()
}

// tokens matches tokens with a signature, such as the token of a delivery that a sink returns.
var tokens = regexp.MustCompile(`[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}`)

// excerpt returns the beginning of a response on one line. Bytes that are not printable text are escaped. Tokens, and
// the values in the query of the sink's address, are replaced, because they are secrets.
func excerpt(body []byte, sink string) string {
	text := tokens.ReplaceAllString(string(body), "…")
	if u, err := url.Parse(sink); err == nil && u.RawQuery != "" {
		text = strings.ReplaceAll(text, u.RawQuery, "…")
		for _, values := range u.Query() {
			for _, v := range values {
				if len(v) >= 4 { // shorter values are not secret, and occur in other words
					text = strings.ReplaceAll(text, v, "…")
				}
			}
		}
	}
	var b strings.Builder
	n := 0
	for i, r := range text {
		if n++; n > responseKept {
			b.WriteString("…")
			break
		}
		switch {
		case r == utf8.RuneError:
			_, size := utf8.DecodeRuneInString(text[i:])
			if size == 1 {
				b.WriteString(`\x` + strconv.FormatUint(uint64(text[i])|0x100, 16)[1:])
				continue
			}
			b.WriteRune(r)
		case r == '\n', r == '\r', r == '\t':
			b.WriteByte(' ')
		case !strconv.IsPrint(r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return strings.TrimSpace(b.String())
}
