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
	rules = append(rules, grouprule.BelongsTo("replications", "replication_states", "replication_tags")...)
	return append(rules, grouprule.BelongsTo("repos", "follows")...)
}
