package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// An attackText is a text to which several goroutines write: the log of a server, or the requests to a sink.
type attackText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (x *attackText) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.Write(p)
}

func (x *attackText) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// newSink starts a sink that records the headers and bodies of all requests. Before each request it writes a line
// with the type and the subject of the event.
func newSink(t *testing.T) (address string, received *attackText) {
	t.Helper()
	received = &attackText{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(received, "%s of %s\n%v\n%s\n", r.Header.Get("Ce-Type"), r.Header.Get("Ce-Subject"), r.Header, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, received
}

// TestAttackSecretsInAddresses creates a feed and a subscription whose addresses do not work and contain a secret in
// their query, like the signed URLs of object stores. The secret must not appear in the log, in an event of another
// subscription, in an audit entry or in an error. Only callers who may change the resource may see the secret.
func TestAttackSecretsInAddresses(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		log := &attackText{}
		w := serve(t, url, server.Config{Stderr: log}, nil)
		org := string(w.Organization)
		seen, received := newSink(t)
		w.post(t, "/events/v2beta1/subscriptions/"+org, `{"sink":"`+seen+`"}`)
		const secret = "s3cr3t-signature"
		broken := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(broken.Close)
		address := broken.URL + "/all.json?sig=" + secret
		feed := w.feed(t, org, "signed", address)
		sub := w.post(t, "/events/v2beta1/subscriptions/"+org, `{"sink":"`+address+`"}`)
		reader := string(resource.UserUID("https://people.example", "reader"))
		w.bind(t, org, reader,
			w.role(t, org, "reader", capabilities("advisories.list", "subscriptions.list", "identity.list")...))
		bearer := w.mint(t, resource.UID(reader), token.Claims{})
		procUntil(t, "the feed and the sink fail", func() bool {
			return strings.Contains(w.send(t, bearer, "GET", "/advisories/v1/feeds/"+feed, "").body, "404 Not Found") &&
				strings.Contains(log.String(), "a sink is down")
		})
		answers := addressAnswers(t, w, bearer, feed, sub)
		w.send(t, w.Token, "PATCH", "/advisories/v1/feeds/"+feed, `{"interval":"7200s"}`)
		w.send(t, w.Token, "DELETE", "/advisories/v1/feeds/"+feed, "")
		w.send(t, w.Token, "DELETE", "/events/v2beta1/subscriptions/"+sub, "")
		procUntil(t, "the events are received", func() bool {
			return strings.Contains(received.String(), "subscription.deleted.v1 of "+sub) &&
				strings.Contains(received.String(), "feed.deleted.v1 of "+feed)
		})
		for where, text := range map[string]string{
			"the log": log.String(), "a sink": received.String(), "answers": answers,
			"the audit log": w.send(t, w.Token, "GET", "/audit/v1/entries", "").body,
		} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("the secret is in %s: …%s", where, text[max(0, i-200):i+len(secret)])
			}
			if where != "the log" && !strings.Contains(text, broken.URL+"/all.json") {
				t.Errorf("the rest of the address is not in %s", where)
			}
		}
	})
}

// addressAnswers returns everything that the API returns to a reader about a feed and a subscription. It also checks
// that the owner sees the whole addresses.
func addressAnswers(t *testing.T, w *world, reader, feed, sub string) string {
	t.Helper()
	var answers strings.Builder
	for protocol, call := range w.protocols() {
		for _, in := range []proto.Message{
			&advisoriespb.GetAdvisoryFeedRequest{Uid: feed}, &advisoriespb.ListAdvisoryFeedsRequest{},
			&eventspb.GetSubscriptionRequest{Uid: sub}, &eventspb.ListSubscriptionsRequest{},
		} {
			fmt.Fprintln(&answers, prototext.Format(must[proto.Message](t, call, reader, in)))
			if shown := prototext.Format(must[proto.Message](t, call, w.Token, in)); !strings.Contains(shown, "?sig=") {
				t.Errorf("over %s the owner gets %s, without the secret", protocol, shown)
			}
		}
	}
	for _, target := range []string{"/events/v1/subscriptions", "/deliveries/v1/deliveries"} {
		fmt.Fprintln(&answers, w.send(t, reader, "GET", target, "").body)
	}
	for _, wrong := range []string{
		"https://u:s3cr3t-signature@feeds.example/", "https://feeds example/?s3cr3t-signature",
		"https://h/?s3cr3t-signature#x", "ftp://h/?s3cr3t-signature", "http://h/?s3cr3t-signature",
	} {
		for target, field := range map[string]string{
			"/advisories/v1/feeds/": "address", "/events/v2beta1/subscriptions/": "sink",
		} {
			got := w.send(t, w.Token, "POST", target+string(w.Organization), `{"name":"wrong","`+field+`":"`+wrong+`"}`)
			if got.status != http.StatusBadRequest {
				t.Errorf("%s as %s: HTTP status %d", wrong, field, got.status)
			}
			fmt.Fprintln(&answers, got.body)
		}
	}
	return answers.String()
}
