package signerdb

import (
	"github.com/holdfast-dev/holdfast/internal/store"
)

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []store.GroupRule {
	return []store.GroupRule{store.DeletedKindWithGroup("signers")} // without the group, they apply to no images
}
