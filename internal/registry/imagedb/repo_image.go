package imagedb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// denseChunk is the number of images in a chunk from which the whole chunk is scanned instead of looked up row by
// row.
const denseChunk = bitmap.Size / 4

// RepoImages returns, for each repo, how many of the images with these numbers it has. The numbers must be in rising
// order.
func (s *Store) RepoImages(ctx context.Context, numbers []int64) (map[resource.UID]int, error) {
	counts := map[resource.UID]int{}
	err := s.Snapshot(ctx, func(read store.Reader) error {
		byRepo, err := s.countByRepo(ctx, read, numbers)
		if err != nil {
			return err
		}
		q := store.Query{Engine: s.Engine}
		return read(ctx, fmt.Sprintf(`SELECT r.seg, r.uid FROM %s AS s CROSS JOIN `+registrydb.RepoRows+` AS r
			WHERE r.seg = s.v`,
			s.Engine.Unnest(&q, slices.Collect(maps.Keys(byRepo)))), q.Args, func(row store.Scanner) (bool, error) {
			var repo int64
			var uid resource.UID
			err := row.Scan(&repo, &uid)
			counts[uid] = byRepo[repo]
			return false, err
		})
	})
	return counts, err
}

// countByRepo is RepoImages with the segments of repos, instead of their UIDs, as keys.
func (s *Store) countByRepo(ctx context.Context, read store.Reader, numbers []int64) (map[int64]int, error) {
	counts := map[int64]int{}
	var sparse []int64
	for _, chunk := range byChunk(numbers) {
		if len(chunk) < denseChunk {
			sparse = append(sparse, chunk...)
			continue
		}
		next := 0
		err := read(ctx, `SELECT number, repo FROM images WHERE number >= $1 AND number <= $2 ORDER BY number`,
			[]any{chunk[0], chunk[len(chunk)-1]}, func(row store.Scanner) (bool, error) {
				var number, repo int64
				if err := row.Scan(&number, &repo); err != nil {
					return false, err
				}
				for next < len(chunk) && chunk[next] < number {
					next++
				}
				if next < len(chunk) && chunk[next] == number {
					counts[repo]++
				}
				return false, nil
			})
		if err != nil {
			return nil, err
		}
	}
	q := store.Query{Engine: s.Engine}
	return counts, read(ctx, fmt.Sprintf(`SELECT i.repo FROM %s AS s CROSS JOIN images AS i WHERE i.number = s.v`,
		s.Engine.Unnest(&q, sparse)), q.Args, func(row store.Scanner) (bool, error) {
		var repo int64
		err := row.Scan(&repo)
		counts[repo]++
		return false, err
	})
}

// byChunk splits numbers, which are in rising order, into one slice for each chunk.
func byChunk(numbers []int64) (chunks [][]int64) {
	for start := 0; start < len(numbers); {
		chunk, _ := bitmap.At(numbers[start])
		end := start
		for end < len(numbers) && numbers[end] < (chunk+1)*bitmap.Size {
			end++
		}
		chunks = append(chunks, numbers[start:end])
		start = end
	}
	return chunks
}

// An UnknownCount contains numbers of images whose packages are unknown.
type UnknownCount struct {
	Waiting       int // images that wait for their inspection
	NotUnderstood int // images that could not be inspected
	Numbered      int // images among them with a number, because they were inspected before or have SBOMs

	Oldest time.Time // when the first of the waiting images was pushed; zero if none waits
}

// UnknownImages counts the images in groups or repos whose packages are unknown.
func (s *Store) UnknownImages(ctx context.Context, reach []resource.UID) (c UnknownCount, _ error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT i.uid, i.state, count(*), count(i.number), min(i.update_ms) FROM %s AS s
		CROSS JOIN images AS i WHERE i.root = s.v AND (i.state = 0 OR i.state = 2) GROUP BY i.uid, i.state`,
		s.Engine.Unnest(&q, rootsOf(reach)))
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var repo resource.UID
		var state registry.ImageState
		var n, numbered int
		var first int64
		if err := row.Scan(&repo, &state, &n, &numbered, &first); err != nil || !store.Covered(reach, repo) {
			return false, err
		}
		c.Numbered += numbered
		if state == registry.ImageWaiting {
			c.Waiting += n
			if t := store.FromMS(first); c.Oldest.IsZero() || t.Before(c.Oldest) {
				c.Oldest = t
			}
		} else {
			c.NotUnderstood += n
		}
		return false, nil
	})
	return c, err
}

func rootsOf(reach []resource.UID) (roots []int64) {
	for _, g := range reach {
		roots = append(roots, store.Segment(g.Root()))
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// An ImageTag is a tag that points to an image, or to an index that lists it.
type ImageTag struct {
	Repo   resource.UID
	Name   string
	Digest string // digest of the image or index that the tag points to
}

// ImageTags returns the tags that point to the images with these numbers, or to indexes that list them. A
// tag of an index that lists several of the images is returned once.
func (s *Store) ImageTags(ctx context.Context, numbers []int64) ([]ImageTag, error) {
	text, args := selectTagsOfImages(s.Engine, numbers)
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (t ImageTag, err error) {
		var uid resource.UID
		err = row.Scan(&uid, &t.Name, &t.Digest)
		t.Repo = uid.Parent()
		return t, err
	}, text, args...)
}

// selectTagsOfImages returns the statement that ImageTags runs.
func selectTagsOfImages(e engine.Engine, numbers []int64) (text string, args []any) {
	q := store.Query{Engine: e}
	text = `SELECT DISTINCT t.uid, t.name, t.digest FROM ` + registrydb.IndexesAbove(`SELECT 0 AS origin,
			i.repo AS repo, i.digest AS digest FROM `+e.Unnest(&q, numbers)+` AS s
			CROSS JOIN images AS i WHERE i.number = s.v`) + ` AS a
		CROSS JOIN ` + registrydb.TagRows + ` AS t WHERE t.digest = a.digest AND t.parent = a.repo`
	return text, q.Args
}
