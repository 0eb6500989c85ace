package scim

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	holdWindow = time.Hour      // period in which losses of access count together
	holdAge    = 24 * time.Hour // a person counts as one of the directory's people after this time
	maxDecided = 500            // changes that one confirmation makes
)

// errNotAlone makes Service.change call its function again, without other changes at the same time.
var errNotAlone = errors.New("a change that takes away access must run alone")

// errHeld is the answer to a change that is held. Nothing of the request is done, so the answer is an error: a
// directory that got a success would show people as deactivated who still have access. It is 409 and not 429 or 503,
// because directories stop all their changes after these, and a decision can take days.
var errHeld error = &document.Error{Status: http.StatusConflict, Detail: "This change is held, and nothing has " +
	"changed: the directory has taken away the access of many people within an hour. An owner of the organization must " +
	"confirm or discard it in Holdfast."}

// gate decides about a change of a user from before to after, before anything is written: after is the zero value for a
// deletion. It returns errHeld if the change takes away access and must be held, and then has recorded that. The
// transaction must be committed nevertheless. wanted reports whether the request says that the user is active, which
// discards an earlier held change for the person.
func (t *change) gate(ctx context.Context, before, after scimdb.User, wanted bool) error {
	losses, err := t.losses(ctx, before, after)
	if err != nil {
		return err
	}
	if len(losses) == 0 && (!wanted || t.directory.Held == 0 || after.ExternalID == "") {
		return nil
	}
	if !t.alone {
		return errNotAlone
	}
	if len(losses) == 0 {
		dropped, err := t.users.DropHeld(ctx, t.provider.UID, after.ExternalID)
		if err != nil || !dropped {
			return err
		}
		return t.addHeld(ctx, -1)
	}
	exceeded, err := t.exceeds(ctx, losses)
	if err != nil {
		return err
	}
	if !exceeded {
		return t.noteLosses(ctx, losses)
	}
	added, err := t.users.AddHeld(ctx, t.directory, losses)
	if err == nil && added > 0 {
		err = t.addHeld(ctx, added)
	}
	if err == nil {
		err = errHeld
	}
	return err
}

// losses returns how the change of a user takes away the access of people who have access now.
func (t *change) losses(ctx context.Context, before, after scimdb.User) (losses []resource.HeldChange, _ error) {
	add := func(subject, user string, kind resource.HeldKind) error {
		person, err := t.iam.LockPerson(ctx, t.provider.Realm, subject)
		if errors.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		suspended, err := t.iam.IsSuspended(ctx, person.UID)
		if err == nil && !suspended {
			losses = append(losses, resource.HeldChange{ExternalID: subject, Identity: person.UID, UserID: user, Kind: kind,
				Time: t.at})
		}
		return err
	}
	if before.ExternalID != "" && before.ExternalID != after.ExternalID {
		kind := resource.HeldUnlinking
		if after.ID == "" {
			kind = resource.HeldDeletion
		}
		if err := add(before.ExternalID, before.ID, kind); err != nil {
			return nil, err
		}
	}
	if after.ExternalID != "" && !after.Active {
		return losses, add(after.ExternalID, before.ID, resource.HeldDeactivation)
	}
	return losses, nil
}

// exceeds reports whether losses must be held: other changes are held, or too many people of the directory would have
// lost access within an hour. People count once, also if they got their access back. People whom the directory has
// added or activated within a day do not raise the limit.
func (t *change) exceeds(ctx context.Context, losses []resource.HeldChange) (bool, error) {
	d := t.directory
	if d.Held > 0 {
		return true, nil
	}
	people := make([]resource.UID, len(losses))
	for i, c := range losses {
		people[i] = c.Identity
	}
	lost, gone, err := t.users.Losses(ctx, t.provider.UID, t.at.Add(-holdWindow), people)
	if err != nil {
		return false, err
	}
	if lost += int64(len(losses)); lost < d.HoldMinimum {
		return false, nil
	}
	known, err := t.users.People(ctx, t.provider.UID, t.at.Add(-holdAge))
	return lost*100 > d.HoldPercent*(known+gone), err
}

func (t *change) noteLosses(ctx context.Context, losses []resource.HeldChange) error {
	for _, c := range losses {
		if err := t.users.NoteLoss(ctx, t.provider.UID, c.Identity, t.at, t.at.Add(-holdWindow)); err != nil {
			return err
		}
	}
	return nil
}

// addHeld changes the number of held changes of the directory. The first one and the end of the last one are events.
func (t *change) addHeld(ctx context.Context, n int64) error {
	before := t.directory
	before.RolesFromTeams = t.provider.DirectoryRoles
	after := before
	after.Held += n
	after.Version++
	t.directory = after
	if err := t.users.SetHeld(ctx, after); err != nil || before.Held > 0 && after.Held > 0 {
		return err
	}
	return t.users.Emit(ctx, resource.DirectoryUpdated, t.provider.UID, t.provider.UID.Parent(), before, after)
}

// A Decision is what happens to the held changes of a directory. Its values are the same as in the API.
type Decision int32

// These are the decisions.
const (
	Undecided Decision = iota
	Confirm
	Discard
)

// mayDecide returns fault.PermissionDenied unless the caller may decide about held changes and change the limits: an
// operator, or a person who is a permanent owner because somebody has assigned the role. An owner through a team or a
// claim may not, because whoever controls the directory can make one. A person whose own access is to be taken away may
// not, either.
func (s *Service) mayDecide(ctx context.Context, tx *store.Tx, p resource.IdentityProvider) error {
	caller, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return err
	}
	held, err := scimdb.In(tx).IsHeld(ctx, p.UID, caller.Identity)
	if err != nil {
		return err
	}
	if held {
		return fault.New(fault.PermissionDenied,
			"Permission denied: the directory wants to take away your access, so that somebody else must decide")
	}
	if s.isOperator(ctx) {
		return nil
	}
	owner, err := iamdb.In(tx).IsAssignedOwner(ctx, p.UID.Root(), caller.Identity)
	if err == nil && !owner {
		err = fault.New(fault.PermissionDenied, "Permission denied: only an owner of the organization whose role somebody "+
			"has assigned and does not expire, or an operator, may decide about held changes and change their limits")
	}
	return err
}

func (s *Service) isOperator(ctx context.Context) bool {
	return s.cfg.Operator != nil && s.cfg.Operator(ctx)
}

// decide confirms or discards held changes of a directory d: all of them are discarded, or the maxDecided oldest ones
// are made.
func (s *Service) decide(
	ctx context.Context, tx *store.Tx, p resource.IdentityProvider, d *resource.Directory, decision Decision,
) error {
	n := maxDecided
	if decision == Discard {
		n = int(d.Held)
	}
	t := &change{users: scimdb.In(tx), iam: iamdb.In(tx), provider: p, directory: *d, alone: true, at: s.now()}
	held, err := t.users.Held(ctx, p.UID, n)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return fault.Unmet("NOTHING_HELD", "no change of the directory is held")
	}
	for _, c := range held {
		if decision == Confirm {
			if err := t.perform(ctx, c); err != nil {
				return err
			}
		}
		if _, err := t.users.DropHeld(ctx, p.UID, c.ExternalID); err != nil {
			return err
		}
	}
	d.Held -= int64(len(held))
	s.warnOwnerless(ctx, p.UID, t.ownerless)
	return nil
}

// perform makes a held change. If the user does not exist, the person loses access nevertheless.
func (t *change) perform(ctx context.Context, c resource.HeldChange) error {
	if err := t.noteLosses(ctx, []resource.HeldChange{c}); err != nil {
		return err
	}
	before, err := t.users.LockUserOf(ctx, t.provider.UID, c.ExternalID)
	if errors.Is(err, fault.NotFound) {
		return t.depart(ctx, scimdb.User{ExternalID: c.ExternalID})
	}
	if err != nil {
		return err
	}
	u := before
	u.Attributes = maps.Clone(before.Attributes)
	switch c.Kind {
	case resource.HeldDeletion:
		return t.remove(ctx, before)
	case resource.HeldUnlinking:
		u.ExternalID = ""
		delete(u.Attributes, "externalId")
	default:
		u.Active = false
		u.Attributes["active"] = false
	}
	return t.update(ctx, before, &u)
}

// Held returns the oldest held changes of a directory, at most n. The caller needs identity_providers.list on the
// provider; without identity.list in its organization, the changes do not say whom they concern.
func (s *Service) Held(ctx context.Context, provider resource.UID, n int) ([]resource.HeldChange, error) {
	if err := s.mayRead(ctx, provider); err != nil {
		return nil, err
	}
	held, err := s.store.Held(ctx, provider, n)
	if !s.isOperator(ctx) && !s.authz.Sees(ctx, resource.IdentityList, provider.Root()) {
		for i, c := range held {
			held[i] = resource.HeldChange{Kind: c.Kind, Time: c.Time}
		}
	}
	return held, err
}

// mayRead checks that the caller is an operator or has identity_providers.list on a provider.
func (s *Service) mayRead(ctx context.Context, provider resource.UID) error {
	if s.isOperator(ctx) {
		return nil
	}
	return s.authz.Require(ctx, resource.IdentityProvidersList, provider)
}
