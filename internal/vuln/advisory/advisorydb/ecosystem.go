package advisorydb

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

func appendEcosystems(all []string, affected []vuln.Affected) []string {
	for _, p := range affected {
		if !slices.Contains(all, p.Ecosystem) {
			all = append(all, p.Ecosystem)
		}
	}
	return all
}

func (t Tx) addEcosystems(ctx context.Context, group resource.UID, all []string) error {
	slices.Sort(all) // so that two imports do not wait for each other
	var rows [][]any
	for _, e := range all {
		rows = append(rows, []any{e, string(group)})
	}
	return t.InsertRows(ctx, `INSERT INTO advisory_ecosystems (ecosystem, grp)`, rows, ` ON CONFLICT DO NOTHING`)
}

// RecordEcosystems notes the ecosystems of advisories that another version has stored. It
// reads all of them.
func (s *Store) RecordEcosystems(ctx context.Context) error {
	const batch = 2000
	for after := (*int64)(nil); ; {
		byGroup := map[resource.UID][]string{}
		text, args := `SELECT seg, uid, affected FROM advisories ORDER BY seg LIMIT $1`, []any{batch}
		if after != nil {
			text, args = `SELECT seg, uid, affected FROM advisories WHERE seg > $2 ORDER BY seg LIMIT $1`, append(args, *after)
		}
		n := 0
		err := s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
			var seg int64
			var uid resource.UID
			var text []byte
			if err := row.Scan(&seg, &uid, &text); err != nil {
				return false, err
			}
			var affected []vuln.Affected
			err := json.Unmarshal(text, &affected)
			byGroup[uid.Parent()] = appendEcosystems(byGroup[uid.Parent()], affected)
			after = &seg
			n++
			return false, err
		})
		if err != nil || n == 0 {
			return err
		}
		err = s.write(ctx, func(t Tx) error {
			for _, g := range slices.Sorted(maps.Keys(byGroup)) {
				if err := t.addEcosystems(ctx, g, byGroup[g]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// Covered returns which of the ecosystems the advisories in reach are about. Those about
// Debian are about every release of it.
func (s *Store) CoveredEcosystems(ctx context.Context, r store.Reach, ecosystems []string) (map[string]bool, error) {
	all := map[string]bool{}
	conditions := groupConditions(store.Visible(false, r, resource.UIDFilter{}))
	for _, e := range ecosystems {
		base, _, _ := strings.Cut(e, ":")
		for _, at := range conditions {
			n := len(at.args)
			text := fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM advisory_ecosystems WHERE %s AND (ecosystem IN ($%d, $%d)
				OR ecosystem >= $%d AND ecosystem < $%d) LIMIT 1) AS x`, at.text, n+1, n+2, n+3, n+4)
			var found int
			if err := s.Row(ctx, text, append(slices.Clone(at.args), e, base, e+":", e+";"), &found); err != nil {
				return nil, err
			}
			all[e] = all[e] || found > 0
		}
	}
	return all, nil
}
