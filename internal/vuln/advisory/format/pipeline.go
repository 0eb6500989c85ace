package format

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// Files are decoded in batches. A few batches need little memory, and passing a batch to a goroutine costs little
// compared with decoding it.
const (
	batchBytes = 256 << 10
	batchFiles = 128

	// maxInFlight is the number of bytes of text that are decoded at a time, unless one file is larger. Decoding needs
	// several times as much memory.
	maxInFlight = 32 << 20
)

// A pipeline collects jobs into batches, decodes the batches in parallel, and yields their records in order.
type pipeline struct {
	ctx    context.Context
	yield  func(Record) bool
	limits Limits

	files int
	total int64

	batch    []job
	size     int64 // uncompressed bytes in the batch
	queue    []inFlight
	inFlight int64 // uncompressed bytes in the queue
	stopped  bool  // whether the pipeline has stopped yielding records

	scratches   sync.Pool
	largeYAMLMu sync.Mutex // held while a large YAML document is decoded
}

// An inFlight is a batch that is being decoded.
type inFlight struct {
	size int64
	done chan []Record
}

// A job decodes a file, or one value of a file.
type job struct {
	name   string
	offset int64
	load   func(*scratch) ([]byte, error)
	decode func(name string, text []byte) []Record
}

func newPipeline(ctx context.Context, lim Limits, yield func(Record) bool) *pipeline {
	p := &pipeline{ctx: ctx, yield: yield, limits: lim.withDefaults()}
	p.scratches.New = func() any { return new(scratch) }
	return p
}

// add adds a job that decodes size bytes. It returns false if the pipeline has stopped yielding records.
func (p *pipeline) add(j job, size int64) bool {
	if p.stopped {
		return false
	}
	if p.total += size; p.total > p.limits.Total {
		p.report(j.name, errTotal)
		p.finish()
		p.stopped = true
		return false
	}
	if size > p.limits.Record {
		p.report(j.name, errTooLarge)
		return !p.stopped
	}
	p.put(j, size)
	return !p.stopped
}

// put adds a job to the batch, and starts the batch if it is full.
func (p *pipeline) put(j job, size int64) {
	p.batch = append(p.batch, j)
	if p.size += size; p.size >= batchBytes || len(p.batch) >= batchFiles {
		p.start()
	}
}

// start starts decoding the batch. It first waits until enough batches in flight are done.
func (p *pipeline) start() {
	batch, size := p.batch, p.size
	p.batch, p.size = nil, 0
	if len(batch) == 0 {
		return
	}
	for len(p.queue) > 0 && (len(p.queue) >= 2*runtime.GOMAXPROCS(0) || p.inFlight+size > maxInFlight) {
		p.drain()
	}
	if p.stopped {
		return
	}
	next := inFlight{size, make(chan []Record, 1)}
	p.queue, p.inFlight = append(p.queue, next), p.inFlight+size
	go func() { next.done <- p.run(batch) }()
}

// run decodes a batch.
func (p *pipeline) run(batch []job) []Record {
	s := p.scratches.Get().(*scratch)
	defer p.scratches.Put(s)
	records := make([]Record, 0, len(batch))
	for _, j := range batch {
		for _, rec := range j.run(s) {
			rec.Offset = j.offset
			records = append(records, rec)
		}
	}
	return records
}

// run decodes a file. It turns a panic of a decoder into an error, so that the panic does not stop the server.
func (j job) run(s *scratch) (records []Record) {
	defer func() {
		if p := recover(); p != nil {
			records = []Record{{Name: j.name, Err: fmt.Errorf("cannot be read: %v", p)}}
		}
	}()
	text, err := j.load(s)
	if err != nil {
		return []Record{{Name: j.name, Err: err}}
	}
	return j.decode(j.name, text)
}

// drain waits for the oldest batch and yields its records.
func (p *pipeline) drain() {
	oldest := p.queue[0]
	records := <-oldest.done
	p.queue, p.inFlight = p.queue[1:], p.inFlight-oldest.size
	for i := range records {
		p.emit(records[i])
	}
}

func (p *pipeline) emit(rec Record) {
	if p.stopped {
		return
	}
	if err := p.ctx.Err(); err != nil {
		p.yield(Record{Name: rec.Name, Err: err, Offset: rec.Offset})
		p.stopped = true
		return
	}
	p.stopped = !p.yield(rec)
}

// report yields an error about a file, in order.
func (p *pipeline) report(name string, err error) {
	p.put(job{name: name, load: func(*scratch) ([]byte, error) { return nil, err }}, 0)
}

// finish yields the remaining records. When it returns, the pipeline has stopped reading input.
func (p *pipeline) finish() {
	p.start()
	for len(p.queue) > 0 {
		p.drain()
	}
}

// A cancellable is a reader that fails when its context ends. It is needed because a long input may contain no records.
type cancellable struct {
	ctx context.Context
	io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(p)
}

// stream reads a JSON file value by value.
func (p *pipeline) stream(name string, r *io.SectionReader) {
	n := 0
	for value, err := range values(cancellable{p.ctx, r}, p.limits.Record) {
		offset, _ := r.Seek(0, io.SeekCurrent)
		text, valueErr := string(value), err
		j := job{
			name: recordName(name, n), offset: offset,
			load: func(*scratch) ([]byte, error) { return nil, valueErr },
			decode: func(record string, _ []byte) []Record {
				return decodeValue(record, name, text)
			},
		}
		n++
		if !p.add(j, int64(len(text))) {
			return
		}
	}
	if n == 0 {
		p.report(name, errEmpty)
	}
}

// document reads a file that must be loaded into memory.
func (p *pipeline) document(name string, r *io.SectionReader, size int64) {
	p.add(job{name: name, offset: size, decode: p.decode, load: func(s *scratch) ([]byte, error) {
		text := grow(&s.text, size)
		_, err := io.ReadFull(r, text)
		return text, err
	}}, size)
}
