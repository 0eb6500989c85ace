package registrydb

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
