package imagedb

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A TaggedImage is an image that a tag of its repo points to, directly or through indexes.
type TaggedImage struct {
	Repo   resource.UID
	Digest string
	State  registry.ImageState
	Number int64 // number of the image; -1 if it has none
	Pushed int64 // when an image that waits for its inspection was pushed, in milliseconds; 0 for other images
}

// TaggedImages returns the images in groups and repos that a tag points to, each once. A manifest that turned out not
// to be an image is included if SBOMs are attached to it. It returns fault.FailedPrecondition if there are more than
// most images.
func (s *Store) TaggedImages(ctx context.Context, under []resource.UID, most int) ([]TaggedImage, error) {
	t := taggedImages{most: most, seen: map[imageKey]bool{}, repos: map[int64][]int{}}
	for _, root := range under {
		var indexes []int64 // segments of the tags that do not point to an image; they may point to an index
		below, above := registrydb.Below(root)
		err := s.Rows(ctx, `SELECT t.seg, t.parent, t.digest, i.state, i.number, i.update_ms FROM `+registrydb.TagRows+` AS t
			LEFT JOIN images AS i
			ON i.repo = t.parent AND i.digest = t.digest WHERE t.uid > $1 AND t.uid < $2`, []any{below, above},
			func(row store.Scanner) (bool, error) {
				var tag int64
				found, err := t.scan(row, &tag)
				if !found {
					indexes = append(indexes, tag)
				}
				return false, err
			})
		if err != nil {
			return nil, err
		}
		q := store.Query{Engine: s.Engine}
		err = s.Rows(ctx, selectListedImages(s.Engine, &q, indexes), q.Args, func(row store.Scanner) (bool, error) {
			var tag int64
			_, err := t.scan(row, &tag)
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return t.images, s.nameRepos(ctx, t)
}

// selectListedImages returns the statement that selects the images in the indexes to which tags point. An image that
// several of these indexes list is selected once.
func selectListedImages(e engine.Engine, q *store.Query, tags []int64) string {
	return `SELECT b.origin, i.repo, i.digest, i.state, i.number, i.update_ms FROM ` +
		registrydb.ManifestsBelow(`SELECT 0 AS origin, t.parent AS repo, t.digest AS digest
			FROM `+e.Unnest(q, tags)+` AS s CROSS JOIN `+registrydb.TagRows+` AS t WHERE t.seg = s.v`) + ` AS b
		CROSS JOIN images AS i WHERE i.repo = b.repo AND i.digest = b.digest`
}

// nameRepos sets the repo of each image. It reads each repo only once, because there are fewer repos than images.
func (s *Store) nameRepos(ctx context.Context, t taggedImages) error {
	q := store.Query{Engine: s.Engine}
	repos, err := store.ReadMap[int64, resource.UID](ctx, s.Rows, fmt.Sprintf(`SELECT r.seg, r.uid FROM %s AS s
		CROSS JOIN `+registrydb.RepoRows+` AS r
		WHERE r.seg = s.v`, s.Engine.Unnest(&q, slices.Collect(maps.Keys(t.repos)))), q.Args...)
	for repo, indexes := range t.repos {
		for _, i := range indexes {
			t.images[i].Repo = repos[repo]
		}
	}
	return err
}

// An imageKey identifies an image in a repo.
type imageKey struct {
	repo   int64
	digest string
}

// taggedImages collects images from the rows of a query.
type taggedImages struct {
	most   int
	seen   map[imageKey]bool
	images []TaggedImage

	repos map[int64][]int // indexes in images, by the segment of the repo
}

// scan adds the image in a row, and stores the segment of the tag in tag. It reports false if the row has no image.
func (t *taggedImages) scan(row store.Scanner, tag *int64) (bool, error) {
	var key imageKey
	var state, number, updated *int64
	if err := row.Scan(tag, &key.repo, &key.digest, &state, &number, &updated); err != nil || state == nil {
		return false, err
	}
	if t.seen[key] || registry.ImageState(*state) == registry.ImageNone && number == nil {
		return true, nil
	}
	if len(t.images) >= t.most {
		return true, TooManyImages(t.most)
	}
	t.seen[key] = true
	i := TaggedImage{Digest: key.digest, State: registry.ImageState(*state), Number: -1}
	if number != nil {
		i.Number = *number
	}
	if i.State == registry.ImageWaiting {
		i.Pushed = *updated
	}
	t.repos[key.repo] = append(t.repos[key.repo], len(t.images))
	t.images = append(t.images, i)
	return true, nil
}

// TooManyImages returns the error for a request about more images than the limit.
func TooManyImages(most int) error {
	return fault.Unmet("TOO_MANY_IMAGES", "tags point to more than %d images here; ask for a group or repo below", most)
}
