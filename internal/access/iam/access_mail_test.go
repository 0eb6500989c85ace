package iam_test

import (
	"context"
	"io"
	"log/slog"
	"mime/quotedprintable"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/mailtest"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A bureau is a world whose messages arrive in a mail server.
type bureau struct {
	*world
	*mailtest.Server
	queue *mail.Queue
	seen  int
}

func newBureau(t *testing.T, s *storetest.Store) *bureau {
	t.Helper()
	box := mailtest.Start(t, mailtest.Config{})
	queue := mail.New(s.DB, mail.Config{
		Server: mail.Server{Address: box.Address, TLS: mail.NoTLS, From: "holdfast@example.com"}, Key: secret.NewKey(),
		Issuer: "https://holdfast.example.com", Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- queue.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return &bureau{world: newWorld(t, s, iam.Config{Mail: queue}), Server: box, queue: queue}
}

// employ creates a person with an account in an organization, who holds a role in acme.
func (b *bureau) employ(in resource.UID, email, role string) (resource.UID, context.Context) {
	b.t.Helper()
	a := iamtest.AddAccount(b.t, b.store.People, in, email)
	_, err := b.CreateBinding(b.owner, b.acme.UID, resource.RoleBinding{
		Identity: a.Identity, Role: resource.ManagedRoleUID(role),
	})
	must(b.t, err)
	return a.Identity, b.as(a.Identity)
}

// expect waits until these people, and nobody else, got a message, and returns the text of one of the messages.
func (b *bureau) expect(what string, to ...string) (text string) {
	b.t.Helper()
	got := b.Await(b.t, b.seen+len(to))[b.seen:]
	n, _, err := b.queue.Waiting(b.t.Context())
	var recipients []string
	for _, m := range got {
		recipients = append(recipients, m.To...)
		_, body, _ := strings.Cut(m.Data, "\r\n\r\n")
		decoded, _ := io.ReadAll(quotedprintable.NewReader(strings.NewReader(body)))
		text = string(decoded)
	}
	if slices.Sort(recipients); !slices.Equal(recipients, to) || n > len(to) || err != nil {
		b.t.Errorf("%s: messages to %v, and %d wait, %v; want %v", what, recipients, n, err, to)
	}
	b.seen += len(got)
	return text
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: no %q in\n%s", what, part, text)
		}
	}
}

// TestAccessRequestMails checks that requests are mailed to the members who may see and approve them, and decisions to
// the requester.
func TestAccessRequestMails(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		b := newBureau(t, s)
		prod := b.group(b.acme.UID, "prod")
		b.rule(prod.UID, nil)
		_, ann := b.employ(b.acme.UID, "ann@example.test", "owner")
		_, ben := b.employ(b.acme.UID, "ben@example.test", "owner")
		b.employ(b.acme.UID, "viewer@example.test", "viewer")
		b.employ(b.other.UID, "stranger@example.test", "owner") // has not joined acme
		_, rita := b.employ(b.acme.UID, "rita@example.test", "viewer")

		request := b.asked(rita, prod.UID)
		text := b.expect("a request", "ann@example.test", "ben@example.test")
		contains(t, "a request", text, `asks for the role "editor" on "prod in acme"`, "for 2h.", "incident 7",
			"holdfast access requests approve "+string(request))
		_, err := b.ApproveAccessRequest(rita, request)
		want(t, "approved by the requester", err, fault.PermissionDenied)
		_, err = b.ApproveAccessRequest(ann, request)
		must(t, err)
		contains(t, "approved", b.expect("approved", "rita@example.test"), "was approved", "You hold the role until")

		_, err = b.DenyAccessRequest(ben, b.asked(rita, prod.UID))
		must(t, err)
		text = b.expect("another request, and its refusal", "ann@example.test", "ben@example.test", "rita@example.test")
		contains(t, "denied", text, "Hello")

		dry := resource.WithDryRun(rita)
		b.asked(dry, prod.UID)
		b.asked(ann, prod.UID) // Ann may approve, but not her own request
		b.expect("a request of an approver", "ben@example.test")
	})
}

// TestAttackAccessRequestMails: a requester asks and withdraws again and again. People who may approve get a few
// messages, and still hear of the request of somebody else.
func TestAttackAccessRequestMails(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		b := newBureau(t, s)
		b.rule(b.acme.UID, nil)
		b.employ(b.acme.UID, "ann@example.test", "owner")
		_, mallory := b.employ(b.acme.UID, "mallory@example.test", "viewer")
		_, rita := b.employ(b.acme.UID, "rita@example.test", "viewer")
		for range 3 * mail.MaxBoth {
			r, err := b.RequestAccessTo(mallory, b.acme.UID, resource.AccessRequest{
				Role: editor, Duration: time.Hour, Reason: "see https://evil.example\r\nBcc: all@example.test",
			})
			must(t, err)
			_, err = b.HandBackAccessRequest(mallory, r.UID)
			must(t, err)
		}
		text := b.expect("many requests", slices.Repeat([]string{"ann@example.test"}, mail.MaxBoth)...)
		if strings.Contains(text, "evil.example") || strings.Contains(text, "Bcc:") {
			t.Errorf("the reason is not in a safe form:\n%s", text)
		}
		b.asked(rita, b.acme.UID)
		b.expect("a request of somebody else", "ann@example.test")
	})
}
