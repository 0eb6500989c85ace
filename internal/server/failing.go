package server

import (
	"context"
	"errors"
	"net/url"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// maxOwnersNotified is the number of owners who get a message about a failing subscription.
const maxOwnersNotified = 20

// mailFailing queues messages to the owners of an organization about a subscription whose sink does not accept events.
func (s *Server) mailFailing(ctx context.Context, t *store.Tx, v resource.Subscription) error {
	if s.mail == nil {
		return nil
	}
	org := v.UID.Root()
	owners, err := iamdb.In(t).Holders(ctx, org, resource.OwnerRole, maxOwnersNotified)
	if err != nil {
		return err
	}
	people := iamdb.New(s.store)
	names, err := people.NamesOfGroups(ctx, []resource.UID{org})
	if err != nil {
		return err
	}
	sink, err := url.Parse(v.Sink)
	if err != nil {
		return err
	}
	log := s.cfg.BaseURL + "/console/events?tab=log&subscription=" + url.QueryEscape(string(v.UID))
	for _, uid := range owners {
		i, err := people.Identity(ctx, uid)
		switch {
		case errors.Is(err, fault.NotFound) || err == nil && i.Email == "":
			continue
		case err != nil:
			return err
		}
		message := s.mail.FailingSubscription(org, i.Email, names[org], sink.Host, log, v.Failing)
		if err := s.mail.Add(ctx, t, message); err != nil {
			return err
		}
	}
	return nil
}
