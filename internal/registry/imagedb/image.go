package imagedb

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// Images returns the images of a repo that have these digests, by digest. It leaves out digests that do not exist,
// and manifests that turned out not to be images.
func (s *Store) Images(
	ctx context.Context, repo resource.UID, digests []string,
) (map[string]registry.StoredImage, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT i.digest, i.state, i.reason, i.update_ms, i.indexed_ms FROM %s AS s CROSS JOIN images AS i
		WHERE i.repo = %s AND i.digest = s.v`, s.Engine.Unnest(&q, digests), q.Arg(store.Segment(repo)))
	images := map[string]registry.StoredImage{}
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		i := registry.StoredImage{Repo: repo}
		var updated int64
		var indexed *int64
		err := row.Scan(&i.Digest, &i.State, &i.Reason, &updated, &indexed)
		i.UpdateTime = store.FromMS(updated)
		if indexed != nil {
			i.IndexTime = store.FromMS(*indexed)
		}
		if i.State != registry.ImageNone {
			images[i.Digest] = i
		}
		return false, err
	})
	return images, err
}

// ImageStates returns the states of images of a repo, by digest. It includes manifests that turned out not to
// be images.
func (s *Store) ImageStates(
	ctx context.Context, repo resource.UID, digests []string,
) (map[string]registry.ImageState, error) {
	q := store.Query{Engine: s.Engine}
	return store.ReadMap[string, registry.ImageState](ctx, s.Rows, fmt.Sprintf(`SELECT i.digest, i.state FROM %s AS s
		CROSS JOIN images AS i WHERE i.repo = %s AND i.digest = s.v`, s.Engine.Unnest(&q, digests),
		q.Arg(store.Segment(repo))), q.Args...)
}

// A NumberedImage is an image with its number, and with the tags that point to it or to an index that lists it.
type NumberedImage struct {
	Number   int64
	Repo     resource.UID
	Digest   string
	Platform string // platform of the image, such as linux/arm64/v8
	Tags     []string
}

// maxImageTags is the largest number of tags that are read for a page of images.
const maxImageTags = 5000

// NumberedImages returns the images with these numbers, in the order of numbers. It returns at most maxImageTags tags
// in all. It leaves out images that no longer exist.
func (s *Store) NumberedImages(ctx context.Context, numbers []int64) (images []NumberedImage, _ error) {
	q := store.Query{Engine: s.Engine}
	found, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (i NumberedImage, err error) {
		err = row.Scan(&i.Number, &i.Repo, &i.Digest, &i.Platform)
		return i, err
	}, fmt.Sprintf(`SELECT i.number, i.uid, i.digest, i.platform FROM %s AS s CROSS JOIN images AS i
		WHERE i.number = s.v`, s.Engine.Unnest(&q, numbers)), q.Args...)
	if err != nil {
		return nil, err
	}
	tags, err := s.tagsOfImages(ctx, numbers)
	if err != nil {
		return nil, err
	}
	byNumber := map[int64]NumberedImage{}
	for _, i := range found {
		byNumber[i.Number] = i
	}
	for _, n := range numbers {
		if i, ok := byNumber[n]; ok {
			i.Tags = tags[n]
			slices.Sort(i.Tags)
			i.Tags = slices.Compact(i.Tags)
			images = append(images, i)
		}
	}
	return images, nil
}

// selectImageTags returns the statement that tagsOfImages runs.
func selectImageTags(e engine.Engine, numbers []int64) (text string, args []any) {
	q := store.Query{Engine: e}
	text = `SELECT a.origin, t.name FROM ` + aboveNumbers(e, &q, numbers) + ` AS a
		CROSS JOIN ` + registrydb.TagRows + ` AS t WHERE t.digest = a.digest AND t.parent = a.repo
		LIMIT ` + q.Arg(maxImageTags)
	return text, q.Args
}

// aboveNumbers returns the relation of the images with these numbers and the indexes that list them. The origin of a
// row is the number of the image.
func aboveNumbers(e engine.Engine, q *store.Query, numbers []int64) string {
	return registrydb.IndexesAbove(`SELECT i.number AS origin, i.repo AS repo, i.digest AS digest
		FROM ` + e.Unnest(q, numbers) + ` AS s CROSS JOIN images AS i WHERE i.number = s.v`)
}

func (s *Store) tagsOfImages(ctx context.Context, numbers []int64) (map[int64][]string, error) {
	text, args := selectImageTags(s.Engine, numbers)
	tags := map[int64][]string{}
	return tags, s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		var number int64
		var name string
		err := row.Scan(&number, &name)
		tags[number] = append(tags[number], name)
		return false, err
	})
}

// TagsOf returns, by digest, the tags that point to manifests of a repo or to an index that lists them. If there are
// more than maxImageTags tags, it returns nil instead of some of them, because callers check a property of all tags.
func (s *Store) TagsOf(ctx context.Context, repo resource.UID, digests []string) (map[string][]string, error) {
	text, args := selectTagsOf(s.Engine, repo, digests)
	tags, n := map[string][]string{}, 0
	err := s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		var digest, name string
		err := row.Scan(&digest, &name)
		tags[digest] = append(tags[digest], name)
		n++
		return false, err
	})
	if n > maxImageTags {
		return nil, err
	}
	return tags, err
}

// selectTagsOf returns the statement that TagsOf runs.
func selectTagsOf(e engine.Engine, repo resource.UID, digests []string) (text string, args []any) {
	q := store.Query{Engine: e}
	seeds := `SELECT m.digest AS origin, m.repo AS repo, m.digest AS digest FROM ` + e.Unnest(&q, digests) + ` AS s
		CROSS JOIN ` + registrydb.ManifestRows + ` AS m WHERE m.repo = ` + q.Arg(store.Segment(repo)) + ` AND m.digest = s.v`
	text = `SELECT DISTINCT a.origin, t.name FROM ` + registrydb.IndexesAbove(seeds) + ` AS a
		CROSS JOIN ` + registrydb.TagRows + ` AS t WHERE t.digest = a.digest AND t.parent = a.repo
		LIMIT ` + q.Arg(maxImageTags+1)
	return text, q.Args
}

// ListedBy returns the digests of up to n manifests that an index of a repo lists, directly or through other indexes.
func (s *Store) ListedBy(ctx context.Context, repo resource.UID, index string, n int) ([]string, error) {
	below := registrydb.ManifestsBelow(registrydb.OneManifest)
	return store.ReadColumn[string](ctx, s.Rows, `SELECT DISTINCT b.digest FROM `+below+` AS b
		WHERE b.digest <> $2 ORDER BY b.digest LIMIT $3`, store.Segment(repo), index, n)
}

// IndexesWith returns the digests of up to n indexes of a repo that list a manifest, the last pushed first.
func (s *Store) IndexesWith(ctx context.Context, repo resource.UID, child string, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `SELECT m.digest FROM `+registrydb.ManifestRefRows+` AS r
		CROSS JOIN `+registrydb.ManifestRows+` AS m
		WHERE r.repo = $1 AND r.child = $2 AND m.repo = r.repo AND m.digest = r.digest
		ORDER BY m.push_ms DESC, m.digest LIMIT $3`, store.Segment(repo), child, n)
}

// Pushers returns the identities that pushed manifests of a repo, by digest. An identity is "" if it is not known.
func (s *Store) Pushers(ctx context.Context, repo resource.UID, digests []string) (map[string]resource.UID, error) {
	q := store.Query{Engine: s.Engine}
	return store.ReadMap[string, resource.UID](ctx, s.Rows, fmt.Sprintf(`SELECT m.digest, m.actor FROM %s AS s
		CROSS JOIN `+registrydb.ManifestRows+` AS m WHERE m.repo = %s AND m.digest = s.v`, s.Engine.Unnest(&q, digests),
		q.Arg(store.Segment(repo))), q.Args...)
}
