package wire

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An EventKind describes the bodies of the events about one kind of resource.
type EventKind struct {
	Payload func(text []byte) (proto.Message, error) // converts the stored resource to its message
	// Deleted is the request that deletes the resource. It is the body of the event about
	// the deletion. If it is nil, that event has no body.
	Deleted proto.Message
}

// An EventBody returns the body of an event whose body is not the resource itself.
type EventBody func(e resource.Event) (proto.Message, error)

// NewEventKind returns the kind of resource that convert turns into a message.
func NewEventKind[T any, M proto.Message](convert func(T) M, deleted proto.Message) EventKind {
	return EventKind{Deleted: deleted, Payload: func(text []byte) (proto.Message, error) {
		v, err := DecodeEvent[T](text)
		if err != nil {
			return nil, err
		}
		return convert(v), nil
	}}
}

// DecodeEvent decodes the state of a resource in the outbox.
func DecodeEvent[T any](text []byte) (v T, err error) {
	if err = json.Unmarshal(text, &v); err != nil {
		err = fmt.Errorf("decode an event: %w", err)
	}
	return v, err
}
