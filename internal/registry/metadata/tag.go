package metadata

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// CreateTag tags a manifest of a repo, and moves the tag if it exists. The caller needs tag.create on the repo.
// It returns fault.FailedPrecondition if the settings of the group forbid to move the tag.
func (s *Service) CreateTag(ctx context.Context, repo resource.UID, t registry.Tag) (registry.Tag, error) {
	if err := s.authz.Require(ctx, resource.TagCreate, repo); err != nil {
		return registry.Tag{}, err
	}
	if err := t.Validate(); err != nil {
		return registry.Tag{}, err
	}
	return s.putTag(ctx, repo.NewChild(), t)
}

// CreateOrKeepTag is CreateTag for version 1 of the API, where the digest is optional. Without a digest, the tag must
// exist; it keeps its digest and gets the other fields. Because the response contains the digest, the caller then
// also needs tag.list on the repo. A caller without tag.list gets the same error as for a tag that does not exist.
func (s *Service) CreateOrKeepTag(ctx context.Context, repo resource.UID, t registry.Tag) (registry.Tag, error) {
	if t.Digest != "" {
		return s.CreateTag(ctx, repo, t)
	}
	if err := s.authz.Require(ctx, resource.TagCreate, repo); err != nil {
		return registry.Tag{}, err
	}
	if err := t.ValidateChange(); err != nil {
		return registry.Tag{}, err
	}
	switch err := s.authz.Require(ctx, resource.TagList, repo); {
	case errors.Is(err, fault.PermissionDenied):
		return registry.Tag{}, registrydb.DigestRequired(t.Name)
	case err != nil:
		return registry.Tag{}, err
	}
	return s.putTag(ctx, repo.NewChild(), t)
}

// putTag stores a tag if the settings of its group allow it. uid is the UID of the tag if it is new.
func (s *Service) putTag(ctx context.Context, uid resource.UID, t registry.Tag) (registry.Tag, error) {
	if err := s.mirror.RequireUnmirrored(ctx, uid.Parent().Parent()); err != nil {
		return registry.Tag{}, err
	}
	rules, err := s.store.RegistrySettings(ctx, uid.Parent().Parent())
	if err != nil {
		return registry.Tag{}, err
	}
	t.UID = uid
	return s.store.PutTag(ctx, t, rules.Frozen)
}

// UpdateTag replaces the fields of a tag, except its name. Without a digest, the tag keeps its digest. The caller
// needs tag.update on it. It returns fault.FailedPrecondition if the settings of the group forbid to move the tag.
func (s *Service) UpdateTag(ctx context.Context, uid resource.UID, t registry.Tag) (registry.Tag, error) {
	before, err := authz.Get(ctx, s.authz, resource.TagUpdate, uid, s.store.Tag)
	if err != nil {
		return registry.Tag{}, err
	}
	if t.Name != "" && t.Name != before.Name {
		return registry.Tag{}, fault.Field("name", "cannot be changed: create another tag")
	}
	t.Name = before.Name
	if err := t.ValidateChange(); err != nil {
		return registry.Tag{}, err
	}
	return s.putTag(ctx, uid, t)
}

// GetTag returns a tag. The caller needs tag.list on it.
func (s *Service) GetTag(ctx context.Context, uid resource.UID) (registry.Tag, error) {
	return authz.Get(ctx, s.authz, resource.TagList, uid, s.store.Tag)
}

// ListTags returns a page of the tags on which the caller holds tag.list. A filter by name selects tags of all
// classes.
func (s *Service) ListTags(ctx context.Context, f resource.Filter, p page.Params) (page.Page[registry.Tag], error) {
	if f.Name != "" {
		f.Classes = []resource.TagClass{resource.ReferrerTag, resource.DateTag, resource.EpochTag}
	}
	return authz.List(ctx, s.authz, s.pages, registrydb.TagList, resource.TagList, f, p, s.store.Tags)
}

// DeleteTag deletes a tag, but not its manifest. The caller needs tag.delete on it.
// It returns fault.FailedPrecondition if the settings of the group forbid it.
func (s *Service) DeleteTag(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.TagDelete, uid); err != nil {
		return err
	}
	rules, err := s.store.RegistrySettings(ctx, uid.Parent().Parent())
	if err != nil {
		return err
	}
	return s.store.DeleteTag(ctx, uid, rules.Frozen)
}

// TagHistory returns a page of the moves of a tag, or of all tags of the repo if name
// is "", newest first. The caller needs tag.list on the repo. With a page token, repo and
// name may be "", because the token contains them.
func (s *Service) TagHistory(
	ctx context.Context, repo resource.UID, name string, p page.Params,
) (page.Page[registry.TagMove], error) {
	filter, req, err := page.Resume(s.pages, historyList, []string{string(repo), name}, p)
	if err != nil {
		return page.Page[registry.TagMove]{}, err
	}
	repo, name = resource.UID(filter[0]), filter[1]
	if err := s.authz.Require(ctx, resource.TagList, repo); err != nil {
		return page.Page[registry.TagMove]{}, err
	}
	if name != "" && !registry.ValidTag(name) {
		return page.Page[registry.TagMove]{}, fault.Field("tag", "is not a name that a tag can have")
	}
	if !req.Order.Desc {
		return page.Page[registry.TagMove]{}, fault.Field("order_by", "must be time desc")
	}
	if _, err := s.store.Repo(ctx, repo); err != nil {
		return page.Page[registry.TagMove]{}, err
	}
	got, err := s.store.TagHistory(ctx, repo, name, req)
	if err != nil {
		return page.Page[registry.TagMove]{}, err
	}
	return page.Finish(s.pages, req, got), nil
}
