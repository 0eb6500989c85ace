package metadata

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The capabilities to see the trash, to restore entries, and to remove them permanently. If a caller lacks several,
// the error names the first one in the list.
var (
	trashReaders   = []resource.Capability{resource.RepoList, resource.TagList}
	trashRestorers = []resource.Capability{
		resource.ManifestCreate, resource.TagCreate, resource.RepoList, resource.TagList,
	}
	trashRemovers = []resource.Capability{resource.RepoDelete, resource.ManifestDelete, resource.TagDelete}
)

// requireEach returns nil if the caller holds all capabilities, and otherwise an error that names the first missing
// one.
func (s *Service) requireEach(ctx context.Context, target resource.UID, want []resource.Capability) error {
	for _, c := range want {
		if err := s.authz.Require(ctx, c, target); err != nil {
			return err
		}
	}
	return nil
}

// A Restoration has the options of a restoration. RestoreTrash sets Frozen.
type Restoration = registrydb.Restoration

// emptyBatch is the number of entries that one transaction removes from the trash.
const emptyBatch = 200

// GetTrash returns an entry of the trash. The caller needs repo.list and tag.list on it.
func (s *Service) GetTrash(ctx context.Context, uid resource.UID) (registry.TrashEntry, error) {
	if err := s.requireEach(ctx, uid, trashReaders); err != nil {
		return registry.TrashEntry{}, err
	}
	return s.store.TrashEntry(ctx, uid)
}

// ListTrash returns a page of the trash, limited to groups and repos on which the caller holds repo.list and tag.list.
func (s *Service) ListTrash(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[registry.TrashEntry], error) {
	repos, err := s.authz.Reach(ctx, resource.RepoList)
	if err != nil {
		return page.Page[registry.TrashEntry]{}, err
	}
	tags, err := s.authz.Reach(ctx, resource.TagList)
	if err != nil {
		return page.Page[registry.TrashEntry]{}, err
	}
	reach := store.Reach{Under: store.Overlap(repos, tags)}
	return page.Read(ctx, s.pages, registrydb.TrashList, reach, f, p, s.store.Trash)
}

// RestoreTrash restores an entry and returns all restored entries, this one first. The caller needs manifest.create,
// tag.create, repo.list and tag.list on it and, for a repo, repo.create on its group. It does not replace tags that the
// settings of the group forbid to move.
func (s *Service) RestoreTrash(
	ctx context.Context, uid resource.UID, how Restoration,
) ([]registry.TrashEntry, error) {
	if err := s.requireEach(ctx, uid, trashRestorers); err != nil {
		return nil, err
	}
	e, err := s.store.TrashEntry(ctx, uid)
	if err != nil {
		return nil, err
	}
	group := e.Repo().Parent()
	if e.Kind == registry.TrashRepo {
		if err := s.authz.Require(ctx, resource.RepoCreate, group); err != nil {
			return nil, err
		}
	}
	rules, err := s.store.RegistrySettings(ctx, group)
	if err != nil {
		return nil, err
	}
	how.Frozen = rules.Frozen
	return s.store.Restore(ctx, uid, how)
}

// DeleteTrash removes an entry of the trash permanently. The caller needs tag.delete, manifest.delete and repo.delete
// on it.
func (s *Service) DeleteTrash(ctx context.Context, uid resource.UID) error {
	if err := s.requireEach(ctx, uid, trashRemovers); err != nil {
		return err
	}
	return s.store.DeleteTrash(ctx, uid)
}

// EmptyTrash permanently removes the entries of a group or repo that were deleted before the call. It returns their
// number and the sum of their sizes in bytes. The caller needs tag.delete, manifest.delete and repo.delete on the
// place.
//
// It uses several transactions for many entries. If it fails in between, the remaining entries stay in the trash.
func (s *Service) EmptyTrash(ctx context.Context, place resource.UID) (n, bytes int64, _ error) {
	if err := s.requireEach(ctx, place, trashRemovers); err != nil {
		return 0, 0, err
	}
	until := s.now()
	n, bytes, err := s.store.MeasureTrash(ctx, place, until)
	if err != nil || resource.IsDryRun(ctx) {
		return n, bytes, err
	}
	for {
		removed, err := s.store.EmptyTrash(ctx, place, until, emptyBatch)
		if err != nil || removed < emptyBatch {
			return n, bytes, err
		}
	}
}
