package maildb_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/maildb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestMails contains a test for each promise about messages.
func TestMails(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		s.Now = func() time.Time { return now }
		mails, org := maildb.New(s.DB), resource.NewRoot()
		add := func(id, address string, expire time.Duration) {
			t.Helper()
			testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error {
				return maildb.In(tx).Insert(t.Context(), maildb.Mail{
					ID: id, Organization: org, Address: []byte(address), Sealed: []byte("sealed " + id),
					CreateTime: now, ExpireTime: now.Add(expire),
				})
			}))
		}
		claim := func(want string, attempts int64) {
			t.Helper()
			m, ok, err := mails.Claim(t.Context(), time.Minute)
			if err != nil || ok != (want != "") || m.ID != want || ok && (string(m.Sealed) != "sealed "+want ||
				m.Organization != org || m.Attempts != attempts || !m.CreateTime.Before(now.Add(1))) {
				t.Fatalf("claimed %+v, %v, %v, want %q", m, ok, err, want)
			}
		}
		waiting := func(want int) {
			t.Helper()
			n, oldest, err := mails.Waiting(t.Context())
			if err != nil || n != want || oldest.IsZero() != (want == 0) {
				t.Fatalf("%d waiting since %v, %v, want %d", n, oldest, err, want)
			}
		}
		waiting(0)
		claim("", 0)
		add("a", "ann", time.Hour)
		claim("a", 1)
		claim("", 0) // the lease has not ended
		now = now.Add(time.Minute)
		claim("a", 2) // the lease of the first claim has ended
		testkit.Must(t, mails.Retry(t.Context(), "a", now.Add(time.Second)))
		claim("", 0)
		now = now.Add(time.Second)
		claim("a", 3)
		waiting(1)
		testkit.Must(t, mails.Finish(t.Context(), "a"))
		testkit.Must(t, mails.Retry(t.Context(), "a", now)) // no effect, because the message is finished
		waiting(0)
		claim("", 0)
		add("b", "ann", time.Minute)
		testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			got, err := maildb.In(tx).Counts(t.Context(), org, []byte("ann"), now.Add(-time.Hour))
			if want := (maildb.Counts{ByOrganization: 2, ToAddress: 2, Both: 2}); got != want {
				t.Errorf("counts %+v, want %+v", got, want)
			}
			return err
		}))
		now = now.Add(time.Minute)
		if n, err := mails.Sweep(t.Context()); err != nil || n != 1 {
			t.Errorf("%d have expired, %v, want 1", n, err)
		}
		waiting(0)
		now = now.Add(maildb.Remembered)
		_, err := mails.Sweep(t.Context())
		testkit.Must(t, err)
		var left int
		testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM mails`, nil, &left))
		if left != 0 {
			t.Errorf("%d are left", left)
		}
	})
}

// TestMailIsClaimedOnce checks that only one of many concurrent callers gets a message.
func TestMailIsClaimedOnce(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		mails := maildb.New(s.DB)
		testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			return maildb.In(tx).Insert(t.Context(), maildb.Mail{
				ID: "a", Organization: resource.NewRoot(), Address: []byte("a"), Sealed: []byte("x"),
				CreateTime: s.Time().Add(-time.Second), ExpireTime: s.Time().Add(time.Hour),
			})
		}))
		got := make([]bool, 16)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				var err error
				if _, got[i], err = mails.Claim(t.Context(), time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(slices.DeleteFunc(got, func(b bool) bool { return !b })); n != 1 {
			t.Errorf("%d got it", n)
		}
	})
}
