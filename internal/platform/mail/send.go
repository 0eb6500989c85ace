package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/holdfast-dev/holdfast/internal/platform/mail/maildb"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

const (
	sendTimeout = 15 * time.Second // limit for one step
	lease       = 5 * time.Minute  // longer than all steps together
	firstPause  = 30 * time.Second
	longest     = time.Hour // the longest pause between attempts
	idle        = time.Second
	sweepEvery  = 10 * time.Minute
)

// These are the TLS modes for a mail server.
const (
	StartTLS = "starttls" // required: if the server does not offer it, nothing is sent
	Implicit = "implicit"
	NoTLS    = "none"
)

// A Server is the mail server that sends the messages.
type Server struct {
	Address  string // host:port
	From     string
	User     string // "" means no authentication
	Password string
	TLS      string
	Roots    *x509.CertPool // trusted certificate authorities; nil means the system's
}

// client returns an SMTP client for the server.
func (s Server) client() (*gomail.Client, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	options := []gomail.Option{
		gomail.WithPort(n), gomail.WithTimeout(sendTimeout), gomail.WithTLSPolicy(gomail.TLSMandatory),
		gomail.WithTLSConfig(&tls.Config{ServerName: host, RootCAs: s.Roots, MinVersion: tls.VersionTLS12}),
		gomail.WithoutNoop(), // not every server supports NOOP
	}
	switch s.TLS {
	case Implicit:
		options = append(options, gomail.WithSSL())
	case NoTLS:
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	}
	if s.User != "" {
		kind := gomail.SMTPAuthAutoDiscover
		if s.TLS == NoTLS {
			kind = gomail.SMTPAuthPlainNoEnc // a password without TLS, only to a server on this machine
		}
		options = append(options, gomail.WithSMTPAuth(kind), gomail.WithUsername(s.User), gomail.WithPassword(s.Password))
	}
	return gomail.NewClient(host, options...)
}

// Check connects to the server and signs in, without sending a message. The error contains
// no secret.
func (s Server) Check(ctx context.Context) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	if err := c.DialWithContext(ctx); err != nil {
		return err
	}
	return c.Close()
}

// send sends a message through the server.
func (s Server) send(ctx context.Context, id string, m sealed, at time.Time) error {
	if !isAddress(m.To) {
		return errUnsendable
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := msg.From(s.From); err != nil {
		return errUnsendable
	}
	if err := msg.To(m.To); err != nil {
		return errUnsendable
	}
	_, domain, _ := strings.Cut(strings.Trim(s.From, "<> "), "@")
	// the id is the same if the message is sent twice
	msg.SetMessageIDWithValue(id + "@" + strings.TrimRight(domain, "> "))
	msg.SetDateWithValue(at)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.Subject(strings.Join(strings.Fields(m.Subject), " "))
	msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	c, err := s.client()
	if err != nil {
		return err
	}
	err = c.DialAndSendWithContext(ctx, msg)
	if msg.IsDelivered() {
		return nil // the server has accepted the message, so later errors do not matter
	}
	return err
}

// errUnsendable is returned for a message that no server would accept.
var errUnsendable = errors.New("the message cannot be sent")

// isFinal reports whether a server will never accept the message, because it refuses the
// recipient or the text permanently. An error about our credentials is not final,
// because the operator can correct them.
func isFinal(err error) bool {
	refused, ok := errors.AsType[*gomail.SendError](err)
	if !ok || refused.IsTemp() || refused.ErrorCode() < 500 {
		return errors.Is(err, errUnsendable)
	}
	return refused.Reason == gomail.ErrSMTPRcptTo || refused.Reason == gomail.ErrSMTPData ||
		refused.Reason == gomail.ErrSMTPDataClose
}

// reason returns the part of an error that may be logged: the code that the server
// returned. The text of the server may repeat the address and the message.
func reason(err error) string {
	if refused, ok := errors.AsType[*gomail.SendError](err); ok && refused.ErrorCode() > 0 {
		return fmt.Sprintf("the mail server answered %d %s", refused.ErrorCode(), refused.EnhancedStatusCode())
	}
	if errors.Is(err, errUnsendable) {
		return err.Error()
	}
	return "the mail server cannot be used: see holdfastd doctor"
}

// Run sends the messages in the queue until ctx ends.
func (q *Queue) Run(ctx context.Context) error {
	swept := time.Time{}
	for ctx.Err() == nil {
		if checked := time.Now(); checked.Sub(swept) >= sweepEvery {
			swept = checked
			q.sweep(ctx)
		}
		sent, err := q.sendNext(ctx)
		if err != nil && ctx.Err() == nil {
			q.cfg.Log.WarnContext(ctx, "read the queue of messages", "err", err)
		}
		if err != nil || !sent {
			select {
			case <-ctx.Done():
			case <-time.After(idle):
			}
		}
	}
	return nil
}

func (q *Queue) sweep(ctx context.Context) {
	expired, err := q.store.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		q.cfg.Log.WarnContext(ctx, "remove messages that have expired", "err", err)
	}
	if expired > 0 {
		q.cfg.Metrics.Mails.Add(expired, metric.GivenUp)
		q.cfg.Log.WarnContext(ctx, "messages have expired before they could be sent", "messages", expired)
	}
}

// sendNext sends a message that is due, and reports whether there was one.
func (q *Queue) sendNext(ctx context.Context) (bool, error) {
	m, ok, err := q.store.Claim(ctx, lease)
	if err != nil || !ok {
		return false, err
	}
	started := q.store.Time()
	plain, err := q.cfg.Key.Open(secret.ForMail, m.Sealed)
	var text sealed
	if err == nil {
		err = json.Unmarshal(plain, &text)
	}
	switch {
	case err != nil:
		err = errUnsendable // the message was sealed with a key that is lost
	case started.Before(m.ExpireTime):
		err = q.cfg.Server.send(ctx, m.ID, text, m.CreateTime)
	default:
		err = errUnsendable
	}
	if ctx.Err() != nil && err != nil {
		return true, nil // the process is stopping; the message is due again when the lease ends
	}
	return true, q.settle(context.WithoutCancel(ctx), m, err, started)
}

// settle records the result of an attempt to send a message.
func (q *Queue) settle(ctx context.Context, m maildb.Mail, err error, now time.Time) error {
	log := q.cfg.Log.With("message", m.ID, "organization", m.Organization, "attempt", m.Attempts)
	next := now.Add(pause(m.Attempts))
	switch {
	case err == nil:
		q.cfg.Metrics.Mails.Add(1, metric.OK)
		log.InfoContext(ctx, "a message was sent")
		return q.store.Finish(ctx, m.ID)
	case isFinal(err) || !next.Before(m.ExpireTime):
		q.cfg.Metrics.Mails.Add(1, metric.GivenUp)
		log.WarnContext(ctx, "a message was given up", "why", reason(err))
		return q.store.Finish(ctx, m.ID)
	}
	q.cfg.Metrics.Mails.Add(1, metric.Failed)
	log.WarnContext(ctx, "a message was not sent, and will be tried again", "why", reason(err), "at", next)
	return q.store.Retry(ctx, m.ID, next)
}

// pause returns how long to wait after an attempt with that number.
func pause(attempt int64) time.Duration {
	return min(longest, firstPause<<min(attempt-1, 10))
}

// Waiting returns the number of messages to be sent, and when the oldest was added.
func (q *Queue) Waiting(ctx context.Context) (int, time.Time, error) {
	if q == nil {
		return 0, time.Time{}, nil
	}
	return q.store.Waiting(ctx)
}
