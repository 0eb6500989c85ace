package event

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

// Names are what events are called on the way out.
type Names struct {
	Prefix    string // of types: dev.holdfast
	Extension string // of the attributes that a delivery adds: holdfastdev1
}

// A Body is what an event says of the thing it happened to: JSON, and the full
// name of the message that it is. Both are empty if it says nothing.
type Body struct {
	Type string
	JSON []byte
}

// Type is the CloudEvents type of an event.
func (n Names) Type(t resource.EventType) string {
	if t.OfRegistry() {
		return n.Prefix + ".registry." + string(t)
	}
	return n.Prefix + ".api." + string(t)
}

// An envelope is an event ready to be sent, but for whom to.
type envelope struct {
	header http.Header // of the event's attributes; shared
	data   []byte
	digest string
}

// seal writes the envelope of an event.
func seal(names Names, source string, e resource.Event, body Body) (envelope, error) {
	data, err := json.Marshal(struct {
		Actor *actor          `json:"actor,omitempty"`
		Body  json.RawMessage `json:"body,omitempty"`
	}{actorOf(e.Actor), body.JSON})
	if err != nil {
		return envelope{}, fmt.Errorf("encode event %s: %w", e.ID, err)
	}
	sum := sha256.Sum256(data)
	audience := "customer"
	if e.Type.Internal() {
		audience = "internal"
	}
	h := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"holdfast"}}
	for _, a := range [...]struct{ name, value string }{
		{"Ce-Specversion", "1.0"}, {"Ce-Id", e.ID}, {"Ce-Source", source}, {"Ce-Type", names.Type(e.Type)}, {"Ce-Subject", string(e.Subject)},
		{"Ce-Time", e.Time.UTC().Format("2006-01-02T15:04:05.000Z07:00")}, {"Ce-Group", string(e.Group)}, {"Ce-Audience", audience},
		{"Ce-Bodytype", body.Type}, {"Ce-Identityprovider", string(providerOf(e))},
	} {
		if a.value != "" {
			h[a.name] = []string{headerValue(a.value)}
		}
	}
	return envelope{header: h, data: data, digest: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// An actor is who made a change, as receivers are told.
type actor struct {
	Subject string             `json:"subject"`
	Act     *resource.Upstream `json:"act,omitempty"`
}

func actorOf(a resource.Actor) *actor {
	if a.Subject == "" {
		return nil
	}
	return &actor{string(a.Subject), a.Act}
}

// providerOf is the identity provider an event is about, or none.
func providerOf(e resource.Event) resource.UID {
	switch e.Type {
	case resource.ProviderCreated, resource.ProviderUpdated, resource.ProviderDeleted, resource.MappingsDeleted:
		return e.Subject
	case resource.MappingCreated, resource.MappingDeleted:
		return e.Subject.Parent()
	}
	return ""
}

// label returns the attributes that every delivery to a subscription adds.
func label(names Names, sub resource.Subscription) http.Header {
	h := http.Header{}
	for name, value := range map[string]string{"delivery": "webhook", "webhook": sub.Sink, "subscription": string(sub.UID)} {
		h.Set("Ce-"+names.Extension+name, headerValue(value))
	}
	return h
}

// request makes the delivery of an envelope to a sink, under a label.
func (v envelope) request(ctx context.Context, sink string, label http.Header, token string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, sink, bytes.NewReader(v.data))
	if err != nil {
		return nil, fmt.Errorf("address a delivery: %w", err)
	}
	r.Header = make(http.Header, len(v.header)+len(label)+1)
	maps.Copy(r.Header, v.header) // the values are shared: nobody changes them
	maps.Copy(r.Header, label)
	r.Header["Authorization"] = []string{"Bearer " + token}
	return r, nil
}

// headerValue writes an attribute as a header has it: what is not printable
// ASCII, and a space, a quote or a percent sign, by the numbers of its bytes.
func headerValue(s string) string {
	special := func(c byte) bool { return c <= ' ' || c > '~' || c == '"' || c == '%' }
	if !slices.ContainsFunc([]byte(s), special) {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if special(c) {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// retryAfter is how long an answer asks us to wait, 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := time.ParseDuration(text + "s"); err == nil {
		return max(0, seconds)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
