package imagedb

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	maxDigests    = 20   // number of digests that a search looks at
	maxCandidates = 1000 // manifests that a search reads for each organization and for each digest
)

// A RepoManifest names a manifest in a repo.
type RepoManifest struct {
	Repo   resource.UID
	Digest string
}

// SearchManifests returns up to n manifests in reach whose digest begins with prefix, in the order of digests and
// repos. The prefix must contain the algorithm, and so many digits that few digests begin with it.
//
// Images are looked up in a database index by organization, so that other organizations with the same images do not
// slow down the search. Other manifests, such as indexes and signatures, are found by their digest. They can be
// missed if more than maxCandidates repos of the installation have the same manifest.
func (s *Store) SearchManifests(ctx context.Context, r store.Reach, prefix string, n int) ([]RepoManifest, error) {
	var found []RepoManifest
	for _, org := range rootsOf(r.Under) {
		args, text := imagesBeginning(org, prefix)
		images, err := store.ReadAll(ctx, s.Rows, scanRepoManifest, text, args...)
		if err != nil {
			return nil, err
		}
		found = append(found, images...)
	}
	digest := prefix // sorts before all longer digests that have this prefix
	for range maxDigests {
		args, text := nextDigest(digest, prefix, digest == prefix)
		next, err := store.ReadColumn[string](ctx, s.Rows, text, args...)
		if err != nil || len(next) == 0 {
			return firstInReach(found, r, n), err
		}
		digest = next[0]
		args, text = holdersOf(digest)
		repos, err := store.ReadColumn[resource.UID](ctx, s.Rows, text, args...)
		if err != nil {
			return nil, err
		}
		for _, uid := range repos {
			found = append(found, RepoManifest{uid, digest})
		}
		if len(digest) == len(prefix) { // the prefix is a complete digest
			break
		}
	}
	return firstInReach(found, r, n), nil
}

func scanRepoManifest(row store.Scanner) (m RepoManifest, _ error) {
	return m, row.Scan(&m.Repo, &m.Digest)
}

// firstInReach sorts manifests and returns the first n that are in reach, without duplicates. It changes found.
func firstInReach(found []RepoManifest, r store.Reach, n int) []RepoManifest {
	found = slices.DeleteFunc(found, func(m RepoManifest) bool { return !store.Covered(r.Under, m.Repo) })
	slices.SortFunc(found, func(a, b RepoManifest) int {
		return cmp.Or(cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Repo, b.Repo))
	})
	found = slices.Compact(found)
	return found[:min(n, len(found))]
}

// imagesBeginning returns a statement that selects images of an organization whose digest begins with prefix. In it,
// 'g' is the bound after all hexadecimal digits.
func imagesBeginning(org int64, prefix string) (args []any, text string) {
	return []any{org, prefix, prefix + "g", maxCandidates}, `SELECT i.uid, i.digest FROM images AS i
		WHERE i.root = $1 AND i.digest >= $2 AND i.digest < $3
		AND EXISTS (SELECT 1 FROM ` + registrydb.ManifestRows + ` AS m WHERE m.repo = i.repo AND m.digest = i.digest)
		ORDER BY i.digest LIMIT $4`
}

// nextDigest returns a statement that selects the next digest after a digest, among the digests that begin with
// prefix. If first is set, it may select that digest itself. It skips other manifests that have the same digest.
func nextDigest(after, prefix string, first bool) (args []any, text string) {
	than := ">"
	if first {
		than = ">="
	}
	return []any{after, prefix + "g"}, `SELECT digest FROM ` + registrydb.ManifestRows + ` AS manifests
		WHERE digest ` + than + ` $1 AND digest < $2 ORDER BY digest LIMIT 1`
}

// holdersOf returns a statement that selects repos that have a manifest.
func holdersOf(digest string) (args []any, text string) {
	return []any{digest, maxCandidates}, `SELECT (SELECT r.uid FROM ` + registrydb.RepoRows + ` AS r WHERE r.seg = m.repo)
		FROM ` + registrydb.ManifestRows + ` AS m WHERE m.digest = $1 LIMIT $2`
}
