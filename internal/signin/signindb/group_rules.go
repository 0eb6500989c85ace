package signindb

import (
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	return []grouprule.Rule{
		grouprule.Blocks("accounts", "parent", "accounts"),
		grouprule.Cascades("sign_in_rules"),
	}
}
