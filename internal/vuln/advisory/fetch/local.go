package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// maxLocalFiles is the maximum number of files in a directory.
const maxLocalFiles = 4_000_000

// local reads a directory or a file. It does not follow links that leave the allowed directory.
func (f *Fetcher) local(ctx context.Context, address string, s state) (Result, error) {
	folder, rest, _ := f.allowed(address)
	root, err := os.OpenRoot(folder)
	if err != nil {
		return Result{}, errors.New("the server cannot read the folder that the operator allows")
	}
	info, err := root.Stat(rest)
	if err != nil {
		return Result{}, errors.Join(reason(err), root.Close())
	}
	if info.IsDir() {
		return localFolder(ctx, root, rest, s)
	}
	return localFile(ctx, root, rest, info, s)
}

// reason returns an error with the reason why a file cannot be read, without its path.
func reason(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such folder or file")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("the server has no permission to read it")
	}
	return errors.New("it cannot be read, or is a link that leaves the folder that the operator allows")
}

func localFile(ctx context.Context, root *os.Root, name string, info fs.FileInfo, s state) (Result, error) {
	if !info.Mode().IsRegular() {
		return Result{}, errors.Join(errors.New("it is neither a folder nor a regular file"), root.Close())
	}
	next := state{Address: s.Address, Sum: stamp(name, info)}
	if next.Sum == s.Sum {
		return unchanged(next), root.Close()
	}
	file, err := root.Open(name)
	if err != nil {
		return Result{}, errors.Join(reason(err), root.Close())
	}
	return Result{
		Changed: true, State: next.bytes(), Size: info.Size(), File: file,
		Records: format.Read(ctx, filepath.Base(name), file, info.Size(), format.Limits{}),
		Close:   func() error { return errors.Join(file.Close(), root.Close()) },
	}, nil
}

func localFolder(ctx context.Context, root *os.Root, name string, s state) (Result, error) {
	sub, err := root.OpenRoot(name)
	if err = errors.Join(err, root.Close()); err != nil {
		return Result{}, reason(err)
	}
	sum, err := fingerprint(ctx, sub.FS())
	if err != nil {
		return Result{}, errors.Join(err, sub.Close())
	}
	next := state{Address: s.Address, Sum: sum}
	if sum == s.Sum {
		return unchanged(next), sub.Close()
	}
	return Result{
		Changed: true, State: next.bytes(),
		Records: format.ReadFS(ctx, sub.FS(), format.Limits{Files: maxLocalFiles}), Close: sub.Close,
	}, nil
}

// stamp returns a text that changes when a file changes: its name, size and modification time.
func stamp(name string, info fs.FileInfo) string {
	return fmt.Sprintf("%s %d %d", name, info.Size(), info.ModTime().UnixNano())
}

// fingerprint returns a checksum of the names, sizes and times of a directory's files, without reading them. It omits
// hidden files, because ReadFS does not read them, and because the .git folder of a clone is large.
func fingerprint(ctx context.Context, fsys fs.FS) (string, error) {
	sum, files := sha256.New(), 0
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		hidden := name != "." && strings.HasPrefix(d.Name(), ".")
		switch {
		case hidden && d.IsDir():
			return fs.SkipDir
		case hidden, d.IsDir():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if files++; files > maxLocalFiles {
			return errors.New("the folder has too many files")
		}
		_, err = fmt.Fprintln(sum, stamp(path.Clean(name), info))
		return err
	})
	if err != nil {
		return "", reason(err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
