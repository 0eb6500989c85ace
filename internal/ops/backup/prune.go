package backup

import (
	"context"
	"path"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

const snapshots = "/snapshots"

// removing is the file name of the manifest of a snapshot that is being removed.
const removing = "removing.json"

// Prune removes all snapshots except the newest keep, and the blobs that only the removed snapshots need. It
// returns the number of removed snapshots. It must not run while a back-up is made to the same place. If it is
// interrupted, the next call continues.
//
// Prune does not authenticate manifests, because the encryption key may have been replaced since, and because
// anyone who can change manifests can also remove the files.
func Prune(ctx context.Context, p blob.Storage, keep int) (removed int, _ error) {
	names, err := newestFirst(ctx, p)
	if err != nil {
		return 0, err
	}
	needed := map[string]bool{}
	kept := 0
	var old []string
	for _, name := range names {
		m, err := decodeManifest(ctx, p, path.Join(snapshots, name, "manifest.json"))
		switch {
		case fault.From(err).Code == fault.NotFound: // the back-up or the removal of this snapshot was interrupted
			if kept > 0 {
				old = append(old, name)
			}
		case err != nil:
			return 0, err
		case kept == keep:
			old = append(old, name)
		default:
			kept++
			err := m.eachBlob(ctx, p, func(b registry.Blob) error { needed[b.Digest] = true; return nil })
			if err != nil {
				return 0, err
			}
		}
	}
	for _, name := range old {
		if err := removeSnapshot(ctx, p, path.Join(snapshots, name), needed); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// newestFirst returns the names of all snapshots. The snapshot that was made last comes first, even if the
// clock was set back before it was made.
func newestFirst(ctx context.Context, p blob.Storage) ([]string, error) {
	last, err := decodeManifest(ctx, p, latest)
	if err != nil {
		return nil, err
	}
	names, err := p.Names(ctx, snapshots)
	if err != nil {
		return nil, err
	}
	newest := path.Base(last.folder())
	names = slices.DeleteFunc(names, func(name string) bool { return name == newest })
	slices.Sort(names)
	slices.Reverse(names)
	return append([]string{newest}, names...), nil
}

// removeSnapshot removes a snapshot and its blobs, except the needed blobs. Its first step renames the
// manifest, so that the snapshot can no longer be restored. Its last step removes the list of its blobs, so
// that an interrupted removal can continue.
func removeSnapshot(ctx context.Context, p blob.Storage, folder string, needed map[string]bool) error {
	if err := rename(ctx, p, path.Join(folder, "manifest.json"), path.Join(folder, removing)); err != nil {
		return err
	}
	m, err := decodeManifest(ctx, p, path.Join(folder, removing))
	// An interrupted back-up has no manifest. Its blobs stay, because the next back-up uses them.
	if fault.From(err).Code == fault.NotFound {
		return p.RemoveAll(ctx, folder)
	}
	if err != nil {
		return err
	}
	err = m.eachBlob(ctx, p, func(b registry.Blob) error {
		if needed[b.Digest] {
			return nil
		}
		return p.Remove(ctx, blobPath(b.Digest))
	})
	if err != nil {
		return err
	}
	return p.RemoveAll(ctx, folder)
}

// rename renames a file by copying it, and does nothing if there is no such file.
func rename(ctx context.Context, p blob.Storage, from, to string) error {
	in, err := p.Open(ctx, from)
	if blob.Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if err := p.Put(ctx, to, in); err != nil {
		return err
	}
	return p.Remove(ctx, from)
}
