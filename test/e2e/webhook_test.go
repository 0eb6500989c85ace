package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A receiver reads deliveries with the CloudEvents SDK. It verifies the token of each delivery with an OpenID library
// and with the keys that the issuer publishes.
type receiver struct {
	*httptest.Server
	verifier *oidc.IDTokenVerifier
	group    string // UID of the group that has the subscription

	mu     sync.Mutex
	events []cloudevents.Event
	wrong  []error
	more   chan struct{} // closed when the next event arrives
}

func newReceiver(t *testing.T, w *world, group string) *receiver {
	t.Helper()
	_, addr, _ := strings.Cut(w.BaseURL, "://")
	ctx := oidc.ClientContext(context.WithoutCancel(t.Context()), &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr) // connects to the issuer, whatever the host name is
		},
		DisableKeepAlives: true,
	}})
	provider, err := oidc.NewProvider(ctx, w.AuthURL)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{
		verifier: provider.VerifierContext(ctx, &oidc.Config{ClientID: "customer"}), group: group,
		more: make(chan struct{}),
	}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP reads a delivery, and records the event or the error.
func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	e, err := r.read(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.wrong = append(r.wrong, err)
	} else {
		r.events = append(r.events, e)
	}
	close(r.more)
	r.more = make(chan struct{})
}

func (r *receiver) read(req *http.Request) (e cloudevents.Event, _ error) {
	raw, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return e, fmt.Errorf("no token")
	}
	idToken, err := r.verifier.Verify(req.Context(), raw)
	if err != nil {
		return e, err
	}
	if idToken.Subject != "webhook:"+r.group {
		return e, fmt.Errorf("the token is for %s", idToken.Subject)
	}
	var claims struct {
		Webhook struct{ Digest string }
	}
	if err := idToken.Claims(&claims); err != nil {
		return e, err
	}
	event, err := cloudevents.NewEventFromHTTPRequest(req)
	if err != nil {
		return e, err
	}
	sum := sha256.Sum256(event.Data())
	if want := "sha256:" + hex.EncodeToString(sum[:]); claims.Webhook.Digest != want {
		return e, fmt.Errorf("the digest is %s, want %s", claims.Webhook.Digest, want)
	}
	return *event, event.Validate()
}

// await waits for an event with this type and subject, and returns it.
func (r *receiver) await(t *testing.T, kind, subject string) cloudevents.Event {
	t.Helper()
	late := time.After(procPatience)
	for {
		r.mu.Lock()
		events, wrong, more := r.events, r.wrong, r.more
		r.mu.Unlock()
		for _, err := range wrong {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type() == kind && e.Subject() == subject {
				return e
			}
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("there is no event %s of %s among %d events", kind, subject, len(events))
		}
	}
}

// data is the decoded data of an event.
type data struct {
	Actor struct {
		Subject string
		Act     struct{ Iss, Sub string }
	}
	Body map[string]any
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	names := map[string]struct{ prefix, extension, pkg string }{
		"holdfast": {"dev.holdfast", "holdfastdev1", "holdfast."},
		"interop":  {"dev.chainguard", "chainguarddev1", "chainguard.platform."},
	}
	for setting, name := range names {
		t.Run(setting, func(t *testing.T) {
			storetest.StoryURL(t, func(t *testing.T, url string) {
				w := serve(t, url, server.Config{EventNames: setting}, nil)
				org := string(w.Organization)
				r := newReceiver(t, w, org)
				made := w.send(t, w.Token, "POST", "/events/v2beta1/subscriptions/"+org, `{"sink":"`+r.URL+`/a?b=%20c"}`)
				if made.status != http.StatusOK {
					t.Fatal(made.body)
				}
				var sub struct{ UID string }
				if err := json.Unmarshal([]byte(made.body), &sub); err != nil {
					t.Fatal(err)
				}
				folder := w.child(t, org, "folder")
				e := r.await(t, name.prefix+".api.iam.group.created.v1", folder)
				want := map[string]any{
					"audience": "customer", "bodytype": name.pkg + "iam.v2beta1.Group", "group": folder,
					name.extension + "delivery": "webhook", name.extension + "subscription": sub.UID,
					name.extension + "webhook": r.URL + "/a?b=%2520c",
				}
				if diff := cmp.Diff(want, e.Extensions()); diff != "" {
					t.Error(diff)
				}
				if e.Source() != w.BaseURL || e.DataContentType() != "application/json" || e.SpecVersion() != "1.0" ||
					time.Since(e.Time()) > time.Hour {
					t.Errorf("event = %v", e)
				}
				var got data
				if err := e.DataAs(&got); err != nil {
					t.Fatal(err)
				}
				if got.Actor.Subject != string(w.Owner) || got.Actor.Act.Sub != "owner" || got.Body["name"] != "folder" ||
					got.Body["verified"] != false {
					t.Errorf("data = %+v", got)
				}
				tried := w.send(t, w.Token, "POST", "/deliveries/v1/tests/"+sub.UID, "{}")
				if tried.status != http.StatusOK || !strings.Contains(tried.body, `"taken":true`) {
					t.Errorf("the response to a test is %s", tried.body)
				}
				r.await(t, name.prefix+".api.events.subscription.tested.v1", sub.UID)
				w.send(t, w.Token, "DELETE", "/iam/v2beta1/groups/"+folder, "")
				e = r.await(t, name.prefix+".api.iam.group.deleted.v1", folder)
				if e.Extensions()["group"] != org || e.Extensions()["bodytype"] != name.pkg+"iam.v2beta1.DeleteGroupRequest" {
					t.Errorf("extensions = %v", e.Extensions())
				}
				if body := `"body":{"uid":"` + folder + `"}}`; !strings.HasSuffix(string(e.Data()), body) {
					t.Errorf("data = %s", e.Data())
				}
			})
		})
	}
}
