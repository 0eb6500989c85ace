package admission

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/budgetdb"
	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/maildb"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// GroupRules returns what happens to the rows of every table when their group is deleted. Rows are deleted in the
// order of these rules, and the error for a group that is not empty lists the kinds in this order.
func GroupRules() []grouprule.Rule {
	return slices.Concat(
		iamdb.GroupRules(), budgetdb.GroupRules(), registrydb.GroupRules(), advisorydb.GroupRules(), signindb.GroupRules(),
		eventdb.GroupRules(), sourcedb.GroupRules(), retentiondb.GroupRules(), signerdb.GroupRules(),
		imagedb.GroupRules(), findingdb.GroupRules(), grantlog.GroupRules(), maildb.GroupRules(), grouprule.Kernel(),
	)
}

// DeleteGroup removes an empty group. It returns fault.FailedPrecondition, naming the kinds, while the group contains
// anything that blocks its deletion. Expired bindings do not count, and neither do the bindings of caller on an
// organization; they are deleted with the group. DeleteGroup returns fault.NotFound if there is no such group.
func (s *Store) DeleteGroup(ctx context.Context, uid, caller resource.UID) error {
	return s.write(ctx, func(t tx) error { return t.iam.DeleteGroup(ctx, uid, caller, GroupRules()) })
}
