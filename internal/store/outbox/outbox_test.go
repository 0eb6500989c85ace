package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb/eventtest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestPromises contains a test for each promise in the comments of this package.
func TestPromises(t *testing.T) {
	for name, f := range map[string]func(*testing.T, *iamtest.Store){
		"events are found backwards, by group and by time":  eventsBackwards,
		"a tail leaves nothing out, whoever writes":         tailOfMany,
		"a tail skips what nobody wants to see":             tailThatSkips,
		"events since a position include those in its gaps": sinceWithGaps,
	} {
		t.Run(name, func(t *testing.T) { iamtest.Each(t, f) })
	}
}

// writeAndFail records an event in a transaction whose commit the database refuses.
func writeAndFail(ctx context.Context, s *iamtest.Store, group resource.UID) error {
	return s.Write(ctx, func(t *store.Tx) error {
		if err := t.Emit(ctx, resource.GroupUpdated, group, group, nil, nil); err != nil {
			return err
		}
		return t.Later(ctx, `INSERT INTO counters (kind, grp, shard, n, children) VALUES (NULL, 1, 1, 1, 1)`)
	})
}

// An openEvent is an event in a transaction that has not ended.
type openEvent struct{ tx *sql.Tx }

// begin begins a transaction that will record an event. The transaction already has its id.
func begin(t *testing.T, db *sql.DB) *openEvent {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	testkit.Must(t, err)
	_, err = tx.ExecContext(t.Context(), `SELECT pg_current_xact_id()`)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return &openEvent{tx}
}

// record adds the event to the outbox, which gives it a number.
func (o *openEvent) record(t *testing.T, id string) {
	t.Helper()
	_, err := o.tx.ExecContext(t.Context(), `
		INSERT INTO outbox (id, type, subject, grp, actor, at_ms, before_json, after_json)
			VALUES ($1, 'x.v1', 'x', '/', '{}', 0, '', '')`, id)
	testkit.Must(t, err)
}

// end commits the transaction, or rolls it back.
func (o *openEvent) end(t *testing.T, commit bool) {
	t.Helper()
	end := o.tx.Rollback
	if commit {
		end = o.tx.Commit
	}
	testkit.Must(t, end())
}

func eventsBackwards(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	org, other := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "other")
	var folders []resource.UID
	for n := range 10 {
		now = iamtest.Epoch.Add(time.Duration(n+1) * time.Minute)
		folders = append(folders, iamtest.AddGroup(t, s.IAMStore, org.UID, fmt.Sprint("f", n)).UID)
	}
	all := dbtest.Events(t, s.DB)
	last := all[len(all)-1].Seq
	look := func(group resource.UID, before int64, n, reach int) (subjects []resource.UID, stopped int64) {
		t.Helper()
		got, stopped, err := outbox.ReadBack(t.Context(), s.DB, group, before, n, reach)
		testkit.Must(t, err)
		for _, e := range got {
			subjects = append(subjects, e.Subject)
		}
		return subjects, stopped
	}
	got, stopped := look("", last+1, 2, 100)
	if !slices.Equal(got, []resource.UID{folders[9], folders[8]}) || stopped != last-1 {
		t.Errorf("the newest two: %v, stopped at %d", got, stopped)
	}
	if got, _ = look(other.UID, last+1, 100, 100); !slices.Equal(got, []resource.UID{other.UID}) {
		t.Errorf("of another group: %v", got)
	}
	if got, stopped = look(other.UID, last+1, 100, 3); len(got) != 0 || stopped != last-2 {
		t.Errorf("within reach: %v, stopped at %d", got, stopped)
	}
	if got, stopped = look("", all[0].Seq, 100, 100); len(got) != 0 || stopped != 0 {
		t.Errorf("before the first: %v, stopped at %d", got, stopped)
	}
	for at, want := range map[time.Duration]int64{-time.Hour: all[0].Seq, 0: all[0].Seq, time.Minute: all[2].Seq,
		90 * time.Second: all[3].Seq, time.Hour: last + 1} {
		if n, err := outbox.NumberAt(t.Context(), s.DB, iamtest.Epoch.Add(at)); err != nil || n != want {
			t.Errorf("at %s: number %d, want %d (%v)", at, n, want, err)
		}
	}
}

// sinceWithGaps checks that an event counts as later than a position if its transaction was committed later, even if it
// has a lower number. Positions in another history of the database, and positions whose events are removed, are lost.
func sinceWithGaps(t *testing.T, s *iamtest.Store) {
	insert := func(seq int64, group resource.UID) {
		t.Helper()
		overriding := ""
		if s.DB.Engine.Postgres {
			overriding = "OVERRIDING SYSTEM VALUE"
		}
		_, err := s.Exec(t.Context(), `
			INSERT INTO outbox (seq, id, type, subject, grp, actor, at_ms, before_json, after_json) `+overriding+`
			VALUES ($1, $2, 'x.v1', $3, $3, '{}', 0, '', '')`, seq, fmt.Sprint("event ", seq), string(group))
		testkit.Must(t, err)
	}
	since := func(p outbox.Position, group resource.UID, n int) (seqs []int64, total int, err error) {
		events, total, err := outbox.Since(t.Context(), s.DB, group, p, n, func(e resource.Event) bool { return e.Seq != 14 })
		for _, e := range events {
			seqs = append(seqs, e.Seq)
		}
		return seqs, total, err
	}
	const group, below, other = "a", "a/b", "ab"
	empty, err := outbox.Now(t.Context(), s.DB)
	testkit.Must(t, err)
	insert(10, group)
	insert(12, below)
	before, err := outbox.Now(t.Context(), s.DB)
	testkit.Must(t, err)
	if want := (outbox.Position{Seq: 12, ID: "event 12", Gaps: []int64{11}}); !cmp.Equal(before, want) {
		t.Errorf("position %+v, want %+v", before, want)
	}
	for seq, group := range map[int64]resource.UID{11: below, 13: group, 14: group, 15: other, 16: below} {
		insert(seq, group)
	}
	seqs, total, err := since(before, group, 2)
	if err != nil || !slices.Equal(seqs, []int64{11, 13}) || total != 3 {
		t.Errorf("two of the events since: %v of %d (%v), want [11 13] of 3", seqs, total, err)
	}
	for name, p := range map[string]outbox.Position{
		"another history":       {Seq: 12, ID: "event of another history"},
		"a removed event":       {Seq: 9, ID: "event 9"},
		"no event, but now one": empty,
	} {
		if _, _, err := since(p, group, 2); !errors.Is(err, outbox.ErrPositionLost) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

// tailOfMany checks that a tail returns every event in order while many writers commit and fail.
func tailOfMany(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	tail, err := outbox.NewTail(t.Context(), s.DB, 0)
	testkit.Must(t, err)
	const writers, each = 8, 25
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range each {
				g := iamtest.NewGroup(org.UID, fmt.Sprintf("%d.%d", w, n))
				if _, err := s.InsertGroup(t.Context(), g); err != nil {
					t.Error(err)
				}
				if err := writeAndFail(t.Context(), s, org.UID); err == nil {
					t.Error("a write that fails went through")
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	var got []int64
	deadline := time.Now().Add(90 * time.Second)
	for over := false; !over || len(got) < writers*each+1; {
		select {
		case <-done:
			over = true
		default:
		}
		all, err := tail.Next(t.Context(), 17)
		testkit.Must(t, err)
		for _, e := range all {
			got = append(got, e.Seq)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events after 30 s", len(got))
		}
	}
	var want []int64
	for _, e := range dbtest.Events(t, s.DB) {
		want = append(want, e.Seq)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// tailThatSkips checks that Skip passes over events, but not over an event that
// the caller wants to see.
func tailThatSkips(t *testing.T, s *iamtest.Store) {
	tail, err := outbox.NewTail(t.Context(), s.DB, 0)
	testkit.Must(t, err)
	settle(t, tail)
	skip := func(n, want int, wantWhole bool) {
		t.Helper()
		got, whole, err := tail.Skip(t.Context(), n, resource.SubscriptionCreated)
		if err != nil || got != want || whole != wantWhole {
			t.Errorf("skipped %d, whole: %v, want %d, %v (%v)", got, whole, want, wantWhole, err)
		}
	}
	skip(10, 0, true)
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
	iamtest.AddGroup(t, s.IAMStore, org.UID, "b")
	skip(2, 2, true)
	skip(10, 1, true)
	iamtest.AddGroup(t, s.IAMStore, org.UID, "c")
	v := eventtest.AddSubscription(t, eventdb.New(s.DB), org.UID)
	skip(1, 1, true)
	skip(10, 0, false)
	all, err := tail.Next(t.Context(), 10)
	if err != nil || len(all) != 1 || all[0].Subject != v.UID {
		t.Errorf("after what was skipped: %v, %v", all, err)
	}
}

// settle waits until every transaction that was running when the tail began has ended,
// including the transactions of other tests on the same server.
func settle(t *testing.T, tail *outbox.Tail) {
	t.Helper()
	for settled := false; !settled; {
		var err error
		settled, err = tail.Complete(t.Context())
		testkit.Must(t, err)
	}
}

// wantNext reads until the tail returns events, and checks their ids.
func wantNext(t *testing.T, tail *outbox.Tail, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(90 * time.Second); len(got) < len(want) && time.Now().Before(deadline); {
		all, err := tail.Next(t.Context(), 100)
		testkit.Must(t, err)
		for _, e := range all {
			got = append(got, e.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
}

// wantNothing checks that several calls of a tail's Next return no event.
func wantNothing(t *testing.T, tail *outbox.Tail) {
	t.Helper()
	for range 20 {
		if all, err := tail.Next(t.Context(), 100); err != nil || len(all) > 0 {
			t.Fatalf("events = %v, %v", all, err)
		}
	}
}

// TestTailOfPostgres checks that a tail skips no event if transactions end in another order than
// they began.
func TestTailOfPostgres(t *testing.T) {
	url := dbtest.Postgres(t)
	s := iamtest.Open(t, url)
	db, err := sql.Open("pgx", url)
	testkit.Must(t, err)
	t.Cleanup(func() { db.Close() })
	tail, err := outbox.NewTail(t.Context(), s.DB, 0)
	testkit.Must(t, err)
	t.Run("a later number first", func(t *testing.T) {
		settle(t, tail)
		early, late := begin(t, db), begin(t, db)
		early.record(t, "a")
		late.record(t, "b")
		late.end(t, true)
		if n, whole, err := tail.Skip(t.Context(), 100, "x"); n != 0 || whole || err != nil {
			t.Errorf("skipped %d, whole: %v, %v", n, whole, err)
		}
		wantNothing(t, tail)
		early.end(t, true)
		wantNext(t, tail, "a", "b")
	})
	t.Run("a later number of an earlier transaction first", func(t *testing.T) {
		first, second := begin(t, db), begin(t, db)
		second.record(t, "a")
		first.record(t, "b")
		first.end(t, true) // the second transaction is still running
		wantNothing(t, tail)
		second.end(t, true)
		wantNext(t, tail, "a", "b")
	})
	t.Run("a number that never comes", func(t *testing.T) {
		early, late := begin(t, db), begin(t, db)
		early.record(t, "a")
		late.record(t, "b")
		late.end(t, true)
		wantNothing(t, tail)
		early.end(t, false)
		wantNext(t, tail, "b")
	})
	t.Run("one after another", func(t *testing.T) {
		one, two, three := begin(t, db), begin(t, db), begin(t, db)
		one.record(t, "a")
		two.record(t, "b")
		three.record(t, "c")
		three.end(t, true)
		wantNothing(t, tail)
		one.end(t, true)
		wantNext(t, tail, "a")
		wantNothing(t, tail)
		two.end(t, true)
		wantNext(t, tail, "b", "c")
	})
	t.Run("a tail that begins late", func(t *testing.T) {
		early, late := begin(t, db), begin(t, db)
		early.record(t, "a")
		late.record(t, "b")
		late.end(t, true)
		last, err := outbox.Last(t.Context(), s.DB)
		testkit.Must(t, err)
		begun, err := outbox.NewTail(t.Context(), s.DB, last)
		testkit.Must(t, err)
		if settled, err := begun.Complete(t.Context()); err != nil || settled {
			t.Errorf("settled: %v, %v", settled, err)
		}
		early.end(t, true)
		for settled := false; !settled; {
			settled, err = begun.Complete(t.Context())
			testkit.Must(t, err)
		}
		if got, err := outbox.Read(t.Context(), s.DB, last-2, 10); err != nil || len(got) != 2 {
			t.Errorf("%d events up to there, want 2 (%v)", len(got), err)
		}
	})
}

// TestOfRequest checks that OfRequest returns the events of a request in one
// organization only.
func TestOfRequest(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		ctx := resource.WithActor(t.Context(), resource.Actor{RequestID: "r-1"})
		org, err := s.InsertGroup(ctx, iamtest.NewGroup("", "org"))
		testkit.Must(t, err)
		_, err = s.InsertGroup(ctx, iamtest.NewGroup(org.UID, "folder"))
		testkit.Must(t, err)
		rival, err := s.InsertGroup(ctx, iamtest.NewGroup("", "rival"))
		testkit.Must(t, err)
		iamtest.AddGroup(t, s.IAMStore, org.UID, "by nobody")
		for name, tt := range map[string]struct {
			request string
			org     resource.UID
			n, want int
		}{
			"of an organization": {"r-1", org.UID, 10, 2}, "one of them": {"r-1", org.UID, 1, 1}, "of another": {"r-1",
				rival.UID, 10, 1},
			"of no request": {"", org.UID, 10, 0}, "of one that did nothing": {"r-2", org.UID, 10,
				0}, "of the beginning of one": {"r-", org.UID, 10, 0},
		} {
			if got, err := outbox.OfRequest(t.Context(), s.DB, tt.request, tt.org, tt.n); err != nil || len(got) != tt.want {
				t.Errorf("%s: %d events, %v, want %d", name, len(got), err, tt.want)
			}
		}
	})
}
