package sourcedb

import (
	"github.com/holdfast-dev/holdfast/internal/store"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []store.GroupRule {
	rules := []store.GroupRule{store.BlocksGroup("registry_upstreams", "parent", "upstreams")}
	return append(rules, store.BelongsTo("repos", "follows")...)
}
