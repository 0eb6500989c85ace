package report_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
)

// An office has the parts of a server that send reports, with a clock that the test moves.
type office struct {
	*storetest.Store
	reports *report.Service
	mailer  *report.Mailer
	other   *report.Mailer // mailer of another replica
	key     secret.Key
	org     resource.UID
	folder  resource.UID
	owner   authz.Caller
	binding resource.RoleBinding
	silent  map[resource.UID]bool // people without an e-mail address

	mu  sync.Mutex
	now time.Time
}

func newOffice(t *testing.T, s *storetest.Store) *office {
	t.Helper()
	o := &office{Store: s, key: secret.NewKey(), silent: map[resource.UID]bool{},
		now: time.Now().UTC().Truncate(time.Millisecond)}
	s.Now = func() time.Time { o.mu.Lock(); defer o.mu.Unlock(); return o.now }
	quiet := slog.New(slog.DiscardHandler)
	testkit.Must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
	checker, err := authz.Load(t.Context(), s.DB, quiet)
	testkit.Must(t, err)
	issuer, err := token.New(t.Context(), s.DB, token.Config{Issuer: "http://issuer.test", Key: o.key})
	testkit.Must(t, err)
	tokens := page.NewTokens([]byte("key"), time.Now)
	images := assembly.New(s.DB, checker, issuer, blob.NewFolder(t.TempDir()), assembly.Config{}).Metadata(tokens)
	people := iam.New(s.DB, checker, tokens, iam.Config{Key: o.key})
	queries := query.NewService(s.FindingStore, s.RegistryStore, s.AdvisoryStore, images, checker, tokens,
		finding.NewLimiter(s.DB))
	o.reports = report.NewService(queries, s.FindingStore, images, people, checker, tokens)
	queue := mail.New(s.DB, mail.Config{Key: o.key, Issuer: "https://holdfast.example.com", Log: quiet})
	address := func(_ context.Context, _ *store.Tx, person resource.UID) (string, error) {
		if o.silent[person] {
			return "", nil
		}
		return string(person[:8]) + "@example.test", nil
	}
	o.mailer, o.other = o.reports.NewMailer(queue, address, quiet), o.reports.NewMailer(queue, address, quiet)
	o.org = iamtest.AddGroup(t, s.IAMStore, "", "acme").UID
	o.folder = iamtest.AddGroup(t, s.IAMStore, o.org, "folder").UID
	o.owner = authz.Caller{
		Identity: resource.NewRoot(),
		Act:      &resource.Upstream{Issuer: "https://issuer.example", Subject: "owner"}, // as after a sign-in
	}
	iamtest.AddBinding(t, s.IAMStore, o.org, resource.NewRoot(), resource.OwnerRole)
	o.binding = iamtest.AddBinding(t, s.IAMStore, o.org, o.owner.Identity, resource.OwnerRole)
	return o
}

func (o *office) move(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = o.now.Add(d)
}

// subscribe subscribes a caller to the report of a group.
func (o *office) subscribe(t *testing.T, c authz.Caller, group resource.UID) error {
	t.Helper()
	return testkit.Ignore(o.reports.Subscribe(authz.WithCaller(t.Context(), c), group))
}

// work runs both replicas at the same time until no report is due, and returns the number of messages that are queued
// then.
func (o *office) work(t *testing.T) (queued int) {
	t.Helper()
	var all sync.WaitGroup
	for _, m := range []*report.Mailer{o.mailer, o.other} {
		all.Go(func() {
			for {
				found, err := m.SendNext(t.Context())
				if err != nil {
					t.Error(err)
				}
				if !found {
					return
				}
			}
		})
	}
	all.Wait()
	testkit.Must(t, o.Row(t.Context(), `SELECT count(*) FROM mails`, nil, &queued))
	return queued
}

// texts returns the queued messages.
func (o *office) texts(t *testing.T) (all []string) {
	t.Helper()
	sealed, err := store.ReadColumn[[]byte](t.Context(), o.Rows, `SELECT sealed FROM mails ORDER BY create_ms`)
	testkit.Must(t, err)
	for _, s := range sealed {
		plain, err := o.key.Open(secret.ForMail, s)
		testkit.Must(t, err)
		var m struct{ To, Subject, Text string }
		testkit.Must(t, json.Unmarshal(plain, &m))
		all = append(all, m.To+"\n"+m.Subject+"\n"+m.Text)
	}
	return all
}

// only returns the only subscription of a caller.
func (o *office) only(t *testing.T, c authz.Caller) report.Subscription {
	t.Helper()
	found, err := o.reports.Subscriptions(authz.WithCaller(t.Context(), c))
	if err != nil || len(found) != 1 {
		t.Fatalf("the subscriptions are %v, %v, want 1", found, err)
	}
	return found[0]
}

// TestMailedOnce checks that each weekly report is queued once by two replicas, also after a process was killed while
// it made the report, and that a report without knowledge says so.
func TestMailedOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		o := newOffice(t, s)
		want := func(n int) {
			t.Helper()
			if got := o.work(t); got != n {
				t.Fatalf("%d messages are queued, want %d", got, n)
			}
		}
		want(0)
		testkit.Must(t, o.subscribe(t, o.owner, o.org))
		testkit.Must(t, o.subscribe(t, o.owner, o.org))
		want(1)
		want(1)
		text := o.texts(t)[0]
		for _, part := range []string{"Findings of acme: nothing is known", "0 images with tags", "unknown, not 0",
			"holdfast findings report unsubscribe " + string(o.org), string(o.owner.Identity[:8]) + "@example.test"} {
			if !strings.Contains(text, part) {
				t.Errorf("the message has no %q:\n%s", part, text)
			}
		}
		if strings.Contains(text, "open        ") {
			t.Errorf("the message has numbers, although nothing is known:\n%s", text)
		}
		o.move(vuln.ReportEvery - time.Hour)
		want(1)
		o.move(2 * time.Hour)
		want(2)
		if v := o.only(t, o.owner); v.Problem != "" || v.LastTime.IsZero() || v.Path != "acme" ||
			!v.NextTime.Equal(v.CreateTime.Add(2*vuln.ReportEvery)) {
			t.Errorf("the subscription is %+v", v)
		}
		o.move(3 * vuln.ReportEvery) // nobody sent the reports of three weeks; only one is sent now
		_, ok, err := s.ClaimReport(t.Context(), s.Time(), s.Time().Add(time.Minute), "")
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		want(2) // the claim of the killed process holds
		o.move(time.Minute)
		want(3)
	})
}

// TestMailedOnlyWithAccess checks that a person who lost access gets nothing, and gets reports again with new access.
func TestMailedOnlyWithAccess(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		o := newOffice(t, s)
		testkit.Must(t, o.subscribe(t, o.owner, o.folder))
		testkit.Must(t, s.DeleteBinding(t.Context(), o.binding.UID))
		if n := o.work(t); n != 0 {
			t.Fatalf("%d messages are queued for a person without access: %s", n, o.texts(t))
		}
		if v := o.only(t, o.owner); !strings.Contains(v.Problem, "may not") || !v.LastTime.IsZero() || v.Path != "" {
			t.Errorf("the subscription is %+v", v)
		}
		iamtest.AddBinding(t, s.IAMStore, o.org, o.owner.Identity, resource.OwnerRole)
		o.move(vuln.ReportEvery)
		if n := o.work(t); n != 1 {
			t.Fatalf("%d messages are queued, want 1", n)
		}
		o.silent[o.owner.Identity] = true
		o.move(vuln.ReportEvery)
		if v := o.only(t, o.owner); o.work(t) != 1 || v.Problem != "" {
			t.Errorf("a message was queued for a person without an address")
		}
		if v := o.only(t, o.owner); !strings.Contains(v.Problem, "no e-mail address") {
			t.Errorf("the subscription is %+v", v)
		}
		testkit.Must(t, s.DeleteGroup(t.Context(), o.folder, ""))
		if found, err := o.reports.Subscriptions(authz.WithCaller(t.Context(), o.owner)); err != nil || len(found) != 0 {
			t.Errorf("after the group was deleted, the subscriptions are %v, %v", found, err)
		}
	})
}

// TestSubscriptionAccess checks who may subscribe, and the limits.
func TestSubscriptionAccess(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		o := newOffice(t, s)
		all := resource.NewCapabilities(resource.RepoList, resource.ReportsList, resource.AdvisoriesList)
		narrowed, scoped, assumed := o.owner, o.owner, o.owner
		narrowed.Caps, scoped.Scopes = &all, []resource.UID{o.org}
		assumed.Act = &resource.Upstream{Subject: "x", Act: &resource.Upstream{Subject: "y"}}
		workload := authz.Caller{Identity: iamtest.AddIdentity(t, s.IAMStore, o.org, "ci").UID}
		iamtest.AddBinding(t, s.IAMStore, o.org, workload.Identity, resource.OwnerRole)
		rival := iamtest.AddGroup(t, s.IAMStore, "", "rival").UID
		for name, c := range map[string]authz.Caller{
			"a narrowed token": narrowed, "a token for one group": scoped, "an assumed identity": assumed,
			"a workload": workload, "a stranger": {Identity: resource.NewRoot()},
		} {
			if err := o.subscribe(t, c, o.org); !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%s subscribes: %v, want PermissionDenied", name, err)
			}
		}
		if err := o.subscribe(t, o.owner, rival); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("a subscription in another organization: %v, want PermissionDenied", err)
		}
		if err := o.subscribe(t, o.owner, o.org.NewChild()); !errors.Is(err, fault.NotFound) {
			t.Errorf("a subscription to a group that does not exist: %v, want NotFound", err)
		}
		owner := authz.WithCaller(t.Context(), o.owner)
		if err := o.reports.Unsubscribe(owner, o.org); !errors.Is(err, fault.NotFound) {
			t.Errorf("the end of a subscription that does not exist: %v, want NotFound", err)
		}
		for i := range vuln.MaxReportSubscriptions + 1 {
			group := iamtest.AddGroup(t, s.IAMStore, o.folder, string(rune('a'+i))).UID
			err := o.subscribe(t, o.owner, group)
			full := i == vuln.MaxReportSubscriptions
			if full && !errors.Is(err, fault.FailedPrecondition) || !full && err != nil {
				t.Errorf("subscription %d: %v", i, err)
			}
		}
		// More than the limit for messages of a day are not dropped, but sent later.
		if n := o.work(t); n != mail.MaxReports {
			t.Errorf("%d messages are queued, want %d", n, mail.MaxReports)
		}
		o.move(25 * time.Hour)
		if n := o.work(t); n != 2*mail.MaxReports {
			t.Errorf("a day later, %d messages are queued, want %d", n, 2*mail.MaxReports)
		}
	})
}
