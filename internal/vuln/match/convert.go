package match

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// convertAtOnce is the maximum number of advisories that are converted in one transaction.
const convertAtOnce = 1000

// A conversion counts the advisories that are converted.
type conversion struct {
	n     int
	begin time.Time
}

// convert converts advisories that were stored before vulnerabilities were separate from advisories. It computes which
// vulnerabilities they describe, and queues them for a comparison with packages, which stores the ratings of vendors
// and ends the matches of advisories that describe no vulnerability. Nothing is imported again. It reports whether
// there may be more.
func (m *Matcher) convert(ctx context.Context) (did bool, _ error) {
	begin, n := time.Now(), 0
	err := m.write(ctx, func(t *store.Tx) error {
		converted, err := findingdb.In(t).ConvertAdvisories(ctx, convertAtOnce)
		if did = len(converted) > 0; err != nil || !did {
			return err
		}
		changes := map[int64]int64{}
		for _, key := range slices.Sorted(maps.Keys(converted)) {
			changes[key] = store.Segment(converted[key].UID.Root())
		}
		n = len(converted)
		return advisorydb.RepeatChanges(ctx, t, changes)
	})
	switch {
	case err != nil:
	case did:
		if m.conversion.n == 0 {
			m.conversion.begin = begin
		}
		m.conversion.n += n
	case m.conversion.n > 0:
		m.log.InfoContext(ctx, "advisories of an earlier version are converted", "advisories", m.conversion.n,
			"took", time.Since(m.conversion.begin))
		m.conversion = conversion{}
	}
	return did, err
}
