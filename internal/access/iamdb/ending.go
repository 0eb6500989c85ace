package iamdb

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// EndingBindings returns up to n bindings of an organization that expire between now and before, ordered by their
// expiry. It returns only bindings for which keep returns true.
func (s *Store) EndingBindings(
	ctx context.Context, org resource.UID, before time.Time, n int, keep func(resource.UID) bool,
) (ending []resource.BoundRole, _ error) {
	_, currentTime := s.Clock()
	text := fmt.Sprintf(`%s
		WHERE t.a1 = $1 AND t.expire_ms > 0 AND t.end_ms = 0 AND t.expire_ms > $2 AND t.expire_ms < $3
		ORDER BY t.expire_ms, t.seg`, bindings.Select())
	args := []any{store.Segment(org), store.MS(currentTime), store.MS(before)}
	err := s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		b, err := bindings.Scan(row)
		if err == nil && keep(b.UID) {
			ending = append(ending, b)
		}
		return len(ending) >= n, err
	})
	return ending, err
}
