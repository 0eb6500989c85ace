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
	"github.com/holdfast-dev/holdfast/internal/registry/replication"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateReplication adds a replication to a group. The caller needs replication.Capabilities on the group. Copies act
// as the caller.
func (s *Service) CreateReplication(
	ctx context.Context, group resource.UID, r registry.Replication,
) (registry.Replication, error) {
	if err := s.mayReplicate(ctx, group); err != nil {
		return registry.Replication{}, err
	}
	if err := s.checkReplication(&r); err != nil {
		return registry.Replication{}, err
	}
	r.UID, r.CreateTime, r.SetBy = group.NewChild(), s.now(), setBy(ctx)
	r.UpdateTime = r.CreateTime
	if err := s.sealReplication(&r); err != nil {
		return registry.Replication{}, err
	}
	return r, s.sources.InsertReplication(ctx, r)
}

// mayReplicate returns nil if the caller may copy the images of a group to another registry.
func (s *Service) mayReplicate(ctx context.Context, place resource.UID) error {
	return s.authz.RequireAll(ctx, resource.NewCapabilities(replication.Capabilities...), place)
}

// setBy returns the identity of the caller.
func setBy(ctx context.Context) resource.UID {
	c, _ := authz.CallerFrom(ctx)
	return c.Identity
}

// checkReplication sets the defaults of fields that were not given, and returns fault.InvalidArgument for invalid
// fields.
func (s *Service) checkReplication(r *registry.Replication) error {
	if r.Trigger == 0 {
		r.Trigger = registry.OnPush
	}
	if r.Realm == "" {
		r.Realm = registry.DefaultRealm(r.Address)
	}
	if err := r.Validate(); err != nil {
		return err
	}
	if s.cfg.Replicator.Client == nil {
		return fault.Unmet("REPLICATIONS_OFF", "this server sends nothing to other registries")
	}
	for field, address := range map[string]string{"address": r.Address, "realm": r.Realm} {
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

// sealReplication encrypts the credentials of r if they are in plain text.
func (s *Service) sealReplication(r *registry.Replication) error {
	u := r.AsUpstream()
	err := mirror.SealCredentials(s.cfg.Key, &u)
	r.Credentials = u.Credentials
	return err
}

// GetReplication returns a replication. The caller needs registry.settings.list on it.
func (s *Service) GetReplication(ctx context.Context, uid resource.UID) (registry.Replication, error) {
	return authz.Get(ctx, s.authz, resource.RegistrySettingsList, uid, s.replication)
}

// replication returns a replication without the identity that set it up, unless the caller may list identities there.
func (s *Service) replication(ctx context.Context, uid resource.UID) (registry.Replication, error) {
	r, err := s.sources.Replication(ctx, uid)
	return s.visibleReplication(ctx, r), err
}

func (s *Service) visibleReplication(ctx context.Context, r registry.Replication) registry.Replication {
	if r.UID != "" && s.authz.Require(ctx, resource.IdentityList, r.UID) != nil {
		r.SetBy = ""
	}
	return r
}

// ReplicationStatus returns how far a replication is. It does not authorize the caller, who must have read r with
// another method.
func (s *Service) ReplicationStatus(ctx context.Context, r registry.Replication) (registry.ReplicationStatus, error) {
	return s.sources.ReplicationStatus(ctx, r)
}

// ListReplications returns a page of the replications on which the caller holds registry.settings.list.
func (s *Service) ListReplications(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[registry.Replication], error) {
	got, err := authz.List(ctx, s.authz, s.pages, sourcedb.ReplicationList, resource.RegistrySettingsList, f, p,
		s.sources.Replications)
	for i, r := range got.Items {
		got.Items[i] = s.visibleReplication(ctx, r)
	}
	return got, err
}

// UpdateReplication applies change to a replication. The caller needs replication.Capabilities on it, and copies act as
// the caller from then on. The target cannot change, because the record of copied tags belongs to it.
func (s *Service) UpdateReplication(
	ctx context.Context, uid resource.UID, change func(*registry.Replication) error,
) (registry.Replication, error) {
	if err := s.mayReplicate(ctx, uid); err != nil {
		return registry.Replication{}, err
	}
	var stored resource.Secret // stored credentials, because store.Edit passes a copy without them to change
	read := func(ctx context.Context, uid resource.UID) (registry.Replication, error) {
		r, err := s.sources.Replication(ctx, uid)
		stored = r.Credentials
		return r, err
	}
	r, err := store.Edit(ctx, uid, read, s.sources.UpdateReplication, func(r *registry.Replication) error {
		r.Credentials = stored
		before := *r
		if err := change(r); err != nil {
			return err
		}
		r.UID, r.CreateTime, r.SetBy = before.UID, before.CreateTime, setBy(ctx)
		if err := s.checkReplication(r); err != nil {
			return err
		}
		if !r.SameTarget(before) {
			return fault.Field(changedTarget(before, *r), "cannot change: create another replication")
		}
		return s.sealReplication(r)
	})
	return s.visibleReplication(ctx, r), err
}

// changedTarget returns the name of the first field in which the targets of two replications differ.
func changedTarget(a, b registry.Replication) string {
	switch {
	case a.Address != b.Address:
		return "address"
	case a.Path != b.Path:
		return "path"
	}
	return "realm"
}

// DeleteReplication deletes a replication. Copied images stay at the target. The caller needs groups.update on it.
func (s *Service) DeleteReplication(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.GroupsUpdate, uid, s.sources.DeleteReplication)
}

// RunReplication queues all tags that a replication selects, at least runGap after the last call. The caller needs
// groups.update and registry.settings.list on the replication. It returns fault.FailedPrecondition if the replication
// is paused.
func (s *Service) RunReplication(ctx context.Context, uid resource.UID) (registry.Replication, error) {
	want := resource.NewCapabilities(resource.GroupsUpdate, resource.RegistrySettingsList)
	if err := s.authz.RequireAll(ctx, want, uid); err != nil {
		return registry.Replication{}, err
	}
	r, err := s.replication(ctx, uid)
	if err != nil {
		return r, err
	}
	if r.Paused {
		return r, fault.Unmet("REPLICATION_PAUSED", "the replication is paused")
	}
	return r, s.sources.ScanReplication(ctx, uid, runGap)
}

// The limits of PreviewReplication.
const (
	maxPreviewed = 1000
	maxExamined  = 10_000
)

// PreviewReplication returns the tags that a run would copy. The caller needs registry.settings.list, repo.list and
// tag.list on the replication.
func (s *Service) PreviewReplication(
	ctx context.Context, uid resource.UID,
) (out registry.ReplicationPreview, _ error) {
	r, err := s.readTagsOf(ctx, uid)
	if err != nil {
		return out, err
	}
	out.Complete = true
	err = s.cfg.Replicator.EachTag(ctx, r, func(tags []sourcedb.ScannedTag) (bool, error) {
		for _, g := range tags {
			if out.Examined == maxExamined || len(out.Tags) == maxPreviewed {
				out.Complete = false
				return false, nil
			}
			if out.Examined++; g.Digest != g.Copied {
				out.Tags = append(out.Tags,
					registry.ReplicatedTag{Repo: g.Repo, Name: g.Name, Digest: g.Copied, Error: g.Error})
			}
		}
		return true, nil
	})
	return out, err
}

// readTagsOf returns a replication whose tags the caller may list.
func (s *Service) readTagsOf(ctx context.Context, uid resource.UID) (registry.Replication, error) {
	want := resource.NewCapabilities(resource.RegistrySettingsList, resource.RepoList, resource.TagList)
	if err := s.authz.RequireAll(ctx, want, uid); err != nil {
		return registry.Replication{}, err
	}
	return s.sources.Replication(ctx, uid)
}

var replicatedTagList = page.List{Kind: "replication_tags", Fields: []string{"uid"}, Default: page.Order{Field: "uid"}}

// ListReplicatedTags returns a page of the pending tags of a replication. The caller needs registry.settings.list,
// repo.list and tag.list on the replication.
func (s *Service) ListReplicatedTags(
	ctx context.Context, uid resource.UID, p page.Params,
) (page.Page[registry.ReplicatedTag], error) {
	filter, req, err := page.Resume(s.pages, replicatedTagList, []string{string(uid)}, p)
	if err != nil {
		return page.Page[registry.ReplicatedTag]{}, err
	}
	uid = resource.UID(filter[0])
	if _, err := s.readTagsOf(ctx, uid); err != nil {
		return page.Page[registry.ReplicatedTag]{}, err
	}
	if req.Order.Desc {
		return page.Page[registry.ReplicatedTag]{}, fault.Field("order_by", "must be uid")
	}
	got, err := s.sources.ReplicatedTags(ctx, uid, req)
	if err != nil {
		return page.Page[registry.ReplicatedTag]{}, err
	}
	return page.Finish(s.pages, req, got), nil
}
