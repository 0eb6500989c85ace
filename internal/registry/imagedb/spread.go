package imagedb

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
)

// dense is from how many images of a chunk on all of it is read.
const dense = bitmap.Size / 4

// RepoImages returns how many of the images with these numbers each repo has. The numbers
// are in order.
func (s *Store) RepoImages(ctx context.Context, numbers []int64) (map[resource.UID]int, error) {
	all := map[resource.UID]int{}
	err := s.Snapshot(ctx, func(read store.Reader) error {
		byRepo, err := s.countByRepo(ctx, read, numbers)
		if err != nil {
			return err
		}
		q := store.Query{Engine: s.Engine}
		return read(ctx, fmt.Sprintf(`SELECT r.seg, r.uid FROM %s AS s CROSS JOIN repos AS r WHERE r.seg = s.v`,
			s.Engine.Unnest(&q, slices.Collect(maps.Keys(byRepo)))), q.Args, func(row store.Scanner) (bool, error) {
			var repo int64
			var uid resource.UID
			err := row.Scan(&repo, &uid)
			all[uid] = byRepo[repo]
			return false, err
		})
	})
	return all, err
}

// countByRepo is RepoImages by the segments of repos.
func (s *Store) countByRepo(ctx context.Context, read store.Reader, numbers []int64) (map[int64]int, error) {
	all := map[int64]int{}
	var sparse []int64
	for _, of := range byChunk(numbers) {
		if len(of) < dense {
			sparse = append(sparse, of...)
			continue
		}
		next := 0
		err := read(ctx, `SELECT number, repo FROM images WHERE number >= $1 AND number <= $2 ORDER BY number`,
			[]any{of[0], of[len(of)-1]}, func(row store.Scanner) (bool, error) {
				var number, repo int64
				if err := row.Scan(&number, &repo); err != nil {
					return false, err
				}
				for next < len(of) && of[next] < number {
					next++
				}
				if next < len(of) && of[next] == number {
					all[repo]++
				}
				return false, nil
			})
		if err != nil {
			return nil, err
		}
	}
	q := store.Query{Engine: s.Engine}
	return all, read(ctx, fmt.Sprintf(`SELECT i.repo FROM %s AS s CROSS JOIN images AS i WHERE i.number = s.v`,
		s.Engine.Unnest(&q, sparse)), q.Args, func(row store.Scanner) (bool, error) {
		var repo int64
		err := row.Scan(&repo)
		all[repo]++
		return false, err
	})
}

// byChunk divides numbers, which are in order.
func byChunk(numbers []int64) (all [][]int64) {
	for start := 0; start < len(numbers); {
		chunk, _ := bitmap.At(numbers[start])
		end := start
		for end < len(numbers) && numbers[end] < (chunk+1)*bitmap.Size {
			end++
		}
		all = append(all, numbers[start:end])
		start = end
	}
	return all
}

// UnknownImages returns how many images in groups, or repos, wait to be inspected, and how
// many are not understood.
func (s *Store) UnknownImages(ctx context.Context, reach []resource.UID) (waiting, unclear int, _ error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT i.uid, i.state, count(*) FROM %s AS s CROSS JOIN images AS i
		WHERE i.root = s.v AND (i.state = 0 OR i.state = 2) GROUP BY i.uid, i.state`, s.Engine.Unnest(&q, rootsOf(reach)))
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var repo resource.UID
		var state registry.ImageState
		var n int
		if err := row.Scan(&repo, &state, &n); err != nil {
			return false, err
		}
		switch {
		case !store.Covered(reach, repo):
		case state == registry.ImageWaiting:
			waiting += n
		default:
			unclear += n
		}
		return false, nil
	})
	return waiting, unclear, err
}

func rootsOf(reach []resource.UID) (all []int64) {
	for _, g := range reach {
		all = append(all, store.Segment(g.Root()))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// An ImageTag is a tag that stands for an image, or for an index that lists it.
type ImageTag struct {
	Repo   resource.UID
	Name   string
	Digest string // that the tag stands for
}

// ImageTags returns the tags that stand for images, by their numbers, each once. Only a tag
// of an index can stand for several of them.
func (s *Store) ImageTags(ctx context.Context, numbers []int64) ([]ImageTag, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT i.uid, t.name, t.digest FROM %s AS s CROSS JOIN images AS i CROSS JOIN tags AS t
		WHERE i.number = s.v AND t.digest = i.digest AND t.parent = i.repo
		UNION ALL SELECT DISTINCT i.uid, t.name, t.digest FROM %s AS s CROSS JOIN images AS i CROSS JOIN manifest_refs AS r
		CROSS JOIN tags AS t WHERE i.number = s.v AND r.repo = i.repo AND r.child = i.digest AND t.digest = r.digest
		AND t.parent = r.repo`, s.Engine.Unnest(&q, numbers), s.Engine.Unnest(&q, numbers))
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (t ImageTag, err error) {
		err = row.Scan(&t.Repo, &t.Name, &t.Digest)
		return t, err
	}, text, q.Args...)
}
