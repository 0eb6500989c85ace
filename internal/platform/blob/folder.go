package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
)

// A Folder is a Storage in a folder of the file system.
type Folder struct {
	root   string
	synced sync.Map // paths of folders whose names are already on disk
}

var _ Storage = (*Folder)(nil)

// NewFolder returns the Storage in the folder root, which is made when a file is written.
func NewFolder(root string) *Folder { return &Folder{root: root} }

// Kind implements Storage.
func (f *Folder) Kind() string { return "file" }

func (f *Folder) full(path string) string { return filepath.Join(f.root, filepath.FromSlash(path)) }

// Size implements Storage.
func (f *Folder) Size(_ context.Context, path string) (int64, error) {
	info, err := os.Stat(f.full(path))
	if Missing(err) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for %s: %w", path, err)
	}
	return info.Size(), nil
}

// Open implements Storage.
func (f *Folder) Open(_ context.Context, path string) (io.ReadCloser, error) {
	file, err := os.Open(f.full(path))
	if err != nil { // returning file would return a nil *os.File in a non-nil interface
		return nil, err
	}
	return file, nil
}

// OpenAt implements Storage.
func (f *Folder) OpenAt(_ context.Context, path string, offset int64) (io.ReadCloser, error) {
	file, err := os.Open(f.full(path))
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Put implements Storage.
func (f *Folder) Put(ctx context.Context, path string, content io.Reader) error {
	return put(ctx, f, path, content)
}

// Create implements Storage.
func (f *Folder) Create(_ context.Context, file string) (Writer, error) {
	name := f.full(file)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, err
	}
	return &folderWriter{folder: f, path: file, file: out, unsynced: true}, nil
}

// Resume implements Storage.
func (f *Folder) Resume(ctx context.Context, path string, size int64) (Writer, error) {
	if size == 0 {
		return f.Create(ctx, path)
	}
	file, err := os.OpenFile(f.full(path), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err == nil && end != size {
		err = missing(path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &folderWriter{folder: f, path: path, file: file, size: size, begun: size}, nil
}

// Remove implements Storage.
func (f *Folder) Remove(_ context.Context, path string) error {
	if err := os.Remove(f.full(path)); err != nil && !Missing(err) {
		return err
	}
	return nil
}

// RemoveAll implements Storage.
func (f *Folder) RemoveAll(_ context.Context, path string) error { return os.RemoveAll(f.full(path)) }

// Discard implements Storage.
func (f *Folder) Discard(ctx context.Context, path string) error { return f.Remove(ctx, path) }

// Names implements Storage.
func (f *Folder) Names(_ context.Context, dir string) ([]string, error) {
	d, err := os.Open(f.full(dir))
	if Missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(0)
	return names, errors.Join(err, d.Close())
}

// Walk implements Storage.
func (f *Folder) Walk(ctx context.Context, dir string, each func(File) error) error {
	err := fs.WalkDir(os.DirFS(f.full(dir)), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.IsDir() {
			return unlessMissing(err)
		}
		info, err := d.Info()
		if err != nil {
			return unlessMissing(err) // the file was removed during the walk
		}
		return each(File{path.Join(dir, name), info.Size(), info.ModTime()})
	})
	return err
}

func unlessMissing(err error) error {
	if Missing(err) {
		return nil
	}
	return err
}

// Unfinished implements Storage. It does nothing, because Walk finds unfinished writes.
func (f *Folder) Unfinished(context.Context, string, func(File) error) error { return nil }

// Abort implements Storage.
func (f *Folder) Abort(context.Context, string) error { return nil }

// Address implements Storage. It returns "", because a file in a folder has no address.
func (f *Folder) Address(context.Context, string) (string, error) { return "", nil }

// MinChunk implements Storage.
func (f *Folder) MinChunk() int64 { return 0 }

// syncNames makes the entries of a folder, and the names of the folders above it, durable.
func (f *Folder) syncNames(dir string) error {
	if err := f.syncDir(dir); err != nil {
		return err
	}
	if _, ok := f.synced.Load(dir); ok {
		return nil
	}
	for up := dir; up != "/"; up = path.Dir(up) {
		if err := f.syncDir(path.Dir(up)); err != nil {
			return err
		}
	}
	f.synced.Store(dir, true)
	return nil
}

func (f *Folder) syncDir(dir string) error {
	d, err := os.Open(f.full(dir))
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// writeBehind is the number of written bytes after which the kernel is asked to write them to disk. Otherwise the
// kernel would wait for the sync at the end, and the disk would be idle while the client sends.
const writeBehind = 4 << 20

// A folderWriter is the Writer that a Folder returns.
type folderWriter struct {
	folder *Folder
	path   string
	file   *os.File
	size   int64
	begun  int64 // offset up to which the kernel is writing to disk
	closed bool

	unsynced bool // whether the file was created or written to since the last sync
}

// Write implements io.Writer.
func (w *folderWriter) Write(p []byte) (int, error) {
	w.unsynced = true
	n, err := w.file.Write(p)
	w.size += int64(n)
	if w.size-w.begun >= writeBehind {
		beginWriting(w.file, w.begun, w.size-w.begun)
		w.begun = w.size
	}
	return n, err
}

// Pause implements Writer.
func (w *folderWriter) Pause(context.Context) error {
	w.closed = true
	var err error
	if w.unsynced {
		err = w.file.Sync()
	}
	return errors.Join(err, w.file.Close())
}

// Commit implements Writer.
func (w *folderWriter) Commit(ctx context.Context) error {
	if err := w.Pause(ctx); err != nil {
		return err
	}
	return w.folder.syncNames(path.Dir(w.path))
}

// Cancel implements Writer.
func (w *folderWriter) Cancel(ctx context.Context) error {
	if !w.closed {
		w.closed = true
		_ = w.file.Close() // the file is removed next
	}
	return w.folder.Remove(ctx, w.path)
}
