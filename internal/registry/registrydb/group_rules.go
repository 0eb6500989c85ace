package registrydb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	rules := []grouprule.Rule{
		grouprule.Blocks("repos", "parent", "repos"),
		grouprule.Deletes("registry_settings", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			_, err := t.Exec(ctx, `DELETE FROM registry_settings WHERE grp = $1`, store.Segment(group))
			return err
		}),
		grouprule.Deletes("uploads", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return In(t).deleteUploads(ctx, group)
		}),
		grouprule.Deletes("trash_repos", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return In(t).deleteGroupTrash(ctx, group)
		}),
	}
	return append(rules, grouprule.BelongsTo("trash_repos", "trash", "trash_tags")...)
}

// deleteUploads removes the unfinished uploads to a group, and subtracts their bytes from the counters of the group and
// its ancestors.
func (t Tx) deleteUploads(ctx context.Context, group resource.UID) error {
	sizes, err := store.ReadColumn[int64](ctx, t.Rows, `DELETE FROM uploads WHERE grp = $1 RETURNING size`, string(group))
	if err != nil || len(sizes) == 0 {
		return err
	}
	bytes := 0
	for _, size := range sizes {
		bytes += int(size)
	}
	return t.Count(ctx, store.BytesCounter, group.NewChild(), -bytes)
}

// deleteGroupTrash removes the repos in the trash of a group.
func (t Tx) deleteGroupTrash(ctx context.Context, group resource.UID) error {
	repos, err := store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT uid FROM trash_repos WHERE parent = $1 ORDER BY seg`,
		store.Segment(group))
	if err != nil {
		return err
	}
	for _, repo := range repos {
		if err := t.DropTrash(ctx, repo); err != nil {
			return err
		}
	}
	return nil
}
