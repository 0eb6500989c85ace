package imagedb

// Relations that other packages may read in their queries, followed by AS and a name. Each is a subquery of the columns
// that others may rely on; see the relations of registrydb.
const (
	ImageRows      = `(SELECT repo, digest, root, uid, number, state FROM images)`
	GroupImageRows = `(SELECT grp, chunk, bits FROM group_images)`
	ChunkRows      = `(SELECT chunk, used, gone FROM image_chunks)`
)
