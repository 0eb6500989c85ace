package registrydb

import "fmt"

// Relations that other packages may read in their queries. A query writes AS and a name after the relation. Each
// relation is a subquery with the columns on which other packages may rely; this package may change other columns of
// the tables. Both engines plan such a query as if it named the table. Only this package writes to the tables.
const (
	RepoRows        = `(SELECT seg, uid, parent, name, detail FROM repos)`
	ManifestRefRows = `(SELECT repo, digest, blob, child FROM manifest_refs)`
	TagRows         = `(SELECT seg, uid, parent, name, digest, update_ms FROM tags)`
	TagHistoryRows  = `(SELECT seq, repo, name, digest, at_ms FROM tag_history)`
	BlobRows        = `(SELECT digest, size FROM blobs)`

	ManifestRows = `(SELECT repo, digest, media_type, artifact_type, subject, size, body, annotations, actor, push_ms
		FROM manifests)`

	PullRows = `(SELECT seg, uid, parent, a1, a2, a3, digest, tag, identity, push, more, create_ms FROM pulls)`
)

// MaxIndexDepth is the number of levels of indexes that the relations below follow. An index can list other indexes.
// Deeper levels are ignored, so that the cost of a query has a limit.
const MaxIndexDepth = 4

// OneManifest selects the manifest with the digest $2 in the repo $1, as a seed of the relations below.
const OneManifest = `SELECT 0 AS origin, m.repo AS repo, m.digest AS digest FROM manifests AS m
	WHERE m.repo = $1 AND m.digest = $2`

// IndexesAbove returns a relation of manifests and the indexes that list them, directly or through other indexes. seeds
// is a SELECT of a manifest's repo and digest, with a third column origin, in the order origin, repo, digest. The
// relation has the same columns. For each seed, it has a row with the manifest itself and a row for each index above.
// Rows can be repeated if an index is reached on ways of different lengths.
func IndexesAbove(seeds string) string {
	return indexTree(seeds, "r.digest", "r.child = tree.digest")
}

// ManifestsBelow is like IndexesAbove for the manifests that an index lists, directly or through other indexes.
// Its condition on child must not be IS NOT NULL: SQLite would search all references of the repo that have a child.
func ManifestsBelow(seeds string) string {
	return indexTree(seeds, "r.child", "r.digest = tree.digest AND coalesce(r.child, '') <> ''")
}

// indexTree returns the relation that begins with seeds and continues with next for each reference that matches. UNION
// visits each manifest once per origin and level, however many indexes share it.
func indexTree(seeds, next, matches string) string {
	return fmt.Sprintf(`(WITH RECURSIVE tree (origin, repo, digest, depth) AS (
		SELECT seeds.origin, seeds.repo, seeds.digest, 0 FROM (%s) AS seeds
		UNION SELECT tree.origin, tree.repo, %s, tree.depth + 1 FROM tree CROSS JOIN manifest_refs AS r
		WHERE tree.depth < %d AND r.repo = tree.repo AND %s)
		SELECT origin, repo, digest FROM tree)`, seeds, next, MaxIndexDepth, matches)
}
