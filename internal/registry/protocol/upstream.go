package protocol

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateUpstream gives a group an upstream. The caller needs groups.update on it, as for its registry settings.
func (s *Service) CreateUpstream(
	ctx context.Context, group resource.UID, u registry.Upstream,
) (registry.Upstream, error) {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, group); err != nil {
		return registry.Upstream{}, err
	}
	if u.Address == "" {
		u.Address = registry.AddressOf(u.Name)
	}
	if err := s.checkUpstream(&u); err != nil {
		return registry.Upstream{}, err
	}
	u.UID, u.CreateTime = group.NewChild(), s.now()
	u.UpdateTime = u.CreateTime
	if err := s.sealUpstream(&u); err != nil {
		return registry.Upstream{}, err
	}
	return u, s.sourceStore.InsertUpstream(ctx, u)
}

// checkUpstream fills in what was not given, and returns fault.InvalidArgument for what cannot be.
func (s *Service) checkUpstream(u *registry.Upstream) error {
	if u.FreshFor == 0 {
		u.FreshFor = registry.DefaultFreshFor
	}
	if u.Realm == "" {
		u.Realm = registry.DefaultRealm(u.Address)
	}
	if err := u.Validate(); err != nil {
		return err
	}
	if s.cfg.Upstreams == nil {
		return fault.Unmet("UPSTREAMS_OFF", "this server fetches from no upstreams")
	}
	for field, address := range map[string]string{"address": u.Address, "realm": u.Realm} {
		at, err := url.Parse(address)
		if err == nil && address != "" {
			err = s.cfg.Outbound.Check(at)
		}
		if err != nil {
			return fault.Field(field, "cannot be used: %v", err)
		}
	}
	return nil
}

// A sealedSignIn is what is sealed of credentials: they are bound to where they may be sent.
type sealedSignIn struct {
	Address     string `json:"address"`
	Realm       string `json:"realm"`
	Credentials string `json:"credentials"`
}

// sealUpstream encrypts credentials that were given in plain text.
func (s *Service) sealUpstream(u *registry.Upstream) error {
	if u.Credentials.Plain == "" {
		return nil
	}
	plain, err := json.Marshal(sealedSignIn{u.Address, u.Realm, u.Credentials.Plain})
	if err != nil {
		return err
	}
	u.Credentials = resource.Secret{Sealed: s.cfg.Key.Seal(secret.ForUpstreams, plain)}
	return nil
}

// GetUpstream returns an upstream. The caller needs registry.settings.list on it.
func (s *Service) GetUpstream(ctx context.Context, uid resource.UID) (registry.Upstream, error) {
	return authz.Get(ctx, s.authz, resource.RegistrySettingsList, uid, s.sourceStore.Upstream)
}

// ListUpstreams returns a page of the upstreams the caller holds registry.settings.list on.
func (s *Service) ListUpstreams(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[registry.Upstream], error) {
	return authz.List(ctx, s.authz, s.pages, sourcedb.UpstreamList, resource.RegistrySettingsList, f, p, s.sourceStore.Upstreams)
}

// UpdateUpstream applies change to an upstream. The caller needs groups.update on it. If its address or its realm changes,
// it loses its credentials unless the change has new ones: nobody can have them sent elsewhere.
func (s *Service) UpdateUpstream(
	ctx context.Context, uid resource.UID, change func(*registry.Upstream) error,
) (registry.Upstream, error) {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, uid); err != nil {
		return registry.Upstream{}, err
	}
	var stored resource.Secret // which a copy does not have
	read := func(ctx context.Context, uid resource.UID) (registry.Upstream, error) {
		u, err := s.sourceStore.Upstream(ctx, uid)
		stored = u.Credentials
		return u, err
	}
	return store.Edit(ctx, uid, read, s.sourceStore.UpdateUpstream, func(u *registry.Upstream) error {
		u.Credentials = stored
		before := *u
		if err := change(u); err != nil {
			return err
		}
		u.UID, u.CreateTime = before.UID, before.CreateTime
		if before.Address != u.Address && before.Realm == u.Realm && u.Realm == registry.DefaultRealm(before.Address) {
			u.Realm = "" // it was not given, and goes with the address
		}
		if err := s.checkUpstream(u); err != nil {
			return err
		}
		if !u.SameHolder(before) && u.Credentials.Plain == "" {
			u.Credentials = resource.Secret{}
		}
		return s.sealUpstream(u)
	})
}

// DeleteUpstream takes the upstream from its group; what was fetched stays. The caller needs groups.update on it.
func (s *Service) DeleteUpstream(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.GroupsUpdate, uid, s.sourceStore.DeleteUpstream)
}

// requireUnmirrored returns fault.FailedPrecondition if a group has an upstream: nothing but that changes what is there.
func (s *Service) requireUnmirrored(ctx context.Context, group resource.UID) error {
	set, err := s.images.upstreams.Get(ctx)
	if err != nil {
		return err
	}
	if u, ok := set.Over(group); ok {
		return fault.Unmet("MIRROR", "%s", readOnly(u))
	}
	return nil
}

func readOnly(u registry.Upstream) string {
	return "the group is a mirror of " + u.Name + ": what is in it comes from there, and nothing can be pushed to it"
}

// remote returns the registry that an upstream is.
func (r *Registry) remote(u registry.Upstream) upstream.Registry {
	to := upstream.Registry{
		Key: string(u.UID) + " " + u.UpdateTime.String(), Address: u.Address, Realm: u.Realm,
	}
	switch {
	case u.Identity != "":
		to.SignIn = func(ctx context.Context) (user, password string, err error) {
			password, err = r.issuer.MintUpstream(ctx, u.UID, u.Address)
			return u.Identity, password, err
		}
	case !u.Credentials.Empty():
		to.SignIn = func(context.Context) (user, password string, err error) { return r.openSignIn(u) }
	}
	return to
}

// openSignIn decrypts the credentials of an upstream, if they are for where it is.
func (r *Registry) openSignIn(u registry.Upstream) (user, password string, _ error) {
	plain, err := r.config.Key.Open(secret.ForUpstreams, u.Credentials.Sealed)
	if err != nil {
		return "", "", err
	}
	var s sealedSignIn
	if err := json.Unmarshal(plain, &s); err != nil {
		return "", "", fault.New(fault.Internal, "the credentials of an upstream cannot be read")
	}
	if s.Address != u.Address || s.Realm != u.Realm {
		return "", "", fault.New(fault.Internal, "the credentials are for another address than that of the upstream")
	}
	user, password, _ = strings.Cut(s.Credentials, ":")
	return user, password, nil
}
