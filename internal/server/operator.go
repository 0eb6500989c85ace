package server

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/ops/status"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
)

// state returns the state of this replica for operators.
func (s *Server) state(context.Context) status.State {
	v := status.State{Version: buildinfo.Version(), StartTime: s.started, KeyRotation: s.cfg.KeyRotation}
	if s.certificate != nil {
		v.CertificateExpiry = s.certificate.Expiry()
	}
	v.FeedOverdue, v.InspectionsWaiting, v.QueuesKnown = s.states.queues()
	v.OldestInspection, v.FeedsFailing, v.SinksFailing = s.states.failures()
	backlog := s.events.Backlog()
	v.DeliveriesWaiting, v.OldestDelivery = backlog.Waiting, backlog.Oldest
	v.MailsWaiting, v.OldestMail, v.Mail = s.states.mail.read(s)
	if last := s.collected.Load(); last != nil {
		v.Collection = *last
	}
	v.Collection.Interval, v.Collection.Grace = s.cfg.GCInterval, s.cfg.GCGrace
	return v
}

// recordCollection stores the result of the last garbage collection.
func (s *Server) recordCollection(removed upkeep.Collected, err error) {
	last := status.Collection{Last: s.cfg.Now(), Blobs: int64(removed.Blobs), Bytes: removed.Bytes}
	if err != nil {
		last.Error = "it failed; see the log of the server"
	}
	s.collected.Store(&last)
}
