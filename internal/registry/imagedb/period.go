package imagedb

import (
	"context"
	"math"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A TagPeriod is a period in which a tag pointed to one manifest, or was deleted. Times are in milliseconds.
type TagPeriod struct {
	Repo     resource.UID
	Name     string
	From, To int64 // start and end; To is Now if the period has not ended
	Deleted  bool
	Images   []PeriodImage // the existing images that the tag pointed to, directly or through an index

	seq int64
}

// Now is the value of To for a period that has not ended.
const Now = math.MaxInt64

// A PeriodImage is an image that a tag pointed to.
type PeriodImage struct {
	Digest  string
	State   registry.ImageState
	Indexed int64 // time at which its packages were first found, in milliseconds; Now if they were not
	Number  int64 // number of the image; -1 if it has none
}

// TagPeriods returns the periods of the tags in groups and repos that end after since, ordered by repo, tag and time.
// It returns fault.FailedPrecondition if there are more than most periods.
func (s *Store) TagPeriods(ctx context.Context, under []resource.UID, since int64, most int) ([]TagPeriod, error) {
	p := periods{since: since, most: most}
	for _, root := range under {
		_, above := registrydb.Below(root)
		if err := s.Rows(ctx, `SELECT r.uid, h.seq, h.name, h.digest, h.at_ms, i.state, i.indexed_ms, i.number
			FROM `+registrydb.RepoRows+` AS r CROSS JOIN `+registrydb.TagHistoryRows+` AS h LEFT JOIN images AS i
			ON i.repo = h.repo AND i.digest = h.digest
			WHERE r.uid >= $1 AND r.uid < $2 AND h.repo = r.seg ORDER BY r.uid, h.name, h.seq`,
			[]any{string(root), above},
			func(row store.Scanner) (bool, error) { return false, p.scan(row) }); err != nil {
			return nil, err
		}
	}
	return s.finish(ctx, &p)
}

// TagPeriodsOf is like TagPeriods, for the tags of a repo with the given names.
func (s *Store) TagPeriodsOf(
	ctx context.Context, repo resource.UID, names []string, since int64, most int,
) ([]TagPeriod, error) {
	p := periods{since: since, most: most}
	text, args := selectPeriodsOf(s.Engine, repo, names)
	if err := s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) { return false, p.scan(row) }); err != nil {
		return nil, err
	}
	return s.finish(ctx, &p)
}

// selectPeriodsOf returns the statement that TagPeriodsOf runs.
func selectPeriodsOf(e engine.Engine, repo resource.UID, names []string) (text string, args []any) {
	q := store.Query{Engine: e}
	text = `SELECT r.uid, h.seq, h.name, h.digest, h.at_ms, i.state, i.indexed_ms, i.number
		FROM ` + e.Unnest(&q, names) + ` AS s CROSS JOIN ` + registrydb.RepoRows + ` AS r
		CROSS JOIN ` + registrydb.TagHistoryRows + ` AS h LEFT JOIN images AS i ON i.repo = h.repo AND i.digest = h.digest
		WHERE r.uid = ` + q.Arg(string(repo)) + ` AND h.repo = r.seg AND h.name = s.v ORDER BY h.name, h.seq`
	return text, q.Args
}

// finish returns the collected periods with their images.
func (s *Store) finish(ctx context.Context, p *periods) ([]TagPeriod, error) {
	p.flush()
	if len(p.finished) > p.most {
		return nil, TooManyImages(p.most)
	}
	return p.finished, s.addChildren(ctx, p.finished)
}

// periods collects periods from rows. A period ends when the next period of the same tag begins.
type periods struct {
	since    int64
	most     int
	finished []TagPeriod
	last     *TagPeriod
}

func (p *periods) scan(row store.Scanner) error {
	var next TagPeriod
	var digest string
	var state, indexed, number *int64
	if err := row.Scan(&next.Repo, &next.seq, &next.Name, &digest, &next.From, &state, &indexed, &number); err != nil {
		return err
	}
	next.To, next.Deleted = Now, digest == ""
	if state != nil {
		next.add(digest, *state, indexed, number)
	}
	if p.last != nil && p.last.Repo == next.Repo {
		next.Repo = p.last.Repo // so that both periods share one string
		if p.last.Name == next.Name {
			next.From = max(next.From, p.last.From) // clocks of replicas may differ
			p.last.To = next.From
		}
	}
	p.flush()
	p.last = &next
	if len(p.finished) > p.most {
		return TooManyImages(p.most)
	}
	return nil
}

// flush adds the last period to finished, unless it ended before since.
func (p *periods) flush() {
	if p.last != nil && p.last.To > p.since {
		p.finished = append(p.finished, *p.last)
	}
}

// add adds an image to a period. It adds a manifest that turned out not to be an image only if SBOMs are attached to
// it.
func (p *TagPeriod) add(digest string, state int64, indexed, number *int64) {
	i := PeriodImage{Digest: digest, State: registry.ImageState(state), Indexed: Now, Number: -1}
	if i.State == registry.ImageNone && number == nil {
		return
	}
	if indexed != nil && i.State == registry.ImageIndexed {
		i.Indexed = *indexed
	}
	if number != nil {
		i.Number = *number
	}
	p.Images = append(p.Images, i)
}

// addChildren handles tags that point to an index: it adds the images of the index to the periods that have no
// images.
func (s *Store) addChildren(ctx context.Context, periods []TagPeriod) error {
	indexes := map[int64]int{} // index in periods, by the seq of the period
	var keys []int64
	for i, p := range periods {
		if len(p.Images) == 0 && !p.Deleted {
			indexes[p.seq], keys = i, append(keys, p.seq)
		}
	}
	q := store.Query{Engine: s.Engine}
	return s.Rows(ctx, selectPeriodImages(s.Engine, &q, keys), q.Args,
		func(row store.Scanner) (bool, error) {
			var seq, state int64
			var digest string
			var indexed, number *int64
			if err := row.Scan(&seq, &digest, &state, &indexed, &number); err != nil {
				return false, err
			}
			periods[indexes[seq]].add(digest, state, indexed, number)
			return false, nil
		})
}

// selectPeriodImages returns the statement that selects the images in the indexes to which tags pointed. keys are the
// numbers of rows in the history of tags.
func selectPeriodImages(e engine.Engine, q *store.Query, keys []int64) string {
	return `SELECT DISTINCT b.origin, i.digest, i.state, i.indexed_ms, i.number FROM ` + registrydb.ManifestsBelow(
		`SELECT h.seq AS origin, h.repo AS repo, h.digest AS digest FROM `+e.Unnest(q, keys)+` AS s
			CROSS JOIN `+registrydb.TagHistoryRows+` AS h WHERE h.seq = s.v`) + ` AS b
		CROSS JOIN images AS i WHERE i.repo = b.repo AND i.digest = b.digest`
}
