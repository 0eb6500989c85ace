package scim

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/patch"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The greatest lengths of the names of a user in bytes. A subject of a provider has at most maxExternalID bytes, too.
const (
	maxUserName   = 256
	maxExternalID = 2048
)

// setAttributes replaces the attributes of a user by o, from which it also reads the user's names and state. Without
// active or externalId in o, their values stay, because a request that forgets one must neither give nor take access.
func setAttributes(u *scimdb.User, o document.Object) error {
	n, err := readNames(o, namedBy{"userName", maxUserName, maxExternalID}, u.ExternalID)
	if err != nil {
		return err
	}
	active := u.Active
	if v, ok := n.attributes["active"]; ok {
		if active, ok = v.(bool); !ok {
			return document.Bad(document.InvalidValue, "The attribute active must be true or false.")
		}
	}
	n.attributes["active"] = active
	u.UserName, u.ExternalID, u.Active, u.Attributes = n.name, n.externalID, active, n.attributes
	return nil
}

// createUser adds a user with the attributes o.
func (s *Service) createUser(ctx context.Context, c client, o document.Object) (u scimdb.User, _ error) {
	created := store.MS(s.now())
	u = scimdb.User{ID: strings.ToLower(rand.Text()), Active: true, Version: 1, CreateMS: created, UpdateMS: created,
		ActiveMS: created}
	if err := setAttributes(&u, o); err != nil {
		return u, err
	}
	err := s.change(ctx, c, func(t *change) error {
		if err := t.gate(ctx, scimdb.User{}, u, u.Active); err != nil {
			return err
		}
		if err := t.follow(ctx, scimdb.User{}, &u); err != nil {
			return err
		}
		if err := t.users.InsertUser(ctx, c.provider.UID, u); err != nil {
			return err
		}
		return t.iam.RelinkMember(ctx, c.provider.UID, u.ID, u.ExternalID, "", u.Identity)
	})
	return u, taken(err)
}

// taken turns the error for a name that is in use into an error of the protocol.
func taken(err error) error {
	if errors.Is(err, fault.AlreadyExists) {
		return &document.Error{Status: http.StatusConflict, Type: document.Uniqueness,
			Detail: "The directory has a user with this userName or externalId."}
	}
	return err
}

// replaceUser replaces the attributes of a user by o.
func (s *Service) replaceUser(
	ctx context.Context, c client, id string, match matcher, o document.Object,
) (scimdb.User, error) {
	_, _, states := document.Get(o, "active")
	return s.editUser(ctx, c, id, match, states, func(scimdb.User) (document.Object, error) { return o, nil })
}

// patchUser applies operations to a user. An operation that removes externalId ends the access of the person.
func (s *Service) patchUser(
	ctx context.Context, c client, id string, match matcher, operations []patch.Operation,
) (scimdb.User, error) {
	return s.editUser(ctx, c, id, match, setsActive(operations), func(u scimdb.User) (document.Object, error) {
		o, err := patch.Apply(u.Attributes, operations)
		if err != nil {
			return nil, err
		}
		if _, ok := o["externalId"]; !ok {
			o["externalId"] = ""
		}
		return o, nil
	})
}

// setsActive reports whether operations contain a value of the attribute active.
func setsActive(operations []patch.Operation) bool {
	o, err := patch.Apply(document.Object{}, operations)
	_, _, found := document.Get(o, "active")
	return err == nil && found
}

// editUser replaces the attributes of a user by what edit returns. It writes nothing if they are the same. states
// reports whether the request contains a value of active.
func (s *Service) editUser(
	ctx context.Context, c client, id string, match matcher, states bool,
	edit func(scimdb.User) (document.Object, error),
) (u scimdb.User, _ error) {
	err := s.change(ctx, c, func(t *change) error {
		before, err := t.users.LockUser(ctx, c.provider.UID, id)
		if err != nil {
			return err
		}
		if err := match.check(before.Version); err != nil {
			return err
		}
		o, err := edit(before)
		if err != nil {
			return err
		}
		u = before
		if err := setAttributes(&u, o); err != nil {
			return err
		}
		if err := t.gate(ctx, before, u, states && u.Active); err != nil {
			return err
		}
		unchanged, err := sameAttributes(before, u)
		if err != nil || unchanged {
			return err
		}
		return t.update(ctx, before, &u)
	})
	return u, taken(err)
}

// update writes a user that was changed from before to u, and makes the access of people follow.
func (t *change) update(ctx context.Context, before scimdb.User, u *scimdb.User) error {
	u.Version, u.UpdateMS = before.Version+1, max(store.MS(t.at), before.UpdateMS)
	if u.Active && !before.Active {
		u.ActiveMS = u.UpdateMS
	}
	if err := t.follow(ctx, before, u); err != nil {
		return err
	}
	if u.Identity != before.Identity || u.ExternalID != before.ExternalID {
		err := t.iam.RelinkMember(ctx, t.provider.UID, u.ID, u.ExternalID, before.Identity, u.Identity)
		if err != nil {
			return err
		}
	}
	return t.users.UpdateUser(ctx, t.provider.UID, *u)
}

// sameAttributes reports whether two states of a user have the same attributes, in any order.
func sameAttributes(a, b scimdb.User) (bool, error) {
	left, err := json.Marshal(a.Attributes)
	if err != nil {
		return false, err
	}
	right, err := json.Marshal(b.Attributes)
	return bytes.Equal(left, right), err
}

// deleteUser removes a user, and ends the access of the person.
func (s *Service) deleteUser(ctx context.Context, c client, id string, match matcher) error {
	return s.changeAlone(ctx, c, func(t *change) error {
		u, err := t.users.LockUser(ctx, c.provider.UID, id)
		if err != nil {
			return err
		}
		if err := match.check(u.Version); err != nil {
			return err
		}
		if err := t.gate(ctx, u, scimdb.User{}, false); err != nil {
			return err
		}
		return t.remove(ctx, u)
	})
}

// remove removes a user, and ends the access of the person.
func (t *change) remove(ctx context.Context, u scimdb.User) error {
	if u.ExternalID != "" {
		if err := t.depart(ctx, u); err != nil {
			return err
		}
	}
	if err := t.iam.DropMember(ctx, t.provider.UID, u.ID, u.Identity); err != nil {
		return err
	}
	return t.users.DeleteUser(ctx, t.provider.UID, u.ID)
}

// render returns a user as a resource.
func (s *Service) render(provider resource.UID, u scimdb.User) document.Object {
	o := make(document.Object, len(u.Attributes)+3)
	for name, v := range u.Attributes {
		o[name] = v
	}
	o["id"] = u.ID
	o["schemas"] = document.SchemasOf(document.UserSchema, o)
	o["meta"] = document.Object{
		"resourceType": "User", "location": s.Endpoint(provider) + "/Users/" + u.ID, "version": etagOf(u.Version),
		"created":      store.FromMS(u.CreateMS).Format(resource.Milliseconds),
		"lastModified": store.FromMS(u.UpdateMS).Format(resource.Milliseconds),
	}
	return o
}

func etagOf(version int64) string { return `W/"` + strconv.FormatInt(version, 10) + `"` }
