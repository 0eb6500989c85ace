// Package denials records refused requests in the log of the server, and in the audit log of the organization whose
// resource was requested.
//
// Anyone can cause any number of refusals, so equal refusals are counted. The first refusal is written within a second.
// Equal refusals that follow within a window are written as one entry with their number. The number of entries in
// memory and in the logs is limited per organization. Refusals beyond the limit are counted with less detail, but none
// is lost. Nothing is written during a request, so that the response time does not reveal whether a refusal was
// recorded.
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
	window = 15 * time.Minute
	pause  = time.Second // interval between two writes to the logs
	// details is the maximum number of entries per organization with all details. As many more have no network.
	details = 100
)

// A Refusal is a refused request.
type Refusal struct {
	Type    resource.EventType
	Group   resource.UID // the group for the audit log; "" writes only to the server's log
	Subject resource.UID // the requested resource; "" is the group
	resource.Activity
	RequestID string
	Hidden    string // client address that appears only in the server's log, because the organization must not know it
}

// A key contains the fields of a refusal. Refusals with equal keys are counted together.
type key struct {
	kind                                resource.EventType
	group, subject, identity            resource.UID
	method, reason, capability, network string
	hidden                              bool // part of the key, so that a hidden address does not replace a visible one
}

// A tally counts equal refusals.
type tally struct {
	Refusal
	since   time.Time // start of the window: the time of the first refusal
	written bool      // an entry was written in this window
	pending int64     // number of refusals that are not written yet
}

// A Recorder counts and writes refusals. It is safe for concurrent use.
type Recorder struct {
	db  *store.DB
	log *slog.Logger

	mu sync.Mutex
	// tallies contains the tallies by organization. The key "" is for refusals without an organization.
	tallies map[resource.UID]map[key]*tally
}

// New returns a recorder. It writes only while Run runs.
func New(db *store.DB, log *slog.Logger) *Recorder {
	return &Recorder{db: db, log: log, tallies: map[resource.UID]map[key]*tally{}}
}

// Add counts a refusal. It neither blocks nor fails.
func (r *Recorder) Add(v Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asOf := r.db.Time()
	v.Count, v.First, v.Last = 0, asOf, asOf
	t := r.tally(v, asOf)
	if t.pending == 0 {
		t.First = asOf
	}
	t.pending++
	t.Last = asOf
}

// tally returns the tally that counts a refusal: the tally of equal refusals. If the organization has too many
// tallies, it returns the tally of refusals that are equal except for the network. If there are too many of these as
// well, it returns one tally per event type for all remaining refusals.
func (r *Recorder) tally(v Refusal, now time.Time) *tally {
	tallies := r.tallies[v.Group.Root()]
	if tallies == nil {
		tallies = map[key]*tally{}
		r.tallies[v.Group.Root()] = tallies
	}
	merged := v
	merged.Address, merged.Agent, merged.Hidden, merged.RequestID = "", "", "", ""
	rest := Refusal{Type: v.Type, Group: v.Group.Root()}
	rest.Reason = resource.RefusedSeveral
	for i, v := range []Refusal{v, merged, rest} {
		k := keyOf(v)
		if t := tallies[k]; t != nil {
			return t
		}
		if len(tallies) < (i+1)*details || i == 2 {
			tallies[k] = &tally{Refusal: v, since: now}
			return tallies[k]
		}
	}
	panic("unreachable")
}

func keyOf(v Refusal) key {
	return key{
		v.Type, v.Group, v.Subject, v.Identity,
		v.Method, v.Reason, v.Capability, resource.NetworkOf(v.Address + v.Hidden),
		v.Hidden != "",
	}
}

// Run writes refusals until ctx ends. It then writes the refusals that remain.
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

// Flush writes all refusals that are not written yet.
func (r *Recorder) Flush(ctx context.Context) { r.write(ctx, r.due(true)) }

// due returns copies of the tallies to write: a tally that has no entry in this window yet, and a tally whose window
// has ended. If flush is set, it returns every tally with pending refusals. If a window ends without a pending refusal,
// due deletes the tally.
func (r *Recorder) due(flush bool) (due []*tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asOf := r.db.Time()
	for org, tallies := range r.tallies {
		for k, t := range tallies {
			ended := asOf.Sub(t.since) >= window
			switch {
			case t.pending > 0 && (!t.written || ended || flush):
				taken := *t
				taken.Count = t.pending
				due = append(due, &taken)
				t.pending, t.written = 0, true
				if ended {
					t.since = asOf // the next window begins
				}
			case ended:
				delete(tallies, k)
			}
		}
		if len(tallies) == 0 {
			delete(r.tallies, org)
		}
	}
	return due
}

// write writes tallies to the audit log and to the server's log. If this fails, it counts their refusals again.
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
		r.log.WarnContext(ctx, "refusals were not recorded; the server tries again", "err", err)
		r.restore(due)
		return
	}
	for _, t := range due {
		r.logTally(ctx, t)
	}
}

// restore adds the refusals in due, which could not be written, to the tallies again.
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

// logTally writes a tally to the server's log.
func (r *Recorder) logTally(ctx context.Context, t *tally) {
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
