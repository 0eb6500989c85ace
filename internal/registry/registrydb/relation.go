package registrydb

// Relations that other packages may read in their queries, followed by AS and a name. Each is a subquery of the columns
// that others may rely on; this package may change the tables otherwise. Both engines plan a query as if it named the
// table. Only this package writes to the tables.
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
