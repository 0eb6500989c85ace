package imagedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// TagAt returns the digest that a tag of a repo pointed to at a time. It returns fault.NotFound if the repo had no
// such tag at that time or does not exist.
func (s *Store) TagAt(ctx context.Context, repo resource.UID, name string, asOf time.Time) (digest string, _ error) {
	err := s.Row(ctx, `SELECT h.digest FROM `+registrydb.RepoRows+` AS r JOIN `+registrydb.TagHistoryRows+` AS h
		ON h.repo = r.seg
		WHERE r.uid = $1 AND h.name = $2 AND h.at_ms <= $3 ORDER BY h.seq DESC LIMIT 1`,
		[]any{string(repo), name, store.MS(asOf)}, &digest)
	if errors.Is(err, sql.ErrNoRows) || err == nil && digest == "" {
		return "", fault.Missing("tag", name+" at "+asOf.UTC().Format(time.RFC3339Nano))
	}
	return digest, err
}

// TagsAt returns the tags that pointed to an image of a repo, or to an index that lists it, at a time.
func (s *Store) TagsAt(ctx context.Context, repo resource.UID, digest string, asOf time.Time) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `SELECT DISTINCT h.name
		FROM `+registrydb.IndexesAbove(registrydb.OneManifest)+` AS a CROSS JOIN `+registrydb.TagHistoryRows+` AS h
		WHERE h.repo = a.repo AND h.digest = a.digest AND h.at_ms <= $3
		AND NOT EXISTS (SELECT 1 FROM `+registrydb.TagHistoryRows+` AS x WHERE x.repo = h.repo
		AND x.name = h.name AND x.seq > h.seq AND x.at_ms <= $3)`, store.Segment(repo), digest, store.MS(asOf))
}

// maxPastTags is the number of past tags that are read for each image.
const maxPastTags = 20

// PastTags returns the last maxPastTags tags that pointed to each image, or to an index that lists it, and then moved
// away, the latest first. The keys are the numbers of the images. A tag that points to the image again is included.
func (s *Store) PastTags(ctx context.Context, numbers []int64) (map[int64][]registry.PastTag, error) {
	text, args := selectPastTags(s.Engine, numbers)
	tags := map[int64][]registry.PastTag{}
	return tags, s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		var number, since, until int64
		var t registry.PastTag
		err := row.Scan(&number, &t.Name, &since, &until)
		t.Since, t.Until = store.FromMS(since), store.FromMS(until)
		tags[number] = append(tags[number], t)
		return false, err
	})
}

// selectPastTags returns the statement that PastTags runs.
func selectPastTags(e engine.Engine, numbers []int64) (text string, args []any) {
	q := store.Query{Engine: e}
	text = fmt.Sprintf(`SELECT h.number, h.name, h.at_ms, h.until_ms FROM (
		SELECT p.number, p.name, p.at_ms, p.until_ms,
			row_number() OVER (PARTITION BY p.number ORDER BY p.until_ms DESC, p.seq DESC) AS n
		FROM (SELECT d.number, t.name, t.at_ms, t.seq, (SELECT x.at_ms FROM `+registrydb.TagHistoryRows+` AS x
		WHERE x.repo = t.repo
			AND x.name = t.name AND x.seq > t.seq ORDER BY x.seq LIMIT 1) AS until_ms
			FROM (SELECT DISTINCT a.origin AS number, a.repo, a.digest FROM %s AS a) AS d
			CROSS JOIN `+registrydb.TagHistoryRows+` AS t WHERE t.repo = d.repo AND t.digest = d.digest) AS p
		WHERE p.until_ms IS NOT NULL) AS h WHERE h.n <= %s ORDER BY h.number, h.n`,
		aboveNumbers(e, &q, numbers), q.Arg(maxPastTags))
	return text, q.Args
}
