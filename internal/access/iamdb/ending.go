package iamdb

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// EndingBindings returns up to n of the bindings of an organization that end before a time and are not over, the one that
// ends next first. keep says which of them count.
func (s *Store) EndingBindings(
	ctx context.Context, org resource.UID, before time.Time, n int, keep func(resource.UID) bool,
) (all []resource.BoundRole, _ error) {
	_, now := s.Clock()
	text := fmt.Sprintf(`%s WHERE t.a1 = $1 AND t.expire_ms > 0 AND t.end_ms = 0 AND t.expire_ms > $2 AND t.expire_ms < $3
		ORDER BY t.expire_ms, t.seg`, bindings.Select())
	args := []any{store.Segment(org), store.MS(now), store.MS(before)}
	err := s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		b, err := bindings.Scan(row)
		if err == nil && keep(b.UID) {
			all = append(all, b)
		}
		return len(all) >= n, err
	})
	return all, err
}
