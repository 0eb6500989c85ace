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

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Names are the prefixes of names in CloudEvents.
type Names struct {
	Prefix    string // prefix of event types, such as dev.holdfast
	Extension string // prefix of the attributes that a delivery adds, such as holdfastdev1
}

// A Body is the JSON form of the subject of an event, and the full name of its protobuf message. Both are empty if the
// event has no body.
type Body struct {
	Type string
	JSON []byte
}

// Type returns the CloudEvents type of an event.
func (n Names) Type(t resource.EventType) string {
	if t.OfRegistry() {
		return n.Prefix + ".registry." + string(t)
	}
	return n.Prefix + ".api." + string(t)
}

// An envelope is an encoded event, without the headers that differ between subscriptions.
type envelope struct {
	header http.Header // read-only, because all requests share it
	data   []byte
	digest string
}

// encode returns the envelope of an event.
func encode(names Names, source string, e resource.Event, body Body) (envelope, error) {
	var by *actor
	if e.Actor.Subject != "" {
		by = &actor{string(e.Actor.Subject), e.Actor.Act}
	}
	data, err := json.Marshal(struct {
		Actor *actor          `json:"actor,omitempty"`
		Body  json.RawMessage `json:"body,omitempty"`
	}{by, body.JSON})
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
		{"Ce-Specversion", "1.0"}, {"Ce-Id", e.ID}, {"Ce-Source", source}, {"Ce-Type", names.Type(e.Type)},
		{"Ce-Subject", string(e.Subject)}, {"Ce-Time", e.Time.UTC().Format(resource.Milliseconds)},
		{"Ce-Group", string(e.Group)}, {"Ce-Audience", audience},
		{"Ce-Bodytype", body.Type}, {"Ce-Identityprovider", string(providerOf(e))},
	} {
		if a.value != "" {
			h[a.name] = []string{headerValue(a.value)}
		}
	}
	return envelope{header: h, data: data, digest: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// An actor is the identity that made a change, in the JSON of an event.
type actor struct {
	Subject string             `json:"subject"`
	Act     *resource.Upstream `json:"act,omitempty"`
}

// providerOf returns the identity provider that an event is about, or "".
func providerOf(e resource.Event) resource.UID {
	switch e.Type {
	case resource.ProviderCreated, resource.ProviderUpdated, resource.ProviderDeleted, resource.MappingsDeleted,
		resource.ScimTokenGenerated, resource.ScimTokenRegenerated, resource.ScimTokenRevoked,
		resource.ScimEnabledUpdated, resource.DirectoryUpdated:
		return e.Subject
	case resource.MappingCreated, resource.MappingDeleted, resource.TeamCreated, resource.TeamUpdated,
		resource.TeamDeleted:
		return e.Subject.Parent()
	}
	return ""
}

// deliveryHeaders returns the headers of every delivery to a subscription.
func deliveryHeaders(names Names, sub resource.Subscription) http.Header {
	h := http.Header{}
	attributes := map[string]string{"delivery": "webhook", "webhook": sub.Sink, "subscription": string(sub.UID)}
	for name, value := range attributes {
		h.Set("Ce-"+names.Extension+name, headerValue(value))
	}
	return h
}

// request returns the request that delivers an envelope to a sink.
func (v envelope) request(
	ctx context.Context, sink string, delivery http.Header, token string,
) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, sink, bytes.NewReader(v.data))
	if err != nil {
		return nil, fmt.Errorf("address a delivery: %w", err)
	}
	r.Header = make(http.Header, len(v.header)+len(delivery)+1)
	maps.Copy(r.Header, v.header)
	maps.Copy(r.Header, delivery)
	r.Header["Authorization"] = []string{"Bearer " + token}
	return r, nil
}

// headerValue percent-encodes an attribute as the HTTP binding of CloudEvents
// requires: spaces, quotes, percent signs, and every byte that is not printable ASCII.
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

// retryAfter returns the wait that the Retry-After header of a response asks for, or 0.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := time.ParseDuration(text + "s"); err == nil {
		return max(0, seconds)
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}
