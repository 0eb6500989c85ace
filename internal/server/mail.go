package server

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/maildb"
)

// openMail opens the queue of messages to people if there is a mail server. Without
// one, it removes expired messages of an earlier queue.
func (s *Server) openMail(ctx context.Context) error {
	if s.cfg.SMTPAddress == "" {
		_, err := maildb.New(s.store).Sweep(ctx)
		return err
	}
	to, err := s.cfg.MailServer()
	if err != nil {
		return err
	}
	s.mail = mail.New(s.store, mail.Config{
		Server: to, Key: s.key, Issuer: s.cfg.AuthURL, Metrics: s.counts, Log: s.log,
	})
	return nil
}

// sendMail sends messages to people, if there is a mail server.
func (s *Server) sendMail(ctx context.Context) error {
	if s.mail == nil {
		return nil
	}
	return s.mail.Run(ctx)
}
