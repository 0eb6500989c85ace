package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
)

// These methods are for back-ups, which copy files from one Storage to another.

// Size returns the size of a file, or -1 if there is none at path.
func (s *Storage) Size(ctx context.Context, path string) (int64, error) {
	info, err := s.driver.Stat(ctx, path)
	if isMissing(err) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for %s: %w", path, err)
	}
	return info.Size(), nil
}

// Open returns a reader of a file. If there is none, Missing reports that of the
// error.
func (s *Storage) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	body, err := s.driver.Reader(ctx, path, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return body, nil
}

// Put writes a file, in place of one that is there, and returns when it is durable.
func (s *Storage) Put(ctx context.Context, file string, content io.Reader) error {
	w, err := s.driver.Writer(ctx, file, false)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if _, err := io.Copy(w, content); err != nil {
		return fmt.Errorf("write %s: %w", file, errors.Join(err, w.Cancel(ctx), w.Close()))
	}
	if err := errors.Join(w.Commit(ctx), w.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return s.syncNames(path.Dir(file))
}

// Names returns the names of what is in a folder, which need not be there.
func (s *Storage) Names(ctx context.Context, dir string) (names []string, _ error) {
	all, err := s.driver.List(ctx, dir)
	if err != nil && !isMissing(err) {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, file := range all {
		names = append(names, path.Base(file))
	}
	return names, nil
}

// Remove removes a file, or a folder with what is in it, if it is there.
func (s *Storage) Remove(ctx context.Context, path string) error { return s.remove(ctx, path) }

// Missing reports whether err says that there is no such file.
func Missing(err error) bool { return isMissing(err) }
