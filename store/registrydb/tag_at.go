package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// TagAt returns the digest that a tag of a repo stood for at a time. It returns
// fault.NotFound if there was no such tag then, or if there is no such repo.
func (s *Store) TagAt(ctx context.Context, repo resource.UID, name string, at time.Time) (digest string, _ error) {
	err := s.Row(ctx, `SELECT h.digest FROM repos AS r JOIN tag_history AS h ON h.repo = r.seg
		WHERE r.uid = $1 AND h.name = $2 AND h.at_ms <= $3 ORDER BY h.seq DESC LIMIT 1`,
		[]any{string(repo), name, store.MS(at)}, &digest)
	if errors.Is(err, sql.ErrNoRows) || err == nil && digest == "" {
		return "", fault.Missing("tag", name+" at "+at.UTC().Format(time.RFC3339Nano))
	}
	return digest, err
}
