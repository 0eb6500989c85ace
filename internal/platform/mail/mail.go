// Package mail sends messages to people by SMTP: invites, one-time links, and
// that a new device has signed in.
//
// A message is added to a queue in the database by the transaction that it is
// about, so it is sent if and only if that was committed. Any replica sends it,
// again and again until the mail server takes it or it has expired. If a replica
// stops between the two, or cannot tell the database, it is sent twice.
//
// What a message says may be a link that makes somebody an account's owner. It is
// sealed in the queue, removed when the message was sent or has expired, and never
// logged; neither is the address, nor what a mail server says, which may repeat
// both.
package mail

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	netmail "net/mail"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/maildb"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Bounds on messages within a day, so that nobody is flooded by an organization
// that invites them over and over, and no organization uses up what the mail
// server allows for all.
const (
	MaxByOrganization = 500
	MaxToAddress      = 20 // from all organizations
	MaxBoth           = 5  // from one organization to one address
)

// maxLife is how long a message is tried at most.
const maxLife = 3 * 24 * time.Hour

// A Message is a text for one person.
type Message struct {
	Organization resource.UID // on whose behalf; it counts towards its bound
	To           string       // an address without a name
	Subject      string
	Text         string
	Expire       time.Time // when it is of no use any more; 0 is in three days
}

// A Queue takes messages. A nil Queue takes and sends none.
type Queue struct {
	cfg   Config
	store *maildb.Store
}

// Config configures a Queue.
type Config struct {
	Server  Server
	Key     secret.Key // seals messages, and makes digests of addresses
	Issuer  string     // the address that links begin with
	Metrics metric.Metrics
	Log     *slog.Logger
}

// New returns the queue of a database.
func New(db *store.DB, cfg Config) *Queue { return &Queue{cfg, maildb.New(db)} }

// sealed is what of a message is stored sealed.
type sealed struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Add adds a message in a transaction. One to an address that cannot be one, or
// beyond a bound, is left out, and only counted and logged: whoever causes it can
// give the link to the person in another way.
func (q *Queue) Add(ctx context.Context, t *store.Tx, m Message) error {
	if q == nil || resource.IsDryRun(ctx) {
		return nil
	}
	if !isAddress(m.To) {
		return q.leaveOut(ctx, m, "the address is not one")
	}
	now := t.DB.Time()
	digest := q.digest(m.To)
	n, err := maildb.In(t).Counts(ctx, m.Organization, digest, now.Add(-maildb.Remembered))
	switch {
	case err != nil:
		return err
	case n.ByOrganization >= MaxByOrganization:
		return q.leaveOut(ctx, m, "the organization has sent too many today")
	case n.ToAddress >= MaxToAddress, n.Both >= MaxBoth:
		return q.leaveOut(ctx, m, "the address was sent too many today")
	}
	body, err := json.Marshal(sealed{m.To, m.Subject, m.Text})
	if err != nil {
		return err
	}
	expire := now.Add(maxLife)
	if !m.Expire.IsZero() && m.Expire.Before(expire) {
		expire = m.Expire
	}
	return maildb.In(t).Insert(ctx, maildb.Mail{
		ID: rand.Text(), Organization: m.Organization, Address: digest,
		Sealed: q.cfg.Key.Seal(secret.ForMail, body), CreateTime: now, ExpireTime: expire,
	})
}

// With returns what adds a message to the transaction of a change, for functions
// of stores that take it. There is none if q is nil.
func (q *Queue) With(ctx context.Context, message func() Message) []func(*store.Tx) error {
	if q == nil {
		return nil
	}
	return []func(*store.Tx) error{func(t *store.Tx) error { return q.Add(ctx, t, message()) }}
}

func (q *Queue) leaveOut(ctx context.Context, m Message, why string) error {
	q.cfg.Metrics.Mails.Add(1, metric.Denied)
	q.cfg.Log.WarnContext(ctx, "a message is not sent", "organization", m.Organization, "why", why)
	return nil
}

// digest returns a digest of an address that says nothing without the key.
func (q *Queue) digest(address string) []byte {
	m := hmac.New(sha256.New, q.cfg.Key.Derive("mail addresses"))
	m.Write([]byte(strings.ToLower(address)))
	return m.Sum(nil)
}

// isAddress reports whether text is a plain address in ASCII, without anything
// that could end a header or name a second recipient.
func isAddress(text string) bool {
	if len(text) > 254 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) ||
		strings.ContainsAny(text, `<>()[]\,;:"`) {
		return false
	}
	a, err := netmail.ParseAddress(text)
	return err == nil && a.Address == text && a.Name == ""
}
