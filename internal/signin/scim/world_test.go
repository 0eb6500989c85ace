package scim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A world is an organization with two owners and a provider, whose directory is enabled and has a token.
type world struct {
	*scim.Service
	t        *testing.T
	url      string // address of the database
	store    *iamtest.Store
	checker  *authz.Checker
	org      resource.Group
	owner    context.Context
	provider resource.IdentityProvider
	token    string
	now      time.Time
}

// eachWorld runs f with a new world on every engine.
func eachWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) { f(t, newWorld(t, url)) })
}

func newWorld(t *testing.T, url string) *world {
	t.Helper()
	s := iamtest.Open(t, url)
	testkit.Must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
	checker, err := authz.Load(t.Context(), s.DB, slog.New(slog.DiscardHandler))
	testkit.Must(t, err)
	w := &world{t: t, url: url, store: s, checker: checker, now: time.Now().UTC().Truncate(time.Millisecond)}
	w.Service = scim.New(s.DB, checker, scim.Config{
		BaseURL: "https://here.test", Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
	})
	w.org, w.owner = w.found("acme")
	w.provider, w.token = w.directory(w.org.UID, w.owner)
	return w
}

// found creates an organization with two owners, and returns it with a context whose caller is one of them.
func (w *world) found(name string) (resource.Group, context.Context) {
	w.t.Helper()
	org := iamtest.AddGroup(w.t, w.store.IAMStore, "", name)
	var owner resource.UID
	for _, subject := range []string{"one", "two"} {
		owner = w.person("https://people.test", name+subject)
		iamtest.AddBinding(w.t, w.store.IAMStore, org.UID, owner, resource.OwnerRole)
	}
	return org, authz.WithCaller(w.t.Context(), authz.Caller{Identity: owner, Issued: time.Now()})
}

// person creates a person with a subject in a realm.
func (w *world) person(realm, subject string) resource.UID {
	w.t.Helper()
	i := resource.Identity{
		UID: resource.UserUID(realm, subject), Realm: realm, Name: "person", CreateTime: w.now, UpdateTime: w.now,
		LastSeenTime: w.now, Relationship: resource.Relationship{
			ClaimMatch: &resource.ClaimMatch{Issuer: "https://people.test", Subject: subject},
		},
	}
	testkit.Must(w.t, w.store.InsertIdentity(w.t.Context(), i))
	return i.UID
}

// directory creates a provider with an enabled directory, and returns its token.
func (w *world) directory(org resource.UID, owner context.Context) (resource.IdentityProvider, string) {
	w.t.Helper()
	p := iamtest.AddProvider(w.t, w.store.IAMStore, org, resource.ManagedRoleUID("viewer"), "idp")
	token, d, err := w.GenerateToken(owner, p.UID, scim.Life{})
	testkit.Must(w.t, err)
	_, err = w.SetEnabled(owner, p.UID, true, d.ETag())
	testkit.Must(w.t, err)
	return p, token
}

// A reply is the answer to a request.
type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// send sends a request of the world's directory. target is "METHOD /path" below the address of the directory, and
// headers are pairs of a name and a value.
func (w *world) send(target, body string, headers ...string) reply {
	w.t.Helper()
	return w.sendTo(w.Endpoint(w.provider.UID), w.token, target, body, headers...)
}

func (w *world) sendTo(endpoint, token, target, body string, headers ...string) reply {
	w.t.Helper()
	method, path, _ := strings.Cut(target, " ")
	r := httptest.NewRequestWithContext(w.t.Context(), method, endpoint+strings.ReplaceAll(path, " ", "%20"),
		strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/scim+json; charset=utf-8")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, r)
	got := reply{status: rec.Code, header: rec.Header(), text: rec.Body.String()}
	if got.text != "" {
		if err := json.Unmarshal(rec.Body.Bytes(), &got.body); err != nil {
			w.t.Errorf("%s: %v: %s", target, err, got.text)
		}
	}
	return got
}

// want sends a request, which must have the status, and returns the answer.
func (w *world) want(status int, target, body string, headers ...string) reply {
	w.t.Helper()
	got := w.send(target, body, headers...)
	if got.status != status {
		w.t.Fatalf("%s %s: %d %s, want %d", target, body, got.status, got.text, status)
	}
	return got
}

// add creates a user whose externalId is its userName with the prefix "x-", and returns its id.
func (w *world) add(userName string) string {
	w.t.Helper()
	body := fmt.Sprintf(`{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":%q,"externalId":%q,
		"active":true}`, userName, "x-"+userName)
	id, _ := w.want(http.StatusCreated, "POST /Users", body).body["id"].(string)
	return id
}

// signIn lets the person with a subject sign in with the provider.
func (w *world) signIn(subject string) (resource.Identity, error) {
	w.t.Helper()
	p, err := w.store.Provider(w.t.Context(), w.provider.UID)
	testkit.Must(w.t, err)
	l, err := admission.New(w.store.DB).SignIn(w.t.Context(), resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: subject, Realm: p.Realm, Voucher: p.Voucher(), UpdateRoles: true, Register: true,
	})
	return l.Identity, err
}

// eventsOf returns how many events of a type there are.
func (w *world) eventsOf(kind resource.EventType) (n int) {
	w.t.Helper()
	testkit.Must(w.t, w.store.Row(w.t.Context(), `SELECT count(*) FROM outbox WHERE type = $1`, []any{string(kind)}, &n))
	return n
}

// replica returns a checker as another replica has it: with its own connection and memory. It follows the changes of
// other replicas, as a server does, because writers wait until the lease of a replica that does not follow has expired.
func (w *world) replica() *authz.Checker {
	w.t.Helper()
	if !w.store.Replicated() {
		return w.checker
	}
	c, err := authz.Load(w.t.Context(), iamtest.Open(w.t, w.url).DB, slog.New(slog.DiscardHandler))
	testkit.Must(w.t, err)
	var following sync.WaitGroup
	following.Go(func() { _ = c.Run(w.t.Context()) }) // returns nil at the end of the test
	w.t.Cleanup(following.Wait)
	return c
}

// drifts returns the counters that differ from their rows.
func drifts(t *testing.T, w *world) string {
	t.Helper()
	found, err := recount.Drifts(t.Context(), w.store.DB)
	testkit.Must(t, err)
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("%+v", found)
}

// A gate is a body that announces that it is read, and then waits.
type gate struct {
	text          string
	reached, open chan struct{}
	sent          bool
}

func (g *gate) Read(p []byte) (int, error) {
	if g.sent {
		return 0, io.EOF
	}
	close(g.reached)
	<-g.open
	g.sent = true
	return copy(p, g.text), nil
}

// sendBody sends a request with a body that is read from a reader, and returns the status of the answer.
func (w *world) sendBody(ctx context.Context, method, path string, body io.Reader) int {
	r := httptest.NewRequestWithContext(ctx, method, w.Endpoint(w.provider.UID)+path, body)
	r.Header.Set("Authorization", "Bearer "+w.token)
	rec := httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, r)
	return rec.Code
}
