package grantlog

import (
	"github.com/holdfast-dev/holdfast/internal/store"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []store.GroupRule {
	const reason = "answers about the past need it for as long as the history is kept"
	return []store.GroupRule{
		store.KeptAfterGroup("binding_history", reason),
		store.KeptAfterGroup("group_history", reason),
		store.DeletedByForeignKey("unused_reports"),
	}
}
