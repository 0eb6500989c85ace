package imagedb

// Relations that other packages may read in their queries. The comment on the relations in registrydb explains them.
const (
	ImageRows      = `(SELECT repo, digest, root, uid, number, state FROM images)`
	GroupImageRows = `(SELECT grp, chunk, bits FROM group_images)`
	ChunkRows      = `(SELECT chunk, used, gone FROM image_chunks)`
)
