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

// Missing reports whether err says that there is no such file.
func Missing(err error) bool { return isMissing(err) }
