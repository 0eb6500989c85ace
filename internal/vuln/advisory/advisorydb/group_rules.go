package advisorydb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	rules := []grouprule.Rule{
		grouprule.Blocks("advisories", "parent", "advisories"),
		grouprule.Blocks("advisory_feeds", "parent", "advisory feeds"),
		grouprule.Deletes("advisory_partitions", deletePartitions),
		grouprule.Deletes("advisory_generations", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return t.Later(ctx, `DELETE FROM advisory_generations WHERE grp = $1`, string(group))
		}),
		grouprule.Cascades("exploit_lists"),
		grouprule.Keeps("advisory_changes", "the matcher still has to remove the matches of the deleted advisories"),
		grouprule.Deletes("maven_names", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return t.Later(ctx, `DELETE FROM maven_names WHERE grp = $1`, string(group))
		}),
		grouprule.Keeps("advisory_ecosystems", "nobody can list advisories in a deleted group, so no query finds them"),
	}
	return append(rules, grouprule.BelongsTo("advisories", "advisory_texts")...)
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
