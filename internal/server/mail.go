package server

import (
	"context"
	netmail "net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/maildb"
)

// mailMistakes reports mistakes in the settings of the mail server.
func (c Config) mailMistakes(add func(name, format string, args ...any)) {
	if c.SMTPAddress == "" {
		if c.SMTPFrom != "" || c.SMTPUser != "" || c.SMTPPassword != "" {
			add("smtp_address", "is required with smtp_from, smtp_user and smtp_password")
		}
		return
	}
	if !isAddress(c.SMTPAddress) || strings.HasPrefix(c.SMTPAddress, ":") {
		add("smtp_address", "%q is not host:port", c.SMTPAddress)
	}
	if _, err := netmail.ParseAddress(c.SMTPFrom); err != nil {
		add("smtp_from", "%q is not an e-mail address", c.SMTPFrom)
	}
	if (c.SMTPUser == "") != (c.SMTPPassword == "") {
		add("smtp_user", "smtp_user and smtp_password go together")
	}
	if !slices.Contains([]string{mail.StartTLS, mail.Implicit, mail.NoTLS}, c.SMTPTLS) {
		add("smtp_tls", "%q is not starttls, implicit or none", c.SMTPTLS)
	}
	if c.SMTPTLS == mail.NoTLS && !isLoopback(c.SMTPAddress) {
		add("smtp_tls", "none is for a loopback address alone: messages have links that let people in")
	}
}

// mailServer returns the mail server of the settings.
func (c Config) mailServer() (mail.Server, error) {
	limits, err := c.outboundConfig()
	return mail.Server{
		Address: c.SMTPAddress, From: c.SMTPFrom, User: c.SMTPUser, Password: c.SMTPPassword, TLS: c.SMTPTLS,
		Roots: limits.CAs,
	}, err
}

// openMail makes the queue of messages to people, if there is a mail server.
// Without one, what is left of a queue from before is removed when it expires.
func (s *Server) openMail(ctx context.Context) error {
	if s.cfg.SMTPAddress == "" {
		_, err := maildb.New(s.store).Sweep(ctx)
		return err
	}
	to, err := s.cfg.mailServer()
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

// mailStates are the metrics of the queue of messages. They are a question to the
// database, which is asked once in ten seconds at most.
type mailStates struct {
	mu      sync.Mutex
	asked   time.Time
	waiting int
	oldest  time.Time
	known   bool
}

func (v *mailStates) read(s *Server) (waiting int, oldest time.Time, known bool) {
	if s.mail == nil {
		return 0, time.Time{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.asked) >= keepAnswers {
		ctx, cancel := context.WithTimeout(context.Background(), askForMetrics)
		defer cancel()
		var err error
		v.waiting, v.oldest, err = s.mail.Waiting(ctx)
		v.asked, v.known = time.Now(), err == nil
	}
	return v.waiting, v.oldest, v.known
}

// mail checks the mail server: it connects and signs in, and sends nothing.
func (d *doctor) mail(ctx context.Context) {
	if d.cfg.SMTPAddress == "" {
		return
	}
	to, err := d.cfg.mailServer()
	if err == nil {
		err = to.Check(ctx)
	}
	if err != nil {
		d.warn("mail", "check the settings smtp_…; invites and links are not sent until then, but shown as ever",
			"%s cannot be used: %v", d.cfg.SMTPAddress, err)
		return
	}
	d.ok("mail", "%s takes messages", d.cfg.SMTPAddress)
}
