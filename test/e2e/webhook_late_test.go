package e2e_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestWebhookCommittedLate makes two changes. The change whose event gets the lower number commits last. The
// dispatcher must not skip this event, and must deliver both.
func TestWebhookCommittedLate(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	w := serve(t, url, server.Config{}, nil)
	org := string(w.Organization)
	r := newReceiver(t, w, org)
	w.post(t, "/events/v2beta1/subscriptions/"+org, `{"sink":"`+r.URL+`"}`)
	const kind = "dev.holdfast.api.iam.group.created.v1"
	r.await(t, kind, w.child(t, org, "before"))
	begin := func(uid resource.UID) pgx.Tx {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), `INSERT INTO outbox (id, type, subject, grp, actor, at_ms, before_json, after_json) `+
			`VALUES ($1, $2, $1, $3, '{}', $4, '', $5)`,
			string(uid), string(resource.GroupCreated), org, time.Now().UnixMilli(), `{"uid":"`+string(uid)+`","name":"x"}`)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	first, second := w.Organization.NewChild(), w.Organization.NewChild()
	slow, quick := begin(first), begin(second)
	if err := quick.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := w.child(t, org, "after")
	if r.comes(kind, string(second), time.Second) {
		t.Error("the dispatcher skipped a change that is not committed")
	}
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{string(first), string(second), after} {
		r.await(t, kind, uid)
	}
}

// comes reports whether an event with this type and subject arrives within the given time.
func (r *receiver) comes(kind, subject string, within time.Duration) bool {
	late := time.After(within)
	for {
		r.mu.Lock()
		events, more := r.events, r.more
		r.mu.Unlock()
		for _, e := range events {
			if e.Type() == kind && e.Subject() == subject {
				return true
			}
		}
		select {
		case <-more:
		case <-late:
			return false
		}
	}
}
