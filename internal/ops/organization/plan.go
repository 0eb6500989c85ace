package organization

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// A Planned is the result of Plan.
type Planned struct {
	simulation.Consequences
	Owners int // permanent owners of the organization after the changes
	Plan   []byte
	Expire time.Time // when Plan expires
}

// Plan makes the changes of an order and takes them back. It returns their consequences, and a proof for Apply. It
// returns the errors of Apply.
func (s *Service) Plan(ctx context.Context, o Order) (out Planned, _ error) {
	p, err := s.begin(ctx, o)
	if err != nil {
		return out, err
	}
	changes := o.Changes
	changes.Many = true
	changes.Apply = func(ctx context.Context) error {
		if err := s.requireFresh(ctx, o.Parent, p); err != nil {
			return err
		}
		if err := o.Changes.Apply(ctx); err != nil {
			return err
		}
		owners, err := s.store.PermanentOwners(ctx, o.Parent.Root())
		out.Owners = owners
		return err
	}
	if out.Consequences, err = s.simulation.Run(ctx, changes); err != nil {
		return out, err
	}
	out.Expire = s.db.Time().Add(PlanLife).Truncate(time.Second)
	out.Plan = s.sign(o, out.Expire)
	return out, nil
}

// emit records that the changes of an order were made.
func (s *Service) emit(ctx context.Context, o Order) error {
	return s.db.Write(ctx, func(t *store.Tx) error {
		return t.Emit(ctx, resource.OrganizationApplied, o.Parent, o.Parent, nil, resource.AppliedChanges{
			UID: o.Parent, Changes: o.Count, Commit: o.Commit, By: o.By, Planned: len(o.Plan) > 0,
		})
	})
}

// sign returns a plan: the time at which it expires, and a signature over that time and the order.
func (s *Service) sign(o Order, expire time.Time) []byte {
	plan := binary.BigEndian.AppendUint64(nil, uint64(expire.Unix()))
	mac := hmac.New(sha256.New, s.key.Derive("organization plans"))
	mac.Write(plan)
	for _, part := range []string{string(o.Parent), o.Revision, string(o.Digest[:])} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return mac.Sum(plan)
}

// checkPlan returns fault.FailedPrecondition if an order has a plan for another order, or an expired one.
func (s *Service) checkPlan(o Order) error {
	if len(o.Plan) == 0 {
		return nil
	}
	const size = 8 + sha256.Size
	if len(o.Plan) != size {
		return fault.Field("plan", "is not a plan that this server has returned")
	}
	expire := time.Unix(int64(binary.BigEndian.Uint64(o.Plan)), 0)
	if !hmac.Equal(o.Plan, s.sign(o, expire)) {
		return fault.Unmet("PLAN_MISMATCH", "the plan is not for exactly these changes and this revision; plan again")
	}
	if !s.db.Time().Before(expire) {
		return fault.Unmet("PLAN_EXPIRED", "the plan has expired; plan again")
	}
	return nil
}

// maxAuthors is the number of people that an error about a stale revision names.
const maxAuthors = 3

// requireFresh returns fault.FailedPrecondition if the configuration of a group or something below it has changed since
// a position.
func (s *Service) requireFresh(ctx context.Context, group resource.UID, p outbox.Position) error {
	const examined = 100
	events, total, err := outbox.Since(ctx, s.db, group, p, examined, func(e resource.Event) bool {
		return e.Type.Configures()
	})
	if errors.Is(err, outbox.ErrPositionLost) {
		return fault.Unmet("STALE", "stale: the revision is too old to know what has changed since; plan again")
	}
	if err != nil || total == 0 {
		return err
	}
	changes := "changes"
	if total == 1 {
		changes = "change"
	}
	f := fault.Unmet("STALE", "stale: %d %s since%s; plan again", total, changes, s.authors(ctx, events))
	f.Metadata = map[string]string{"changes": fmt.Sprint(total)}
	return f
}

// authors describes who caused events. It names only people and workloads whose events the caller may see.
func (s *Service) authors(ctx context.Context, events []resource.Event) string {
	var uids []resource.UID
	hidden := false
	for _, e := range events {
		switch {
		case !s.events.MayAudit(ctx, e):
			hidden = true
		case e.Actor.Subject != "" && !slices.Contains(uids, e.Actor.Subject):
			uids = append(uids, e.Actor.Subject)
		}
	}
	if len(uids) == 0 {
		return ""
	}
	unnamed := len(uids) > maxAuthors || hidden
	uids = uids[:min(len(uids), maxAuthors)]
	names := s.emails(ctx, uids)
	if unnamed {
		names = append(names, "others")
	}
	return ", by " + strings.Join(names, ", ")
}

// emails returns the e-mail addresses of people whom the caller may see, and the UIDs of all others.
func (s *Service) emails(ctx context.Context, uids []resource.UID) (names []string) {
	visible, err := s.iam.VisiblePeople(ctx, uids)
	if err != nil {
		visible = nil
	}
	found, err := s.store.IdentitiesByUID(ctx, visible)
	for _, uid := range uids {
		name := string(uid)
		if err == nil && found[uid].Email != "" {
			name = found[uid].Email
		}
		names = append(names, name)
	}
	return names
}

// next returns the revision after the caller's own changes, or "" if others have changed something since a position.
func (s *Service) next(ctx context.Context, group resource.UID, p outbox.Position) (string, error) {
	if resource.IsDryRun(ctx) {
		return "", nil
	}
	after, err := outbox.Now(ctx, s.db)
	if err != nil {
		return "", err
	}
	actor := resource.ActorFrom(ctx)
	_, foreign, err := outbox.Since(ctx, s.db, group, p, 0, func(e resource.Event) bool {
		return e.Type.Configures() && (e.Actor.RequestID != actor.RequestID || e.Actor.Subject != actor.Subject)
	})
	if err != nil || foreign > 0 {
		return "", nil // the changes are made, so the client reads the state again
	}
	return s.seal(group, after)
}
