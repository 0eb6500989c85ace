package feed

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// Files are decoded in batches: small enough that a few of them are little
// memory, large enough that handing them over costs nothing.
const (
	batchBytes = 256 << 10
	batchFiles = 128

	// maxUnderWay is how many bytes of text are being decoded at a time, if it
	// is more than one file. They take several times as much.
	maxUnderWay = 32 << 20
)

// A feed is one reading: it collects work into batches, has them decoded on all
// cores, and yields what comes of them in order.
type feed struct {
	ctx    context.Context
	yield  func(Record) bool
	limits Limits

	files int
	total int64

	batch    []job
	size     int64 // of the batch, uncompressed
	queue    []underWay
	underWay int64 // bytes of the queue
	stopped  bool  // nobody wants more, or nobody may have it

	scratches sync.Pool
	oneByOne  sync.Mutex // held while a large YAML document is decoded
}

// An underWay is a batch that is being decoded.
type underWay struct {
	size int64
	done chan []Record
}

// A job is a file, or a value of one, to be decoded.
type job struct {
	name   string
	offset int64
	load   func(*scratch) ([]byte, error)
	decode func(name string, text []byte) []Record
}

func newFeed(ctx context.Context, lim Limits, yield func(Record) bool) *feed {
	f := &feed{ctx: ctx, yield: yield, limits: lim.withDefaults()}
	f.scratches.New = func() any { return new(scratch) }
	return f
}

// add queues a job of so many bytes. It reports false when there is no use in
// more.
func (f *feed) add(j job, size int64) bool {
	if f.stopped {
		return false
	}
	if f.total += size; f.total > f.limits.Total {
		f.report(j.name, errTotal)
		f.finish()
		f.stopped = true
		return false
	}
	if size > f.limits.Record {
		f.report(j.name, errTooLarge)
		return !f.stopped
	}
	f.put(j, size)
	return !f.stopped
}

// put adds to the batch, and starts it when it is full.
func (f *feed) put(j job, size int64) {
	f.batch = append(f.batch, j)
	if f.size += size; f.size >= batchBytes || len(f.batch) >= batchFiles {
		f.start()
	}
}

// start hands the batch to a worker, after those before it have come so far that
// there is room for it.
func (f *feed) start() {
	batch, size := f.batch, f.size
	f.batch, f.size = nil, 0
	if len(batch) == 0 {
		return
	}
	for len(f.queue) > 0 && (len(f.queue) >= 2*runtime.GOMAXPROCS(0) || f.underWay+size > maxUnderWay) {
		f.drain()
	}
	if f.stopped {
		return
	}
	next := underWay{size, make(chan []Record, 1)}
	f.queue, f.underWay = append(f.queue, next), f.underWay+size
	go func() { next.done <- f.run(batch) }()
}

// run decodes a batch.
func (f *feed) run(batch []job) []Record {
	s := f.scratches.Get().(*scratch)
	defer f.scratches.Put(s)
	all := make([]Record, 0, len(batch))
	for _, j := range batch {
		for _, rec := range j.run(s) {
			rec.Offset = j.offset
			all = append(all, rec)
		}
	}
	return all
}

// run decodes a file. One that makes a decoder panic is a mistake of ours, and no
// reason for the server to stop.
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

// drain yields the oldest batch.
func (f *feed) drain() {
	oldest := f.queue[0]
	records := <-oldest.done
	f.queue, f.underWay = f.queue[1:], f.underWay-oldest.size
	for i := range records {
		f.emit(records[i])
	}
}

func (f *feed) emit(rec Record) {
	if f.stopped {
		return
	}
	if err := f.ctx.Err(); err != nil {
		f.yield(Record{Name: rec.Name, Err: err, Offset: rec.Offset})
		f.stopped = true
		return
	}
	f.stopped = !f.yield(rec)
}

// report yields an error about a file, in its place.
func (f *feed) report(name string, err error) {
	f.put(job{name: name, load: func(*scratch) ([]byte, error) { return nil, err }}, 0)
}

// finish yields what is left, and waits for the workers: after it, nothing that
// was added is read any more.
func (f *feed) finish() {
	f.start()
	for len(f.queue) > 0 {
		f.drain()
	}
}

// A cancellable reader ends with its context: what it reads may be long and hold
// nothing to yield.
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

// stream reads JSON value by value.
func (f *feed) stream(name string, r *io.SectionReader) {
	n := 0
	for value, err := range values(cancellable{f.ctx, r}, f.limits.Record) {
		offset, _ := r.Seek(0, io.SeekCurrent)
		text, valueErr := string(value), err
		j := job{
			name: numbered(name, n), offset: offset,
			load: func(*scratch) ([]byte, error) { return nil, valueErr },
			decode: func(record string, _ []byte) []Record {
				return decodeValue(record, name, text)
			},
		}
		n++
		if !f.add(j, int64(len(text))) {
			return
		}
	}
	if n == 0 {
		f.report(name, errEmpty)
	}
}

// document reads a file that must be in memory as a whole.
func (f *feed) document(name string, r *io.SectionReader, size int64) {
	f.add(job{name: name, offset: size, decode: f.decode, load: func(s *scratch) ([]byte, error) {
		text := room(&s.text, size)
		_, err := io.ReadFull(r, text)
		return text, err
	}}, size)
}
