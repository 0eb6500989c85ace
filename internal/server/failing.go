package server

import (
	"context"
	"net/url"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
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
	group, err := iamdb.In(t).Group(ctx, org)
	if err != nil {
		return err
	}
	sink, err := url.Parse(v.Sink)
	if err != nil {
		return err
	}
	log := s.cfg.BaseURL + "/console/events?tab=log&subscription=" + url.QueryEscape(string(v.UID))
	for _, uid := range owners {
		to, err := iam.EmailOf(ctx, t, uid)
		if err != nil {
			return err
		}
		if to == "" {
			continue
		}
		message := s.mail.FailingSubscription(v.Group(), to, group.Label(), sink.Host, log, v.Failing)
		if err := s.mail.Add(ctx, t, message); err != nil {
			return err
		}
	}
	return nil
}
