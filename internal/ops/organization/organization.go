// Package organization makes many changes to the configuration of a group and everything below it in one transaction,
// for files that describe an organization. docs/organization-file.md describes what it guarantees.
package organization

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// The bounds of a request.
const (
	MaxChanges = 20_000         // greatest number of changes
	maxNote    = 256            // greatest length of Order.Commit and Order.By, in characters
	PlanLife   = 24 * time.Hour // how long a plan is valid
)

// A Service changes organizations. It is safe for concurrent use.
type Service struct {
	db         *store.DB
	store      *iamdb.Store
	authz      *authz.Checker
	iam        *iam.Service
	simulation *simulation.Service
	events     *event.Service
	key        secret.Key
	limiter    *fairlimit.Limiter
}

// New returns a Service over db.
func New(
	db *store.DB, a *authz.Checker, i *iam.Service, simulations *simulation.Service, e *event.Service, key secret.Key,
) *Service {
	limiter := fairlimit.YieldToWriters()
	if db.Replicated() { // other writers do not wait for the transaction
		limiter = fairlimit.New(fairlimit.Limits{
			Total: 4, PerTenant: 1, QueuedPerTenant: 4, Busy: fairlimit.Busy("too many of these at once"),
		})
	}
	return &Service{db: db, store: iamdb.New(db), authz: a, iam: i, simulation: simulations, events: e, key: key,
		limiter: limiter}
}

// State returns the revision of the configuration of a group and everything below it, and its time. The caller needs
// groups.list on the group.
func (s *Service) State(ctx context.Context, parent resource.UID) (revision string, at time.Time, _ error) {
	if _, err := authz.Get(ctx, s.authz, resource.GroupsList, parent, s.store.Group); err != nil {
		return "", at, err
	}
	at = s.db.Time()
	p, err := outbox.Now(ctx, s.db)
	if err != nil {
		return "", at, err
	}
	revision, err = s.seal(parent, p)
	return revision, at, err
}

// A revision is what the text of a revision contains. It is encrypted, because the numbers of events would show how
// much happens in other organizations.
type revision struct {
	Parent   resource.UID    `json:"p"`
	Position outbox.Position `json:"o"`
}

func (s *Service) seal(parent resource.UID, p outbox.Position) (string, error) {
	text, err := json.Marshal(revision{parent, p})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.key.Seal(secret.ForRevisions, text)), nil
}

// maxRevision is the greatest length of a revision, in bytes.
const maxRevision = 8 << 10

func (s *Service) open(parent resource.UID, text string) (p outbox.Position, _ error) {
	invalid := fault.Field("revision", "is not a revision of this group that this server has returned")
	if len(text) > maxRevision {
		return p, invalid
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return p, invalid
	}
	plain, err := s.key.Open(secret.ForRevisions, sealed)
	if err != nil {
		return p, invalid
	}
	var r revision
	if json.Unmarshal(plain, &r) != nil || r.Parent != parent {
		return p, invalid
	}
	return r.Position, nil
}

// An Order is a list of changes to apply.
type Order struct {
	Parent     resource.UID // group in which and below which the changes are made
	Revision   string       // revision on which the changes are based
	Commit, By string       // see resource.AppliedChanges
	Plan       []byte       // what Plan has returned, or nil
	Digest     [sha256.Size]byte
	Count      int // number of changes

	// Changes makes the changes. Each of them is authorized as if it were made alone. Decisions about access are made
	// from memory, which has the state before the transaction, so a change cannot use access that another one gives.
	Changes simulation.Changes
}

// Require returns nil if a group exists and the caller holds groups.list on it.
func (s *Service) Require(ctx context.Context, group resource.UID) error {
	_, err := authz.Get(ctx, s.authz, resource.GroupsList, group, s.store.Group)
	return err
}

// begin authorizes and validates an order, and returns the position of its revision. The caller needs groups.list on
// the group.
func (s *Service) begin(ctx context.Context, o Order) (p outbox.Position, err error) {
	if err := s.Require(ctx, o.Parent); err != nil {
		return p, err
	}
	for field, text := range map[string]string{"commit": o.Commit, "by": o.By} {
		if !isNote(text) {
			return p, fault.Field(field, "must have at most %d characters, none of them a control character", maxNote)
		}
	}
	if p, err = s.open(o.Parent, o.Revision); err != nil {
		return p, err
	}
	return p, s.checkPlan(o)
}

// isNote reports whether a text can be stored in an event for people.
func isNote(text string) bool {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxNote {
		return false
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// Apply makes all changes of an order in one transaction, with an event, or none of them. It returns the new revision,
// or "" if others have changed something at the same time. It returns fault.FailedPrecondition if the plan is for other
// changes, or if something in the group or below it has changed since the revision.
func (s *Service) Apply(ctx context.Context, o Order) (string, error) {
	p, err := s.begin(ctx, o)
	if err != nil {
		return "", err
	}
	release, err := s.limiter.Acquire(ctx, s.authz.Tenant(ctx))
	if err != nil {
		return "", err
	}
	defer release()
	err = s.db.Combine(ctx, func(ctx context.Context) error {
		// One after the other in an organization, so that the second one sees the events of the first one.
		if err := s.db.Write(ctx, func(t *store.Tx) error {
			return t.LockName(ctx, "organization", store.Segment(o.Parent.Root()))
		}); err != nil {
			return err
		}
		if err := s.requireFresh(ctx, o.Parent, p); err != nil {
			return err
		}
		if err := o.Changes.Apply(ctx); err != nil {
			return err
		}
		if err := s.emit(ctx, o); err != nil {
			return err
		}
		if s.db.Replicated() { // others may have made changes in the meantime; our own events are written later
			return s.requireFresh(ctx, o.Parent, p)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return s.next(ctx, o.Parent, p)
}
