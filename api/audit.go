package api

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/holdfast-dev/holdfast/event"
	"github.com/holdfast-dev/holdfast/fault"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	"github.com/holdfast-dev/holdfast/resource"
)

type audit struct {
	auditpb.UnsafeAuditServiceServer
	events *event.Service
	names  event.Names

	encoder *encoder
}

// ListEntries is of auditpb.AuditServiceServer.
func (s audit) ListEntries(ctx context.Context, r *auditpb.ListEntriesRequest) (*auditpb.ListEntriesResponse, error) {
	f, err := auditFilter(r)
	if err != nil {
		return nil, err
	}
	for _, prefix := range []string{".api.", ".registry."} { // as entries show it, or without
		f.Type = strings.TrimPrefix(f.Type, s.names.Prefix+prefix)
	}
	p, err := s.events.Audit(ctx, f, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	out := &auditpb.ListEntriesResponse{NextPageToken: p.Next}
	for _, e := range p.Items {
		entry, err := s.entryOf(e)
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, entry)
	}
	return out, nil
}

// auditFilter reads which changes are wanted, and reports all that is wrong with
// it.
func auditFilter(r *auditpb.ListEntriesRequest) (f event.AuditFilter, err error) {
	var bad []fault.Violation
	wrong := func(err error) {
		if err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
	}
	uid := func(field, s string) (u resource.UID) {
		if s != "" {
			u, err = resource.ParseUID(field, s)
			wrong(err)
		}
		return u
	}
	f.Group, f.Subject, f.Identity = uid("group_uid", r.GetGroupUid()), uid("subject", r.GetSubject()), uid("identity_uid", r.GetIdentityUid())
	f.Type = r.GetType()
	f.Since, err = readTime("since", r.GetSince())
	wrong(err)
	f.Until, err = readTime("until", r.GetUntil())
	wrong(err)
	if len(bad) > 0 {
		return f, fault.Fields(bad)
	}
	return f, nil
}

// entryOf writes a change.
func (s audit) entryOf(e resource.Event) (*auditpb.Entry, error) {
	p := &auditpb.Entry{
		Id: e.ID, Time: timeOf(e.Time), Type: s.names.Type(e.Type), Subject: string(e.Subject), Group: string(e.Group),
	}
	if a := e.Actor; a.Subject != "" || a.Remote != "" { // whoever comes with a copied token has an address, and no name
		p.Actor = &auditpb.Actor{Uid: string(a.Subject), RemoteAddress: a.Remote, RequestId: a.RequestID}
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

// stateOf writes what an event tells of before or after: as the API does where
// it has a message for it, and otherwise as it is kept. Several are under items.
func (s audit) stateOf(e resource.Event, text []byte) (*structpb.Struct, error) {
	if len(text) == 0 {
		return nil, nil
	}
	kind, _ := kindOf(e.Type)
	if row, known := told[kind]; known && text[0] == '{' && e.Type != resource.GroupAccessRequested {
		m, err := row.thing(text)
		if err != nil {
			return nil, err
		}
		if text, err = s.encoder.write(m); err != nil {
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
