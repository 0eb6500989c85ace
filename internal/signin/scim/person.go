package scim

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A change is a transaction that changes the users of a directory.
type change struct {
	users     scimdb.Tx
	iam       iamdb.Tx
	provider  resource.IdentityProvider
	directory resource.Directory
	alone     bool           // no other change of the directory runs at the same time
	at        time.Time      // when the change began
	ownerless []resource.UID // organizations that have lost their last active owner
}

// change runs f in a transaction. It returns fault.Unauthenticated if the token of the request was revoked before the
// commit, and the errors of usable.
// It calls f again, as changeAlone does, if f takes away access.
func (s *Service) change(ctx context.Context, c client, f func(t *change) error) error {
	err := s.changeWith(ctx, c, scimdb.Tx.Hold, f)
	if errors.Is(err, errNotAlone) {
		return s.changeAlone(ctx, c, f)
	}
	return err
}

// changeAlone is change for a change that no other change of the same directory may overlap: the members of teams refer
// to users.
func (s *Service) changeAlone(ctx context.Context, c client, f func(t *change) error) error {
	return s.changeWith(ctx, c, scimdb.Tx.HoldAlone, func(t *change) error {
		t.alone = true
		return f(t)
	})
}

func (s *Service) changeWith(
	ctx context.Context, c client, hold func(scimdb.Tx, context.Context, resource.UID) (resource.Directory, error),
	f func(t *change) error,
) error {
	var ownerless []resource.UID
	var held error // the refusal of a held change, which is committed
	err := s.store.Write(ctx, func(tx *store.Tx) error {
		t := &change{users: scimdb.In(tx), iam: iamdb.In(tx), at: s.now()}
		d, err := hold(t.users, ctx, c.provider.UID)
		if err != nil {
			return err
		}
		t.directory, held = d, nil
		if !accepts(d, c.digest, s.now()) {
			return errToken()
		}
		if t.provider, err = t.iam.HoldProvider(ctx, c.provider.UID); err != nil {
			return err
		}
		if err := usable(t.provider, d); err != nil {
			return err
		}
		if err := f(t); errors.Is(err, errHeld) {
			held = err
		} else if err != nil {
			return err
		}
		ownerless = t.ownerless
		return nil
	})
	if err != nil {
		return err
	}
	s.warnOwnerless(ctx, c.provider.UID, ownerless)
	if held != nil {
		s.cfg.Log.WarnContext(ctx, "a directory takes away the access of many people; the change is held until an owner or "+
			"an operator decides", "provider", c.provider.UID)
	}
	return held
}

func (s *Service) warnOwnerless(ctx context.Context, provider resource.UID, ownerless []resource.UID) {
	if len(ownerless) > 0 {
		s.cfg.Log.WarnContext(ctx, "a directory has deactivated the last permanent owner of organizations; "+
			"restore access with holdfastd owners recover", "organizations", ownerless, "provider", provider)
	}
}

// follow makes the access of people follow a user that was changed from before to u. before is the zero value for a new
// user. It sets the identity of u.
func (t *change) follow(ctx context.Context, before scimdb.User, u *scimdb.User) error {
	if before.ExternalID != "" && before.ExternalID != u.ExternalID {
		if err := t.depart(ctx, before); err != nil {
			return err
		}
	}
	if u.Identity = ""; u.ExternalID == "" {
		return nil
	}
	if err := t.users.Return(ctx, t.provider.UID, u.ExternalID); err != nil {
		return err
	}
	person, err := t.iam.LockPerson(ctx, t.provider.Realm, u.ExternalID)
	if errors.Is(err, fault.NotFound) {
		if !u.Active {
			return nil // Admits refuses the person's first sign-in
		}
		person, err = t.addPerson(ctx, *u)
	} else if err == nil {
		err = t.updatePerson(ctx, before, *u, person)
	}
	if err != nil {
		return err
	}
	u.Identity = person.UID
	if u.Active {
		return t.iam.Unsuspend(ctx, person.UID, t.provider.UID)
	}
	return t.suspend(ctx, person.UID)
}

// depart takes away the access of the person who was linked to a user.
func (t *change) depart(ctx context.Context, u scimdb.User) error {
	person, err := t.iam.LockPerson(ctx, t.provider.Realm, u.ExternalID)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	if err := t.users.Depart(ctx, t.provider.UID, person.UID, u.ExternalID); err != nil || person.UID == "" {
		return err
	}
	return t.suspend(ctx, person.UID)
}

func (t *change) suspend(ctx context.Context, person resource.UID) error {
	ownerless, err := t.iam.Suspend(ctx, person, t.provider.UID)
	t.ownerless = append(t.ownerless, ownerless...)
	return err
}

// addPerson creates the identity of a user's person, who has not signed in yet. The person has no roles.
func (t *change) addPerson(ctx context.Context, u scimdb.User) (i resource.Identity, _ error) {
	uid, err := t.iam.NewPersonUID(ctx, t.provider.Realm, u.ExternalID)
	if err != nil {
		return i, err
	}
	created := store.FromMS(u.UpdateMS)
	i = resource.Identity{
		UID: uid, Name: resource.PersonName(nameOf(u), u.UserName, u.ExternalID), DisplayName: nameOf(u),
		EmailUnverified: emailOf(u), Realm: t.provider.Realm, Provider: t.provider.UID,
		LastSeenTime: created, CreateTime: created, UpdateTime: created,
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{
			Issuer: t.provider.OIDC.Issuer, Subject: u.ExternalID,
		}},
	}
	return i, t.iam.InsertIdentity(ctx, i)
}

// updatePerson gives a person the name and the e-mail address of a user, if the directory has changed them. The address
// is not verified: only the provider vouches for it at the next sign-in.
func (t *change) updatePerson(ctx context.Context, before, u scimdb.User, person resource.Identity) error {
	after := person
	if name := nameOf(u); name != "" && name != nameOf(before) {
		after.DisplayName = name
	}
	if email := emailOf(u); email != "" && email != emailOf(before) && email != person.Email {
		after.Email, after.EmailUnverified = "", email
	}
	if after.DisplayName == person.DisplayName && after.EmailUnverified == person.EmailUnverified {
		return nil
	}
	return t.iam.UpdateIdentity(ctx, resource.IdentityUpdated, person, &after)
}

// nameOf returns the name of a user for people.
func nameOf(u scimdb.User) string {
	o := document.Object(u.Attributes)
	if name := document.Text(o, "displayName"); name != "" {
		return resource.PersonDisplayName(name)
	}
	_, v, _ := document.Get(o, "name")
	name, _ := v.(document.Object)
	if formatted := document.Text(name, "formatted"); formatted != "" {
		return resource.PersonDisplayName(formatted)
	}
	return resource.PersonDisplayName(document.Text(name, "givenName") + " " + document.Text(name, "familyName"))
}

// maxEmail is the greatest length of an e-mail address in bytes.
const maxEmail = 254

// emailOf returns the primary e-mail address of a user, or else the first one.
func emailOf(u scimdb.User) string {
	_, v, _ := document.Get(u.Attributes, "emails")
	values, _ := v.([]any)
	best := ""
	for _, v := range values {
		o := filter.AsObject(v)
		address := document.Text(o, "value")
		if address == "" || len(address) > maxEmail || !input.Readable(address) {
			continue
		}
		if primary, _ := o["primary"].(bool); primary {
			return address
		}
		if best == "" {
			best = address
		}
	}
	return best
}
