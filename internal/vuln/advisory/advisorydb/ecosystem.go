package advisorydb

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// appendEcosystems appends the ecosystems of affected packages that the list does not contain yet.
func appendEcosystems(ecosystems []string, affected []vuln.Affected) []string {
	for _, p := range affected {
		if !slices.Contains(ecosystems, p.Ecosystem) {
			ecosystems = append(ecosystems, p.Ecosystem)
		}
	}
	return ecosystems
}

// addEcosystems records that the group has advisories about ecosystems.
func (t Tx) addEcosystems(ctx context.Context, group resource.UID, ecosystems []string) error {
	slices.Sort(ecosystems) // so that two imports cannot deadlock
	var rows [][]any
	for _, e := range ecosystems {
		rows = append(rows, []any{e, string(group)})
	}
	return t.InsertRows(ctx, `INSERT INTO advisory_ecosystems (ecosystem, grp)`, rows, ` ON CONFLICT DO NOTHING`)
}

// CoveredEcosystems reports for each ecosystem whether an advisory in reach is about it. An advisory about a whole
// ecosystem, such as Debian, covers all of its releases, such as Debian:12. An advisory about one release also covers
// the ecosystem without a release.
func (s *Store) CoveredEcosystems(ctx context.Context, r store.Reach, ecosystems []string) (map[string]bool, error) {
	covered := map[string]bool{}
	conditions := groupConditions(store.Visible(false, r, resource.UIDFilter{}))
	for _, e := range ecosystems {
		base, _, _ := strings.Cut(e, ":")
		for _, c := range conditions {
			n := len(c.args)
			text := fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM advisory_ecosystems
				WHERE %s AND (ecosystem IN ($%d, $%d) OR ecosystem >= $%d AND ecosystem < $%d) LIMIT 1) AS x`,
				c.text, n+1, n+2, n+3, n+4)
			var found int
			if err := s.Row(ctx, text, append(slices.Clone(c.args), e, base, e+":", e+";"), &found); err != nil {
				return nil, err
			}
			covered[e] = covered[e] || found > 0
		}
	}
	return covered, nil
}
