package scim_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestTokens checks the rules about the tokens of a directory.
func TestTokens(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		uid := w.provider.UID
		if _, _, err := w.GenerateToken(w.owner, uid, scim.Life{}); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("a second token: %v", err)
		}
		_, _, err := w.RegenerateToken(w.owner, uid, scim.Life{}, nil, "z")
		if !errors.Is(err, fault.Aborted) {
			t.Errorf("another etag: %v", err)
		}
		day := 24 * time.Hour
		for name, life := range map[string]scim.Life{
			"expires and never": {Expires: w.now.Add(day), Never: true}, "in the past": {Expires: w.now},
			"after two years": {Expires: w.now.Add(2*365*day + time.Second)},
		} {
			if _, _, err := w.RegenerateToken(w.owner, uid, life, nil, "2"); !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		overlap := 48 * time.Hour // is limited to a day
		second, d, err := w.RegenerateToken(w.owner, uid, scim.Life{}, &overlap, "2")
		testkit.Must(t, err)
		if !d.PreviousExpireTime.Equal(w.now.Add(day)) || !d.ExpireTime.Equal(w.now.Add(365*day)) ||
			w.State(d) != resource.CredentialRotating {
			t.Errorf("%+v", d)
		}
		first := w.token
		check := func(when string, token string, want int) {
			t.Helper()
			if got := w.sendTo(w.Endpoint(uid), token, "GET /Users", ""); got.status != want {
				t.Errorf("%s: %d %s, want %d", when, got.status, got.text, want)
			}
		}
		check("the first token", first, 200)
		check("the second token", second, 200)
		w.now = w.now.Add(day)
		check("the first token after the overlap", first, 401)
		check("the second token after the overlap", second, 200)
		w.now = w.now.Add(366 * day)
		check("an expired token", second, 401)
		if d, err := w.Directory(w.owner, uid); err != nil || w.State(d) != resource.CredentialExpired {
			t.Errorf("%+v, %v", d, err)
		}
		none := time.Duration(0)
		third, d, err := w.RegenerateToken(w.owner, uid, scim.Life{Never: true}, &none, "3")
		testkit.Must(t, err)
		if !d.ExpireTime.IsZero() || d.PreviousDigest != nil || w.State(d) != resource.CredentialLive {
			t.Errorf("%+v", d)
		}
		check("the third token", third, 200)
		d, err = w.RevokeToken(w.owner, uid)
		if err != nil || !d.Enabled || w.State(d) != resource.CredentialRevoked {
			t.Errorf("%+v, %v", d, err)
		}
		check("a revoked token", third, 401)
		if _, _, err = w.RegenerateToken(w.owner, uid, scim.Life{}, nil, d.ETag()); !errors.Is(err, fault.NotFound) {
			t.Errorf("no token to regenerate: %v", err)
		}
		if _, _, err = w.GenerateToken(w.owner, uid, scim.Life{}); err != nil {
			t.Error(err)
		}
	})
}

// TestEnable checks under which conditions a directory can be enabled and used.
func TestEnable(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		org := iamtest.AddGroup(t, w.store.IAMStore, "", "small")
		owner := w.person("https://people.test", "single")
		iamtest.AddBinding(t, w.store.IAMStore, org.UID, owner, resource.OwnerRole)
		ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: owner, Issued: time.Now()})
		p := iamtest.AddProvider(t, w.store.IAMStore, org.UID, resource.ManagedRoleUID("viewer"), "idp")
		if _, err := w.SetEnabled(ctx, p.UID, true, "0"); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("with one owner: %v", err)
		}
		if _, err := w.SetEnabled(ctx, p.UID, true, ""); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("without an etag: %v", err)
		}
		if _, err := w.SetEnabled(ctx, w.provider.UID, false, "2"); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("another organization: %v", err)
		}
		if _, _, err := w.GenerateToken(ctx, w.provider.UID, scim.Life{}); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("another organization: %v", err)
		}
		_, err := w.SetEnabled(w.owner, w.provider.UID, false, "2")
		testkit.Must(t, err)
		if got := w.send("GET /Users", ""); got.status != http.StatusForbidden {
			t.Errorf("a directory that is not enabled: %d %s", got.status, got.text)
		}
	})
}

// TestUnknownAddress checks that nobody learns from an answer whether a provider exists.
func TestUnknownAddress(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		other, owner := w.found("other")
		p, token := w.directory(other.UID, owner)
		plain := iamtest.AddProvider(t, w.store.IAMStore, other.UID, resource.ManagedRoleUID("viewer"), "plain")
		answers := map[string]bool{}
		for name, x := range map[string][2]string{
			"another provider's token": {w.Endpoint(w.provider.UID), token}, "a wrong token": {w.Endpoint(p.UID), "x"},
			"no token": {w.Endpoint(p.UID), ""}, "no directory": {w.Endpoint(plain.UID), w.token},
			"an unknown provider": {w.Endpoint("0123456789abcdef0123456789abcdef01234567/0123456789abcdef"), w.token},
			"no uid":              {"https://here.test" + scim.Prefix + "x", w.token},
		} {
			for _, target := range []string{"GET /Users", "POST /Users", "GET /ServiceProviderConfig", "GET /nothing"} {
				got := w.sendTo(x[0], x[1], target, "")
				if answers[got.text] = true; got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s: %s: %d %s", name, target, got.status, got.text)
				}
			}
		}
		if len(answers) != 1 {
			t.Errorf("%v", answers)
		}
	})
}

// TestDeactivation checks that a deactivated person has no access from the next request on, on every replica, and gets
// it back when the directory activates them again.
func TestDeactivation(t *testing.T) {
	for how, change := range map[string]func(w *world, id string, active bool){
		"PATCH without a path": func(w *world, id string, active bool) {
			w.want(200, "PATCH /Users/"+id, fmt.Sprintf(`{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
				"Operations":[{"op":"replace","value":{"active":%v}}]}`, active))
		},
		"PATCH with texts": func(w *world, id string, active bool) {
			w.want(200, "PATCH /Users/"+id, fmt.Sprintf(`{"Operations":[{"op":"Replace","path":"active","value":%q}]}`,
				strings.ToUpper(fmt.Sprint(active)[:1])+fmt.Sprint(active)[1:]))
		},
		"PUT": func(w *world, id string, active bool) {
			w.want(200, "PUT /Users/"+id, fmt.Sprintf(`{"userName":"ben","externalId":"x-ben","active":%v}`, active))
		},
		"DELETE": func(w *world, id string, active bool) {
			if active {
				w.add("ben")
				return
			}
			w.want(204, "DELETE /Users/"+id, "")
		},
	} {
		t.Run(how, func(t *testing.T) {
			eachWorld(t, func(t *testing.T, w *world) { checkDeactivation(t, w, change) })
		})
	}
}

func checkDeactivation(t *testing.T, w *world, change func(w *world, id string, active bool)) {
	t.Helper()
	ctx := t.Context()
	id := w.add("ben")
	ben, err := w.signIn("x-ben")
	testkit.Must(t, err)
	session := iamtest.NewSession(ben.UID, "session")
	session.ExpireTime = w.store.Time().Add(time.Hour)
	testkit.Must(t, w.store.StartSession(ctx, session, []byte("digest"), session.ExpireTime))
	caller := authz.Caller{Identity: ben.UID, Issued: time.Now().Truncate(time.Second)}
	workload := authz.Caller{Identity: w.org.UID.NewChild(), Issued: caller.Issued,
		Act: &resource.Upstream{Subject: string(ben.UID)}}
	other := w.replica()
	for _, c := range []*authz.Checker{w.checker, other} {
		if _, err := c.Admit(ctx, caller); err != nil {
			t.Fatal(err)
		}
	}
	grants := w.checker.GrantsOf(ben.UID)
	change(w, id, false)
	later := caller
	later.Issued = time.Now().Add(time.Hour)
	for name, c := range map[string]*authz.Checker{"this replica": w.checker, "another replica": other} {
		for _, v := range []authz.Caller{caller, later, workload} {
			if _, err := c.Admit(ctx, v); !errors.Is(err, fault.Unauthenticated) {
				t.Errorf("%s admits %+v: %v", name, v, err)
			}
		}
	}
	if _, err := w.store.Session(ctx, "session"); !errors.Is(err, fault.NotFound) {
		t.Errorf("the session: %v", err)
	}
	session.ID = "another"
	err = w.store.StartSession(ctx, session, []byte("other"), session.ExpireTime)
	if !errors.Is(err, fault.PermissionDenied) {
		t.Errorf("a new session: %v", err)
	}
	if _, err := w.signIn("x-ben"); !errors.Is(err, fault.PermissionDenied) {
		t.Errorf("a new sign-in: %v", err)
	}
	w.checkInactive(ben.UID)
	if n := w.eventsOf(resource.IdentityDeactivated); n != 1 {
		t.Errorf("%d events say that the person was deactivated", n)
	}
	change(w, id, true)
	if again, err := w.signIn("x-ben"); err != nil || again.UID != ben.UID {
		t.Errorf("after the reactivation: %s, %v, want %s", again.UID, err, ben.UID)
	}
	later.Issued = time.Now().Add(2 * time.Second)
	for name, c := range map[string]*authz.Checker{"this replica": w.checker, "another replica": other} {
		if _, err := c.Admit(ctx, caller); !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("%s admits an old token: %v", name, err)
		}
		if _, err := c.Admit(ctx, later); err != nil {
			t.Errorf("%s refuses a new token: %v", name, err)
		}
	}
	if got := w.checker.GrantsOf(ben.UID); len(got) == 0 || len(got) != len(grants) {
		t.Errorf("grants %v, want %v", got, grants)
	}
}

// checkInactive checks that the answers about access say that the roles of a deactivated person have no effect.
func (w *world) checkInactive(person resource.UID) {
	w.t.Helper()
	pages := page.NewTokens([]byte("key"), time.Now)
	svc := iam.New(w.store.DB, w.checker, pages, iam.Config{})
	a, err := svc.CheckAccess(w.owner, person, resource.GroupsList, w.org.UID)
	if err != nil || a.Allowed || len(a.Items) > 0 {
		w.t.Errorf("CheckAccess: %+v, %v", a, err)
	}
	if m, err := svc.ExplainMissing(w.owner, person, resource.GroupsList, w.org.UID); err != nil ||
		m.Reason != iam.Deactivated {
		w.t.Errorf("the reason is %+v, %v", m, err)
	}
	holders, err := svc.ListAccess(w.owner, resource.GroupsList, w.org.UID, page.Params{})
	testkit.Must(w.t, err)
	for _, h := range holders.Items {
		if h.Deactivated != (h.Identity == person) {
			w.t.Errorf("%s is deactivated: %t", h.Identity, h.Deactivated)
		}
	}
}

// TestAnotherPerson checks that the person who was linked to a user loses access when the directory gives the user
// another externalId, or none.
func TestAnotherPerson(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		for i, operation := range []string{
			`{"op":"replace","path":"externalId","value":"somebody-else"}`, `{"op":"remove","path":"externalId"}`,
		} {
			name := fmt.Sprint("user", i)
			id := w.add(name)
			_, err := w.signIn("x-" + name)
			testkit.Must(t, err)
			w.want(200, "PATCH /Users/"+id, `{"Operations":[`+operation+`]}`)
			if _, err := w.signIn("x-" + name); !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%s: the previous person: %v", operation, err)
			}
		}
		if _, err := w.signIn("somebody-else"); err != nil {
			t.Error(err)
		}
		id, _ := w.want(201, "POST /Users", `{"userName":"late"}`).body["id"].(string)
		late, err := w.signIn("x-late") // before the directory sends the externalId
		testkit.Must(t, err)
		w.want(200, "PATCH /Users/"+id, `{"Operations":[{"op":"add","path":"externalId","value":"x-late"},
			{"op":"replace","path":"active","value":false}]}`)
		_, err = w.checker.Admit(t.Context(), authz.Caller{Identity: late.UID, Issued: time.Now()})
		if !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("a person who had signed in before: %v", err)
		}
	})
}

// TestPutKeepsWhatItForgets checks that a PUT without active or externalId neither gives nor takes access.
func TestPutKeepsWhatItForgets(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		id := w.add("ben")
		w.want(200, "PATCH /Users/"+id, `{"Operations":[{"op":"replace","path":"active","value":false}]}`)
		got := w.want(200, "PUT /Users/"+id, `{"userName":"ben","title":"x"}`)
		if got.body["active"] != false || got.body["externalId"] != "x-ben" || got.body["title"] != "x" {
			t.Errorf("%s", got.text)
		}
		if _, err := w.signIn("x-ben"); !errors.Is(err, fault.PermissionDenied) {
			t.Error(err)
		}
	})
}

// TestLastOwner checks that a directory can deactivate the last owner, that this is recorded, and that people cannot
// remove the last owner who is still active.
func TestLastOwner(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		bindings := map[string]resource.RoleBinding{}
		ids := map[string]string{}
		for _, name := range []string{"ann", "ben"} {
			ids[name] = w.add(name)
			i, err := w.signIn("x-" + name)
			testkit.Must(t, err)
			bindings[name] = iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, i.UID, resource.OwnerRole)
		}
		owners, err := w.store.OwnersOf(ctx, w.org.UID)
		testkit.Must(t, err)
		for _, owner := range owners { // only ann and ben stay
			if owner == bindings["ann"].Identity || owner == bindings["ben"].Identity {
				continue
			}
			testkit.Must(t, w.store.DeleteIdentity(ctx, owner))
		}
		off := `{"Operations":[{"op":"replace","value":{"active":false}}]}`
		w.want(200, "PATCH /Users/"+ids["ann"], off)
		if n := w.eventsOf(resource.GroupOwnerless); n != 0 {
			t.Errorf("%d events about a missing owner while there is one", n)
		}
		err = w.store.DeleteBinding(ctx, bindings["ben"].UID)
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("a person removes the last active owner: %v", err)
		}
		w.want(200, "PATCH /Users/"+ids["ben"], off)
		if n := w.eventsOf(resource.GroupOwnerless); n != 1 {
			t.Errorf("%d events about a missing owner", n)
		}
		_, err = w.checker.Admit(ctx, authz.Caller{Identity: bindings["ben"].Identity, Issued: time.Now()})
		if !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("the last owner: %v", err)
		}
	})
}

// TestRepeatedSync checks that a request without a change writes nothing.
func TestRepeatedSync(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		body := `{"userName":"ben","externalId":"x-ben","active":true,"emails":[{"value":"b@x.test","primary":true}]}`
		id, _ := w.want(201, "POST /Users", body).body["id"].(string)
		count := func() (n int) {
			testkit.Must(t, w.store.Row(t.Context(), `SELECT count(*) FROM outbox`, nil, &n))
			return n
		}
		before, events := w.want(200, "GET /Users/"+id, "").text, count()
		w.now = w.now.Add(time.Minute)
		got := w.want(200, "PUT /Users/"+id, body).text
		patched := w.want(200, "PATCH /Users/"+id, `{"Operations":[{"op":"Replace","path":"active","value":"True"}]}`).text
		if got != before || patched != before || count() != events {
			t.Errorf("%s\n%s\nbefore %s; %d events, before %d", got, patched, before, count(), events)
		}
		if n := drifts(t, w); n != "" {
			t.Error(n)
		}
	})
}

// TestSameUserAtOnce checks that one of several requests creates a user, and that the others are refused.
func TestSameUserAtOnce(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var statuses []int
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				got := w.send("POST /Users", `{"userName":"Ben","externalId":"x-ben"}`)
				mu.Lock()
				defer mu.Unlock()
				statuses = append(statuses, got.status)
			})
		}
		wg.Wait()
		if slices.Sort(statuses); !slices.Equal(statuses, []int{201, 409, 409, 409, 409, 409}) {
			t.Errorf("%v", statuses)
		}
		got := w.want(409, "POST /Users", `{"userName":"bEN"}`)
		if got.body["scimType"] != "uniqueness" || got.body["status"] != "409" {
			t.Errorf("%s", got.text)
		}
		got = w.want(409, "POST /Users", `{"userName":"other","externalId":"x-ben"}`)
		if got.body["scimType"] != "uniqueness" {
			t.Errorf("%s", got.text)
		}
	})
}

// TestRevokedInFlight checks that a request whose token is revoked after it was authenticated changes nothing.
func TestRevokedInFlight(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ctx, body := t.Context(), &gate{text: `{"userName":"ben"}`, reached: make(chan struct{}), open: make(chan struct{})}
		var status int
		done := make(chan struct{})
		go func() {
			defer close(done)
			status = w.sendBody(ctx, "POST", "/Users", body)
		}()
		<-body.reached
		_, err := w.RevokeToken(w.owner, w.provider.UID)
		testkit.Must(t, err)
		close(body.open)
		<-done
		if d, err := w.Directory(w.owner, w.provider.UID); status != 401 || err != nil || d.Users != 0 {
			t.Errorf("%d; %d users, %v", status, d.Users, err)
		}
	})
}

// TestTrustedProvider checks that a directory cannot manage the people of the whole installation.
func TestTrustedProvider(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		_, err := w.store.UpdateProvider(t.Context(), w.provider.UID,
			iamtest.ChangeProvider(func(p *resource.IdentityProvider) error { p.Trusted = true; return nil }))
		testkit.Must(t, err)
		if got := w.send("GET /Users", ""); got.status != http.StatusForbidden {
			t.Errorf("%d %s", got.status, got.text)
		}
		d, err := w.Directory(w.owner, w.provider.UID)
		testkit.Must(t, err)
		if _, err := w.SetEnabled(w.owner, w.provider.UID, true, d.ETag()); !errors.Is(err, fault.FailedPrecondition) {
			t.Error(err)
		}
	})
}
