// Package mail sends messages to people by SMTP: invites, one-time links, and notices
// about sign-ins with a new device.
//
// The transaction of a change adds its message to a queue in the database, so a message is
// sent if and only if the change was committed. Any replica sends it, and tries again
// until the mail server accepts the message or the message has expired. If a replica stops
// after the server accepted a message, or cannot record that in the database, the message
// is sent twice.
//
// The text of a message may contain a link that gives control of an account. The text is
// encrypted in the queue, removed when the message was sent or has expired, and never
// logged. The address is not logged either. Nor are the responses of mail servers, because
// they may repeat the address and the text.
package mail

import (
	"cmp"
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

// These are the limits for messages within a day. They protect people from an
// organization that invites them repeatedly, and they keep one organization from using
// up the mail server's quota for all.
const (
	MaxByOrganization = 500
	MaxToAddress      = 20 // to one address, from all organizations
	MaxBoth           = 5  // from one organization to one address

	// MaxNotices is the limit for notices of one kind from one organization to one address. Nothing else counts towards
	// it. Otherwise an attacker could use up the limit first, and then sign in or stop a webhook unnoticed.
	MaxNotices = 20

	// MaxReports is the limit for weekly reports from one organization to one address. Reports count towards the limit
	// of the organization, but use up at most half of it, so that invites are still sent.
	MaxReports = 5
)

// A Notice is a kind of message that warns a person. Its value is the purpose of the key for digests of addresses, so
// that the messages of each kind are counted separately.
type Notice string

// The kinds of notices. Administrators of folders can cause notices about the webhooks of their folders, so these do
// not use up the limit for the webhooks of the organization.
const (
	NewDevice              Notice = "mail addresses of notices"
	FailingWebhook         Notice = "mail addresses of notices about webhooks"
	FailingWebhookOfFolder Notice = "mail addresses of notices about webhooks of folders"
	WeeklyReport           Notice = "mail addresses of weekly reports"
	AccessRequested        Notice = "mail addresses of notices about access requests"
	AccessDecided          Notice = "mail addresses of notices about decisions"
)

// limit returns the limit for notices of a kind from one organization to one address.
func (n Notice) limit() int {
	switch n {
	case FailingWebhookOfFolder, AccessRequested:
		return MaxBoth
	case WeeklyReport:
		return MaxReports
	}
	return MaxNotices
}

// maxLife is the longest time for which a message is retried.
const maxLife = 3 * 24 * time.Hour

// A Message is a message to one person.
type Message struct {
	Organization resource.UID // the sender; the message counts towards its limit
	To           string       // an address without a name
	Subject      string
	Text         string
	Expire       time.Time // when the message becomes useless; zero means in three days
	Notice       Notice    // "" if the message is no notice
	// Cause is the identity that has caused a notice. Notices with different causes are counted separately, so that
	// nobody can use up the limit for the notices of others. It is "" for notices with one limit.
	Cause resource.UID
}

// A Queue accepts messages. A nil Queue ignores them.
type Queue struct {
	cfg   Config
	store *maildb.Store
}

// Config configures a Queue.
type Config struct {
	Server  Server
	Key     secret.Key // encrypts messages, and is the key for digests of addresses
	Issuer  string     // address of this service, with which links begin
	Metrics metric.Metrics
	Log     *slog.Logger
}

// New returns the queue that is stored in a database.
func New(db *store.DB, cfg Config) *Queue { return &Queue{cfg, maildb.New(db)} }

// sealed is the part of a message that is stored encrypted.
type sealed struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Add adds a message to the queue in a transaction. If the address is invalid or a limit is
// reached, it only counts and logs that, because the sender can give the link to the person
// in another way.
func (q *Queue) Add(ctx context.Context, t *store.Tx, m Message) error {
	_, err := q.TryAdd(ctx, t, m)
	return err
}

// TryAdd is Add for senders that can try again later. It returns the reason why the message was not added, or "".
func (q *Queue) TryAdd(ctx context.Context, t *store.Tx, m Message) (left string, _ error) {
	if q == nil || resource.IsDryRun(ctx) {
		return "", nil
	}
	if !isAddress(m.To) {
		return q.leaveOut(ctx, m, "the address is not one"), nil
	}
	created := t.DB.Time()
	digest := q.digest(m)
	n, err := maildb.In(t).Counts(ctx, m.Organization, digest, created.Add(-maildb.Remembered))
	if err != nil {
		return "", err
	}
	if why := m.overLimit(n); why != "" {
		return q.leaveOut(ctx, m, why), nil
	}
	body, err := json.Marshal(sealed{m.To, m.Subject, m.Text})
	if err != nil {
		return "", err
	}
	expire := created.Add(maxLife)
	if !m.Expire.IsZero() && m.Expire.Before(expire) {
		expire = m.Expire
	}
	return "", maildb.In(t).Insert(ctx, maildb.Mail{
		ID: rand.Text(), Organization: m.Organization, Address: digest,
		Sealed: q.cfg.Key.Seal(secret.ForMail, body), CreateTime: created, ExpireTime: expire,
	})
}

// With returns a list for the variadic parameter of a store's methods. Its only function
// adds a message in the transaction of the change. The list is empty if q is nil.
func (q *Queue) With(ctx context.Context, message func() Message) []func(*store.Tx) error {
	if q == nil {
		return nil
	}
	return []func(*store.Tx) error{func(t *store.Tx) error { return q.Add(ctx, t, message()) }}
}

func (q *Queue) leaveOut(ctx context.Context, m Message, why string) string {
	q.cfg.Metrics.Mails.Add(1, metric.Denied)
	q.cfg.Log.WarnContext(ctx, "a message is not sent", "organization", m.Organization, "why", why)
	return why
}

// overLimit returns the reason why a message is not sent, or "". n has the messages of the last day.
func (m Message) overLimit(n maildb.Counts) string {
	switch {
	case (m.Notice == WeeklyReport || m.Cause != "") && n.ByOrganization >= MaxByOrganization/2:
		return "the organization has sent too many today"
	case m.Notice == WeeklyReport && n.ToAddress >= MaxToAddress:
		return "the address was sent too many today"
	case m.Notice != "" && n.Both < m.Notice.limit():
		return ""
	case m.Notice == "" && n.ByOrganization >= MaxByOrganization:
		return "the organization has sent too many today"
	case m.Notice != "", n.ToAddress >= MaxToAddress, n.Both >= MaxBoth:
		return "the address was sent too many today"
	}
	return ""
}

// digest returns a digest of the address of a message. It reveals nothing without the key. Each kind of notice, and
// each cause, has other digests, because it is counted separately.
func (q *Queue) digest(m Message) []byte {
	h := hmac.New(sha256.New, q.cfg.Key.Derive(cmp.Or(string(m.Notice), "mail addresses")))
	h.Write([]byte(strings.ToLower(m.To)))
	if m.Cause != "" {
		h.Write([]byte("\x00" + m.Cause))
	}
	return h.Sum(nil)
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
