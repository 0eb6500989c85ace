package v2

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
)

func (s *server) ListEntries(ctx context.Context, r *pb.ListEntriesRequest) (*pb.ListEntriesResponse, error) {
	f, err := auditFilter(r)
	if err != nil {
		return nil, err
	}
	f.Type = s.shortType(f.Type)
	p, err := wire.List(ctx, r, f, s.events.Audit, func(e resource.Event) resource.Event { return e })
	if err != nil {
		return nil, err
	}
	out := &pb.ListEntriesResponse{NextPageToken: p.Next}
	for _, e := range p.Items {
		entry, err := s.entryOf(e)
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, entry)
	}
	return out, nil
}

// WatchEntries sends the entries of the audit log as they are written. It ends when the
// server starts to stop, because otherwise clients that watch would keep the server from
// stopping.
func (s *server) WatchEntries(
	r *pb.WatchEntriesRequest, stream grpc.ServerStreamingServer[pb.WatchEntriesResponse],
) error {
	f, err := auditFilter(&pb.ListEntriesRequest{
		GroupUid: r.GetGroupUid(), Subject: r.GetSubject(), IdentityUid: r.GetIdentityUid(), Type: r.GetType(),
	})
	if err != nil {
		return err
	}
	f.Type = s.shortType(f.Type)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.cfg.Ending, cancel)()
	err = s.events.Watch(ctx, f, r.GetPosition(), func(w event.WatchUpdate) error {
		out := &pb.WatchEntriesResponse{Position: w.Position}
		if w.Event != nil {
			if out.Entry, err = s.entryOf(*w.Event); err != nil {
				return err
			}
		}
		return stream.Send(out)
	})
	if s.cfg.Ending.Err() != nil {
		return nil
	}
	return err
}

// shortType returns an event type without the prefix that clients may give it.
func (s *server) shortType(t string) string {
	for _, prefix := range []string{".api.", ".registry."} {
		t = strings.TrimPrefix(t, s.cfg.Events.Prefix+prefix)
	}
	return t
}

// auditFilter returns the filter of a request. The error lists every violation.
func auditFilter(r *pb.ListEntriesRequest) (f event.AuditFilter, err error) {
	var bad wire.Problems
	uid := func(field, s string) resource.UID {
		u, err := wire.OptionalUID(field, s)
		bad.Add(err)
		return u
	}
	f.Group, f.Subject, f.Identity = uid("group_uid", r.GetGroupUid()), uid("subject",
		r.GetSubject()), uid("identity_uid", r.GetIdentityUid())
	f.Type = r.GetType()
	f.Since, err = wire.ReadTime("since", r.GetSince())
	bad.Add(err)
	f.Until, err = wire.ReadTime("until", r.GetUntil())
	bad.Add(err)
	return f, bad.Err()
}

// entryOf converts a change to an entry of the audit log.
func (s *server) entryOf(e resource.Event) (*pb.Entry, error) {
	p := &pb.Entry{
		Id: e.ID, Time: wire.Time(e.Time), Type: s.cfg.Events.Type(e.Type), Subject: string(e.Subject),
		Group: string(e.Group),
	}
	if a := e.Actor; a.Subject != "" || a.Remote != "" { // the user of a stolen token has an address, but no identity
		p.Actor = &pb.Actor{Uid: string(a.Subject), RemoteAddress: a.Remote, RequestId: a.RequestID}
		if a.Act != nil {
			p.Actor.Issuer, p.Actor.Subject = a.Act.Issuer, a.Act.Subject
		}
	}
	var err error
	if p.Before, err = s.stateOf(e, e.Before); err != nil {
		return nil, err
	}
	p.After, err = s.stateOf(e, e.After)
	return p, err
}

// stateOf returns the state before or after an event. If the API has a message for
// the kind, the state has the form of that message, and otherwise the stored form. A
// list is in the field items.
func (s *server) stateOf(e resource.Event, text []byte) (*structpb.Struct, error) {
	if len(text) == 0 {
		return nil, nil
	}
	kind, _ := kindOf(e.Type)
	if row, known := eventKinds[kind]; known && text[0] == '{' && e.Type != resource.GroupAccessRequested {
		m, err := row.Payload(text)
		if err != nil {
			return nil, err
		}
		if text, err = s.encoder.Marshal(m); err != nil {
			return nil, err
		}
	}
	if text[0] != '{' {
		text = fmt.Appendf(nil, `{"items":%s}`, text)
	}
	out := &structpb.Struct{}
	if err := protojson.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("decode event %s: %w", e.ID, err)
	}
	return out, nil
}
