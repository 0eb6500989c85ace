package sourcedb

import (
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	rules := []grouprule.Rule{
		grouprule.Blocks("registry_upstreams", "parent", "upstreams"),
		grouprule.Blocks("replications", "parent", "replications"),
	}
	return append(rules, grouprule.BelongsTo("repos", "follows")...)
}
