package advisory

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// Each batch of an import is written in one transaction. With two writers, the import can prepare one batch while
// another is written.
const (
	importBatch   = 1536    // maximum number of records per batch
	importBytes   = 8 << 20 // approximate maximum size of a batch in bytes
	importWriters = 2       // maximum number of parallel transactions

	maxProblems = 1000 // maximum number of problems that are reported per import
	maxReason   = 500  // maximum length of a problem's reason in bytes
)

// A Problem is a record that could not be imported.
type Problem struct{ Name, Reason string }

// Progress counts the records that an import has committed.
type Progress struct {
	vuln.ImportResult
	Problems []Problem // problems since the last report
	Offset   int64     // number of bytes of the document that were read
}

// An Import imports records into a group. The caller must call Close.
type Import struct {
	s      *Service
	group  resource.UID
	source string
	report func(Progress) error

	tasks    *errgroup.Group
	ctx      context.Context
	batch    []vuln.Advisory
	ids      map[string]bool
	bytes    int
	problems []Problem
	reported int // number of problems in the reports so far

	mu   sync.Mutex
	done Progress
}

// Tenant returns the key under which the imports into a group are limited.
func (s *Service) Tenant(ctx context.Context, group resource.UID) resource.Tenant {
	return s.store.Tenant(ctx, group)
}

// RequireRoom returns fault.FailedPrecondition if a budget leaves no room for another advisory in a group.
func (s *Service) RequireRoom(ctx context.Context, group resource.UID) error {
	room, err := s.store.Headroom(ctx, group, resource.BudgetAdvisories)
	if err != nil {
		return err
	}
	return room.Require(ctx, 1)
}

// NewImport begins an import into a group. source is the name of the source. The import calls report after every batch,
// never concurrently, and ends if report returns an error. The caller needs advisories.create on the group.
func (s *Service) NewImport(
	ctx context.Context, group resource.UID, source string, report func(Progress) error,
) (*Import, error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesCreate, group); err != nil {
		return nil, err
	}
	return s.newImport(ctx, group, source, report), nil
}

func (s *Service) newImport(
	ctx context.Context, group resource.UID, source string, report func(Progress) error,
) *Import {
	m := &Import{s: s, group: group, source: source, report: report, ids: map[string]bool{}}
	m.tasks, m.ctx = errgroup.WithContext(ctx)
	m.tasks.SetLimit(importWriters)
	return m
}

// Failed returns a channel that is closed when a batch could not be written. Then Close returns the error.
func (m *Import) Failed() <-chan struct{} { return m.ctx.Done() }

// Read imports the records of one document or archive. If the document is an exploit list, Read replaces the group's
// list in that format. f is the format of the list. If f is "", Read detects from the content whether the document is a
// list.
func (m *Import) Read(name string, r io.ReaderAt, size int64, f vuln.ExploitFormat) error {
	if f = cmp.Or(f, format.DetectExploits(r, size)); f != "" {
		return m.replaceExploits(name, r, size, f)
	}
	return m.Add(format.Read(m.ctx, name, r, size, m.s.cfg.Limits))
}

// Add imports records. It returns when they are queued; Close waits until they are written.
func (m *Import) Add(records iter.Seq[format.Record]) error {
	for r := range records {
		if m.ctx.Err() != nil {
			break
		}
		m.add(r)
	}
	return context.Cause(m.ctx)
}

// add adds a record to the batch, or a problem if the record is invalid.
func (m *Import) add(r format.Record) {
	err := r.Err
	if err == nil {
		err = check(r.Advisory)
	}
	if err == nil && r.Advisory.ID == "" {
		err = errors.New("has no id")
	}
	if err != nil {
		m.reject(r, err)
		return
	}
	a := r.Advisory
	if m.ids[a.ID] { // a transaction cannot contain the same ID twice
		m.flush(r.Offset)
	}
	m.batch = append(m.batch, a)
	m.ids[a.ID] = true
	m.bytes += 512 + a.Size() + 32*len(a.References)
	if len(m.batch) >= importBatch || m.bytes >= importBytes {
		m.flush(r.Offset)
	}
}

// reject counts a failed record and adds its problem to the next report.
func (m *Import) reject(r format.Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done.Failed++
	m.done.Offset = max(m.done.Offset, r.Offset)
	if m.reported < maxProblems {
		m.reported++
		m.problems = append(m.problems, Problem{clip(r.Name), clip(refusal(err))})
	}
}

// refusal returns the reason why a record is refused, with all invalid fields. The caller clips the text.
func refusal(err error) string {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || len(f.Fields) == 0 {
		return err.Error()
	}
	var reasons []string
	for _, v := range f.Fields {
		reasons = append(reasons, v.Subject+": "+v.Description)
	}
	return strings.Join(reasons, "; ")
}

// flush starts a transaction for the batch. It waits if importWriters transactions are running.
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
		m.s.count(done)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.done.Add(done)
		m.done.Offset = max(m.done.Offset, offset)
		return m.reportProgress()
	})
}

// count adds the records of a batch to the metrics.
func (s *Service) count(done vuln.ImportResult) {
	imports := s.cfg.Metrics.Imports
	imports.Add(done.Created, "created")
	imports.Add(done.Updated, "updated")
	imports.Add(done.Unchanged, metric.Unchanged)
	imports.Add(done.Older, "older")
}

// reportProgress calls report. The caller holds mu.
func (m *Import) reportProgress() error {
	if m.report == nil {
		return nil
	}
	p := m.done
	p.Problems, m.problems = m.problems, nil
	return m.report(p)
}

// Close writes the last batch and returns the result of the import.
func (m *Import) Close() (vuln.ImportResult, error) {
	m.flush(0)
	err := m.tasks.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		err = m.reportProgress()
	}
	m.s.cfg.Metrics.Imports.Add(m.done.Failed, metric.Failed)
	return m.done.ImportResult, err
}

// clip shortens a text of an untrusted record to maxReason bytes and makes it valid UTF-8.
func clip(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
