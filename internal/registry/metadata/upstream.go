package metadata

import (
	"context"
	"net/url"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateUpstream adds an upstream to a group. The caller needs groups.update on the group, as for the registry
// settings.
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
	if err := mirror.SealCredentials(s.cfg.Key, &u); err != nil {
		return registry.Upstream{}, err
	}
	return u, s.sources.InsertUpstream(ctx, u)
}

// checkUpstream sets the defaults of fields that were not given, and returns fault.InvalidArgument for invalid fields.
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
	if !s.cfg.Fetches {
		return fault.Unmet("UPSTREAMS_OFF", "this server does not fetch from upstreams")
	}
	for field, address := range map[string]string{"address": u.Address, "realm": u.Realm} {
		u, err := url.Parse(address)
		if err == nil && address != "" {
			err = s.cfg.Outbound.Check(u)
		}
		if err != nil {
			return fault.Field(field, "cannot be used: %v", err)
		}
	}
	return nil
}

// GetUpstream returns an upstream. The caller needs registry.settings.list on it.
func (s *Service) GetUpstream(ctx context.Context, uid resource.UID) (registry.Upstream, error) {
	return authz.Get(ctx, s.authz, resource.RegistrySettingsList, uid, s.sources.Upstream)
}

// ListUpstreams returns a page of the upstreams on which the caller holds registry.settings.list.
func (s *Service) ListUpstreams(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[registry.Upstream], error) {
	return authz.List(ctx, s.authz, s.pages, sourcedb.UpstreamList, resource.RegistrySettingsList, f, p,
		s.sources.Upstreams)
}

// UpdateUpstream applies change to an upstream. The caller needs groups.update on it. If the address or the realm
// changes, the credentials are removed unless the change has new ones, so that nobody can make the server send them
// to another host.
func (s *Service) UpdateUpstream(
	ctx context.Context, uid resource.UID, change func(*registry.Upstream) error,
) (registry.Upstream, error) {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, uid); err != nil {
		return registry.Upstream{}, err
	}
	var stored resource.Secret // stored credentials, because store.Edit passes a copy without them to change
	read := func(ctx context.Context, uid resource.UID) (registry.Upstream, error) {
		u, err := s.sources.Upstream(ctx, uid)
		stored = u.Credentials
		return u, err
	}
	return store.Edit(ctx, uid, read, s.sources.UpdateUpstream, func(u *registry.Upstream) error {
		u.Credentials = stored
		before := *u
		if err := change(u); err != nil {
			return err
		}
		u.UID, u.CreateTime = before.UID, before.CreateTime
		if before.Address != u.Address && before.Realm == u.Realm && u.Realm == registry.DefaultRealm(before.Address) {
			u.Realm = "" // the realm was the default for the old address
		}
		if err := s.checkUpstream(u); err != nil {
			return err
		}
		if !u.SameHolder(before) && u.Credentials.Plain == "" {
			u.Credentials = resource.Secret{}
		}
		return mirror.SealCredentials(s.cfg.Key, u)
	})
}

// DeleteUpstream deletes an upstream. Fetched images remain. The caller needs groups.update on it.
func (s *Service) DeleteUpstream(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.GroupsUpdate, uid, s.sources.DeleteUpstream)
}

// ProbeUpstream sends a test request to an upstream and returns the reason why the upstream cannot be used, or "".
// asked is false if nothing was tested: in a dry run, in a transaction of several changes, which must not wait for
// others, or if the organization has too many requests running. It does not authorize the caller, who must have created
// u.
func (s *Service) ProbeUpstream(ctx context.Context, u registry.Upstream) (reason string, asked bool) {
	if resource.IsDryRun(ctx) || store.InTransaction(ctx) {
		return "", false
	}
	return s.mirror.Probe(ctx, u)
}

// UpstreamFailure returns the failure of the last request of this server to an upstream, if the settings of the
// upstream have not changed since. ok is false if the last request succeeded. It does not authorize the caller, who
// must have read u with another method.
func (s *Service) UpstreamFailure(u registry.Upstream) (_ mirror.Failure, ok bool) {
	return s.mirror.LastFailure(u)
}
