package advisory

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/advisory/feed"
	"github.com/holdfast-dev/holdfast/resource"
)

// How an import goes to the store. A batch is one transaction; two are under
// way, so that one is worked out while the other is written.
const (
	importBatch   = 1536
	importBytes   = 8 << 20 // of a batch, about
	importWriters = 2

	maxProblems = 1000 // told of one import
	maxReason   = 500  // bytes
)

// A Problem is a record that could not be taken.
type Problem struct{ Name, Reason string }

// Progress is how far an import is. What it counts is on disk.
type Progress struct {
	resource.ImportResult
	Problems []Problem // since the last time
	Offset   int64     // bytes of the document
}

// An Import takes records into a group. Close ends it.
type Import struct {
	s      *Service
	group  resource.UID
	source string
	tell   func(Progress) error

	tasks    *errgroup.Group
	ctx      context.Context
	batch    []resource.Advisory
	ids      map[string]bool
	bytes    int
	problems []Problem
	told     int

	mu   sync.Mutex
	done Progress
}

// NewImport begins an import into a group from a source of that name. tell is
// called, by one goroutine at a time, after every batch; its error ends the
// import. The caller needs advisories.create there.
func (s *Service) NewImport(ctx context.Context, group resource.UID, source string, tell func(Progress) error) (*Import, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesCreate, group); err != nil {
		return nil, err
	}
	return s.newImport(ctx, group, source, tell), nil
}

func (s *Service) newImport(ctx context.Context, group resource.UID, source string, tell func(Progress) error) *Import {
	m := &Import{s: s, group: group, source: source, tell: tell, ids: map[string]bool{}}
	m.tasks, m.ctx = errgroup.WithContext(ctx)
	m.tasks.SetLimit(importWriters)
	return m
}

// Read takes in one document or archive.
func (m *Import) Read(name string, r io.ReaderAt, size int64) error {
	return m.Take(feed.Read(m.ctx, name, r, size, m.s.cfg.Limits))
}

// Take takes in records.
func (m *Import) Take(records iter.Seq[feed.Record]) error {
	for r := range records {
		if m.ctx.Err() != nil {
			break
		}
		m.add(r)
	}
	return context.Cause(m.ctx)
}

// add puts a record into the batch, or says why not.
func (m *Import) add(r feed.Record) {
	err := r.Err
	if err == nil {
		err = check(r.Advisory)
	}
	if err == nil && r.Advisory.ID == "" {
		err = errors.New("has no id")
	}
	if err != nil {
		m.reject(r.Name, err)
		m.offset(r.Offset)
		return
	}
	a := r.Advisory
	if m.ids[a.ID] { // one transaction takes an id once
		m.flush(r.Offset)
	}
	m.batch = append(m.batch, a)
	m.ids[a.ID] = true
	m.bytes += 512 + len(a.Details) + 128*len(a.Affected) + 32*len(a.References)
	if len(m.batch) >= importBatch || m.bytes >= importBytes {
		m.flush(r.Offset)
	}
}

// reject counts a record that cannot be taken, and tells of it.
func (m *Import) reject(name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done.Failed++
	if m.told < maxProblems {
		m.told++
		m.problems = append(m.problems, Problem{clip(name), clip(reason(err))})
	}
}

func (m *Import) offset(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done.Offset = max(m.done.Offset, n)
}

// flush has the batch written while the next one is read.
func (m *Import) flush(offset int64) {
	batch := m.batch
	m.batch, m.bytes = nil, 0
	clear(m.ids)
	if len(batch) == 0 {
		return
	}
	m.tasks.Go(func() error {
		done, err := m.s.store.ImportAdvisories(m.ctx, m.group, m.source, batch)
		if err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.done.Add(done)
		m.done.Offset = max(m.done.Offset, offset)
		return m.report()
	})
}

// report tells how far the import is; mu is held.
func (m *Import) report() error {
	if m.tell == nil {
		return nil
	}
	p := m.done
	p.Problems, m.problems = m.problems, nil
	return m.tell(p)
}

// Close writes what is left and returns what became of all records.
func (m *Import) Close() (resource.ImportResult, error) {
	m.flush(0)
	err := m.tasks.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		err = m.report()
	}
	return m.done.ImportResult, err
}

// clip shortens what is told of a record: it is somebody else's text.
func clip(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
