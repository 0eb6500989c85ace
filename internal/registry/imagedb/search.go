package imagedb

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	maxDigests    = 20   // different digests with one beginning that a search looks at
	maxCandidates = 1000 // manifests of an organization, or of a digest, that it looks at
)

// A RepoManifest names a manifest of a repo.
type RepoManifest struct {
	Repo   resource.UID
	Digest string
}

// SearchManifests returns up to n manifests in reach whose digest begins with a text, in
// the order of digests and repos. The text has the algorithm and enough digits that few
// digests have the same beginning.
//
// Images are found by their organization, so that others who have the same image do not
// count. Other manifests, such as indexes and signatures, are found by their digest, and
// missed if more than maxCandidates repos of the installation have the same one.
func (s *Store) SearchManifests(ctx context.Context, r store.Reach, prefix string, n int) ([]RepoManifest, error) {
	var all []RepoManifest
	for _, org := range rootsOf(r.Under) {
		args, text := imagesBeginning(org, prefix)
		some, err := store.ReadAll(ctx, s.Rows, scanRepoManifest, text, args...)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	digest := prefix // the text itself is a digest or less than every digest that begins with it
	for range maxDigests {
		args, text := nextDigest(digest, prefix, digest == prefix)
		next, err := store.ReadColumn[string](ctx, s.Rows, text, args...)
		if err != nil || len(next) == 0 {
			return firstInReach(all, r, n), err
		}
		digest = next[0]
		args, text = holdersOf(digest)
		repos, err := store.ReadColumn[resource.UID](ctx, s.Rows, text, args...)
		if err != nil {
			return nil, err
		}
		for _, uid := range repos {
			all = append(all, RepoManifest{uid, digest})
		}
		if len(digest) == len(prefix) { // the text was a whole digest
			break
		}
	}
	return firstInReach(all, r, n), nil
}

func scanRepoManifest(row store.Scanner) (m RepoManifest, _ error) {
	return m, row.Scan(&m.Repo, &m.Digest)
}

// firstInReach returns the first n of the manifests that are in reach, each once.
func firstInReach(all []RepoManifest, r store.Reach, n int) []RepoManifest {
	all = slices.DeleteFunc(all, func(m RepoManifest) bool { return !store.Covered(r.Under, m.Repo) })
	slices.SortFunc(all, func(a, b RepoManifest) int {
		return cmp.Or(cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Repo, b.Repo))
	})
	all = slices.Compact(all)
	return all[:min(n, len(all))]
}

// imagesBeginning selects images of an organization by the beginning of their digest: 'g'
// is greater than every digit.
func imagesBeginning(org int64, prefix string) (args []any, text string) {
	return []any{org, prefix, prefix + "g", maxCandidates}, `SELECT i.uid, i.digest FROM images AS i
		WHERE i.root = $1 AND i.digest >= $2 AND i.digest < $3
		AND EXISTS (SELECT 1 FROM manifests AS m WHERE m.repo = i.repo AND m.digest = i.digest)
		ORDER BY i.digest LIMIT $4`
}

// nextDigest selects the digest of a manifest that follows one, which may be the first
// itself, among those with one beginning. It passes over all others that have the same.
func nextDigest(after, prefix string, first bool) (args []any, text string) {
	than := ">"
	if first {
		than = ">="
	}
	return []any{after, prefix + "g"}, `SELECT digest FROM manifests WHERE digest ` + than + ` $1 AND digest < $2
		ORDER BY digest LIMIT 1`
}

// holdersOf selects repos that have a manifest.
func holdersOf(digest string) (args []any, text string) {
	return []any{digest, maxCandidates}, `SELECT (SELECT r.uid FROM repos AS r WHERE r.seg = m.repo) FROM manifests AS m
		WHERE m.digest = $1 LIMIT $2`
}
