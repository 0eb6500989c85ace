// Package denials records refused requests: in the log of the server, and in the audit log of the organization that
// it concerns.
//
// Strangers cause refusals, as many as they like. So equal ones are counted: the first is written within a second, and
// those that follow it within a window are written as one entry, with their number. What a recorder keeps and writes
// is limited for each organization; what exceeds the limit is counted with less detail, but it is counted. Nothing is
// written during a request, so its time does not depend on whether there is anything to write about.
package denials

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	window  = 15 * time.Minute
	pause   = time.Second // between writes
	details = 100         // entries of an organization with all details, and as many without the network
)

// A Refusal is something that was refused.
type Refusal struct {
	Type    resource.EventType
	Group   resource.UID // whose audit log has it; "" if only the server's log does
	Subject resource.UID // what it is about; "" is the group
	resource.Activity
	RequestID string
	Hidden    string // the address if the organization must not know it; only the server's log has it
}

// A key is what refusals that are counted together have in common.
type key struct {
	kind                         resource.EventType
	group, subject, identity     resource.UID
	method, reason, lacks, place string
	hidden                       bool // otherwise a hidden one would hide those that follow
}

// A tally counts equal refusals.
type tally struct {
	Refusal
	since   time.Time // the window begins with the first refusal
	written bool      // in this window
	pending int64     // refusals that are not written yet
}

// A Recorder counts and writes refusals. It is safe for concurrent use.
type Recorder struct {
	db  *store.DB
	log *slog.Logger

	mu      sync.Mutex
	tallies map[resource.UID]map[key]*tally // by organization; those of no organization are under ""
}

// New returns a recorder. It writes only while Run runs.
func New(db *store.DB, log *slog.Logger) *Recorder {
	return &Recorder{db: db, log: log, tallies: map[resource.UID]map[key]*tally{}}
}

// Add counts a refusal. It neither waits nor fails.
func (r *Recorder) Add(v Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.db.Time()
	v.Count, v.First, v.Last = 0, now, now
	t := r.tally(v, now)
	if t.pending == 0 {
		t.First = now
	}
	t.pending++
	t.Last = now
}

// tally returns what a refusal is counted with: others like it or, if the organization has too many different ones,
// those from all networks or, if there are too many of these, too, all that is left.
func (r *Recorder) tally(v Refusal, now time.Time) *tally {
	all := r.tallies[v.Group.Root()]
	if all == nil {
		all = map[key]*tally{}
		r.tallies[v.Group.Root()] = all
	}
	merged := v
	merged.Address, merged.Agent, merged.Hidden, merged.RequestID = "", "", "", ""
	rest := Refusal{Type: v.Type, Group: v.Group.Root()}
	rest.Reason = resource.RefusedSeveral
	for i, v := range []Refusal{v, merged, rest} {
		k := keyOf(v)
		if t := all[k]; t != nil {
			return t
		}
		if len(all) < (i+1)*details || i == 2 {
			all[k] = &tally{Refusal: v, since: now}
			return all[k]
		}
	}
	panic("unreachable")
}

func keyOf(v Refusal) key {
	return key{
		v.Type, v.Group, v.Subject, v.Identity, v.Method, v.Reason, v.Capability, resource.NetworkOf(v.Address + v.Hidden),
		v.Hidden != "",
	}
}

// Run writes refusals until ctx ends, and then those that are left.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.Flush(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
			r.write(ctx, r.due(false))
		}
	}
}

// Flush writes all refusals that are counted and not yet written.
func (r *Recorder) Flush(ctx context.Context) { r.write(ctx, r.due(true)) }

// due returns what is to be written: the first refusals of a window, and the rest when it is over. It forgets what
// was written. In the end, all is due.
func (r *Recorder) due(all bool) (due []*tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.db.Time()
	for org, tallies := range r.tallies {
		for k, t := range tallies {
			over := now.Sub(t.since) >= window
			switch {
			case t.pending > 0 && (!t.written || over || all):
				taken := *t
				taken.Count = t.pending
				due = append(due, &taken)
				t.pending, t.written = 0, true
				if over {
					t.since = now // what was counted last begins the next window
				}
			case over:
				delete(tallies, k)
			}
		}
		if len(tallies) == 0 {
			delete(r.tallies, org)
		}
	}
	return due
}

// write writes tallies to the audit log and to the server's. Those that cannot be written are counted again.
func (r *Recorder) write(ctx context.Context, due []*tally) {
	if len(due) == 0 {
		return
	}
	err := r.db.Write(ctx, func(tx *store.Tx) error {
		var rows [][]any
		for _, t := range due {
			if t.Group == "" {
				continue
			}
			ctx := resource.WithActor(ctx, resource.Actor{
				Subject: t.Identity, Remote: t.Address, RequestID: t.RequestID,
			})
			subject := t.Subject
			if subject == "" {
				subject = t.Group
			}
			row, err := tx.Event(ctx, t.Type, subject, t.Group, nil, t.Activity)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		if len(rows) == 0 {
			return nil
		}
		return tx.EmitAll(ctx, rows)
	})
	if err != nil {
		r.log.WarnContext(ctx, "refusals were not recorded; they are counted and tried again", "err", err)
		r.restore(due)
		return
	}
	for _, t := range due {
		r.line(ctx, t)
	}
}

// restore counts again what could not be written.
func (r *Recorder) restore(due []*tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, old := range due {
		t := r.tally(old.Refusal, old.since)
		t.pending += old.Count
		t.written = false
		if old.First.Before(t.First) {
			t.First = old.First
		}
	}
}

// line logs a tally.
func (r *Recorder) line(ctx context.Context, t *tally) {
	text := "sign-in refused"
	if t.Type == resource.RegistryRefused {
		text = "registry access refused"
	}
	attrs := []slog.Attr{slog.String("reason", t.Reason), slog.Int64("count", t.Count)}
	for _, a := range []struct{ name, value string }{
		{"method", t.Method}, {"capability", t.Capability}, {"subject", string(t.Subject)},
		{"group", string(t.Group)}, {"identity", string(t.Identity)}, {"provider", string(t.Provider)},
		{"address", t.Address + t.Hidden}, {"request", t.RequestID},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.name, a.value))
		}
	}
	r.log.LogAttrs(ctx, slog.LevelInfo, text, attrs...)
}
