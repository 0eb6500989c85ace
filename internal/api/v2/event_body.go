package v2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/v2/registryapi"
	"github.com/holdfast-dev/holdfast/internal/api/v2/vulnapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// EventBodies writes the bodies of events as the JSON that the API uses: the resource
// after the event, or the request that deleted it.
type EventBodies struct {
	encoder wire.Encoder

	// If Interop is true, bodies use the message names of the public API instead of Holdfast's own names.
	Interop bool
	// RepoPath returns the path of a repo in the registry.
	RepoPath func(ctx context.Context, uid resource.UID) (string, error)
}

// eventKinds are the kinds of resources that have events, by the prefix of the
// event types.
var eventKinds = merge(accessapi.EventKinds, registryapi.EventKinds, vulnapi.EventKinds, map[string]wire.EventKind{
	"events.subscription": wire.NewEventKind(SubscriptionOf, &eventspb.DeleteSubscriptionRequest{}),
	"iam.organization":    wire.NewEventKind(appliedOf, nil),
})

// eventBodies return the bodies of events whose body is not the resource itself.
var eventBodies = merge(accessapi.EventBodies, registryapi.EventBodies, vulnapi.EventBodies)

// merge returns the union of tables that have no key in common.
func merge[K comparable, V any](tables ...map[K]V) map[K]V {
	union := map[K]V{}
	for _, t := range tables {
		maps.Copy(union, t)
	}
	return union
}

// kindOf splits an event type into the kind of its resource and the change.
func kindOf(t resource.EventType) (kind, happened string) {
	name := strings.TrimSuffix(string(t), ".v1")
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, ""
	}
	return name[:i], name[i+1:]
}

// Body returns the body of an event. It returns an error for an unknown event type,
// which a replica of a later version may have written.
func (b *EventBodies) Body(ctx context.Context, e resource.Event) (event.Body, error) {
	if e.Type.OfRegistry() {
		return b.traffic(ctx, e)
	}
	kind, happened := kindOf(e.Type)
	row, known := eventKinds[kind]
	form := eventBodies[e.Type]
	switch {
	case form != nil:
	case !known:
		return event.Body{}, fmt.Errorf("there is no body for %s", e.Type)
	case happened != "deleted":
		form = func(e resource.Event) (proto.Message, error) { return row.Payload(e.After) }
	case row.Deleted == nil:
		return event.Body{}, nil
	default:
		return uidOnly(b.name(row.Deleted), e.Subject)
	}
	m, err := form(e)
	if err != nil {
		return event.Body{}, err
	}
	text, err := b.encoder.Marshal(m)
	return event.Body{Type: b.name(m), JSON: text}, err
}

// name returns the name of a message for receivers.
func (b *EventBodies) name(m proto.Message) string {
	name := m.ProtoReflect().Descriptor().FullName()
	if b.Interop {
		name = wire.InteropName(name)
	}
	return string(name)
}

func uidOnly(name string, uid resource.UID) (event.Body, error) {
	text, err := json.Marshal(map[string]resource.UID{"uid": uid})
	return event.Body{Type: name, JSON: text}, err
}

// A traffic is the body of a pull or a push, with the field names that receivers
// expect.
type traffic struct {
	Repository    string `json:"repository"`
	RepoID        string `json:"repo_id"`
	Tag           string `json:"tag,omitempty"`
	Digest        string `json:"digest"`
	Method        string `json:"method,omitempty"`
	Type          string `json:"type"`
	When          string `json:"when"`
	Location      string `json:"location"`
	RemoteAddress string `json:"remote_address"`
	UserAgent     string `json:"user_agent"`
	Count         int64  `json:"count,omitempty"` // number of pulls, if the event combines several
}

// traffic returns the body of a pull or a push.
func (b *EventBodies) traffic(ctx context.Context, e resource.Event) (event.Body, error) {
	path, err := b.RepoPath(ctx, e.Subject)
	if err != nil && !errors.Is(err, fault.NotFound) { // a deleted repo has no path
		return event.Body{}, err
	}
	t := traffic{
		Repository: path, RepoID: string(e.Subject), Type: "manifest", When: civil(e.Time), RemoteAddress: e.Actor.Remote,
	}
	if e.Type == resource.RegistryPush {
		push, err := wire.DecodeEvent[struct {
			Digest string   `json:"digest"`
			Tags   []string `json:"tags"`
		}](e.After)
		if err != nil {
			return event.Body{}, err
		}
		t.Digest = push.Digest
		if len(push.Tags) > 0 {
			t.Tag = push.Tags[0]
		}
	} else {
		pull, err := wire.DecodeEvent[registry.Pull](e.After)
		if err != nil {
			return event.Body{}, err
		}
		t.Digest, t.Tag, t.Method, t.RemoteAddress, t.UserAgent = pull.Digest, pull.Tag, "GET", pull.Remote, pull.Agent
		t.When = civil(pull.Time)
		if pull.More > 0 {
			t.Count = 1 + pull.More
		}
	}
	text, err := json.Marshal(t)
	return event.Body{JSON: text}, err
}

// civil formats a time without its zone. It omits a fraction of zero.
func civil(t time.Time) string {
	text := t.UTC().Format("2006-01-02T15:04:05.000000")
	return strings.TrimSuffix(text, ".000000")
}
