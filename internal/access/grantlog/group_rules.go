package grantlog

import (
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	const reason = "answers about the past need it for as long as the history is kept"
	return []grouprule.Rule{
		grouprule.Keeps("binding_history", reason),
		grouprule.Keeps("group_history", reason),
		grouprule.Cascades("unused_reports"),
	}
}
