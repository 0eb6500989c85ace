package findingdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	rules := []grouprule.Rule{
		grouprule.Deletes("inventory_places", deleteInventory),
		// Exceptions apply only to images of the group, which are deleted, too.
		grouprule.DeletesKind("exceptions"),
		grouprule.DeletesKind("pull_rules"),
		grouprule.Deletes("past_exceptions", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return t.Later(ctx, `DELETE FROM past_exceptions WHERE parent = $1`, store.Segment(group))
		}),
		grouprule.Deletes("finding_slas", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return t.Later(ctx, `DELETE FROM finding_slas WHERE grp = $1`, store.Segment(group))
		}),
		grouprule.Deletes("report_subscriptions", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return t.Later(ctx, `DELETE FROM report_subscriptions WHERE grp = $1`, store.Segment(group))
		}),
		grouprule.Cascades("finding_days"),
		grouprule.Cascades("finding_day_runs"),
		grouprule.Keeps("matches", "the matcher removes them when it handles the changes of the advisories"),
		grouprule.Keeps("past_matches", "the history of findings"),
	}
	return append(append(rules, grouprule.BelongsTo("inventory_places", "inventory_entries")...),
		grouprule.BelongsTo("images", "image_news")...)
}

// deleteInventory removes the inventories of the places in a group.
func deleteInventory(ctx context.Context, t *store.Tx, group resource.UID) error {
	for _, text := range []string{
		`DELETE FROM inventory_entries WHERE place IN (SELECT seq FROM inventory_places WHERE grp = $1)`,
		`DELETE FROM inventory_places WHERE grp = $1`,
	} {
		if _, err := t.Exec(ctx, text, store.Segment(group)); err != nil {
			return err
		}
	}
	return nil
}
