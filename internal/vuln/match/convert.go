package match

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// convertAtOnce is the maximum number of advisories that are converted in one transaction.
const convertAtOnce = 1000

// convert converts advisories that were stored before vulnerabilities were separate from advisories. It computes which
// vulnerabilities they describe, and queues them for a comparison with packages, which stores the ratings of vendors
// and ends the matches of advisories that describe no vulnerability. Nothing is imported again. It reports whether
// there may be more.
func (m *Matcher) convert(ctx context.Context) (did bool, _ error) {
	err := m.write(ctx, func(t *store.Tx) error {
		converted, err := findingdb.In(t).ConvertAdvisories(ctx, convertAtOnce)
		if did = len(converted) > 0; err != nil || !did {
			return err
		}
		changes := map[int64]int64{}
		for _, key := range slices.Sorted(maps.Keys(converted)) {
			changes[key] = store.Segment(converted[key].UID.Root())
		}
		return advisorydb.RepeatChanges(ctx, t, changes)
	})
	return did, err
}
