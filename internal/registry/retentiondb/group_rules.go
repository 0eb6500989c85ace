package retentiondb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	return []grouprule.Rule{
		grouprule.Deletes("retention", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			_, err := t.Exec(ctx, `DELETE FROM retention WHERE place = $1`, store.Segment(group))
			return err
		}),
	}
}
