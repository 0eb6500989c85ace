package imagedb

import (
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	return append(grouprule.BelongsTo("repos", "images", "group_images"),
		grouprule.Keeps("inspection_rates", "a sweep deletes the rates of an organization after an hour"))
}
