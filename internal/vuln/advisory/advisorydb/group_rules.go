package advisorydb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []store.GroupRule {
	rules := []store.GroupRule{
		store.BlocksGroup("advisories", "parent", "advisories"),
		store.BlocksGroup("advisory_feeds", "parent", "advisory feeds"),
		store.DeletedWithGroup("advisory_partitions", deletePartitions),
		store.DeletedWithGroup("advisory_generations", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return t.Later(ctx, `DELETE FROM advisory_generations WHERE grp = $1`, string(group))
		}),
		store.DeletedByForeignKey("exploit_lists"),
		store.KeptAfterGroup("advisory_changes", "the matcher still has to remove the matches of the deleted advisories"),
		store.KeptAfterGroup("advisory_ecosystems", "nobody can list advisories in a deleted group, so no query finds them"),
	}
	return append(rules, store.BelongsTo("advisories", "advisory_texts")...)
}

// deletePartitions deletes the partitions of the advisories of a group, and their counters.
func deletePartitions(ctx context.Context, t *store.Tx, group resource.UID) error {
	err := t.DropKeyCounters(ctx, store.PartitionCounter, `SELECT id FROM advisory_partitions WHERE grp = $2`,
		string(group))
	if err != nil {
		return err
	}
	return t.Later(ctx, `DELETE FROM advisory_partitions WHERE grp = $1`, string(group))
}
