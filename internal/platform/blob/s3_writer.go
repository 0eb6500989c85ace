package blob

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/minio/minio-go/v7"
)

const (
	minPart  = 5 << 20 // smallest size that S3 accepts for a part, in bytes; the last part may be smaller
	partSize = 8 << 20 // size of the parts that we send, in bytes
	maxParts = 10_000  // largest number of parts that S3 accepts for a file
	maxCopy  = 1 << 30 // largest part that is copied, in bytes

	smallBuffer = 256 << 10 // largest buffer, in bytes, before it gets the size of a part

	contentType = "application/octet-stream"
)

var partBuffers = sync.Pool{New: func() any { return new([partSize]byte) }}

// An s3Writer writes a file in parts. A file that is smaller than a part needs one request. While a part is sent, the
// next one is filled.
type s3Writer struct {
	ctx    context.Context // the context that Create or Resume received
	s      *S3
	path   string
	upload string // id of the S3 upload; "" until a part is sent
	parts  []minio.ObjectPart
	buf    []byte
	whole  *[partSize]byte // array that contains buf, unless buf is small
	sent   chan sentPart   // nil if no part is being sent
}

// A sentPart is the result of sending a part.
type sentPart struct {
	part   minio.ObjectPart
	err    error
	buffer *[partSize]byte
}

// Create implements Storage.
func (s *S3) Create(ctx context.Context, path string) (Writer, error) {
	return &s3Writer{ctx: ctx, s: s, path: path}, nil
}

// Resume implements Storage. Parts cannot be read, so it recognizes the parts of the Pause by the sum of their
// sizes. A process that was killed may have left another upload of the same path.
func (s *S3) Resume(ctx context.Context, path string, size int64) (Writer, error) {
	if size == 0 {
		return s.Create(ctx, path)
	}
	ids, err := s.uploads(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		w := &s3Writer{ctx: ctx, s: s, path: path, upload: id}
		err := w.readParts(ctx)
		if Missing(err) { // the upload ended after it was listed
			continue
		}
		if err != nil {
			return nil, err
		}
		if w.size() == size {
			return w, nil
		}
	}
	return nil, missing(path)
}

// readParts reads the list of the parts of an upload.
func (w *s3Writer) readParts(ctx context.Context) error {
	for marker := 0; ; {
		page, err := w.s.core.ListObjectParts(ctx, w.s.bucket, w.s.key(w.path), w.upload, marker, maxListed)
		if err != nil {
			return w.s.failure("list the parts of", w.path, err)
		}
		w.parts = append(w.parts, page.ObjectParts...)
		if !page.IsTruncated || page.NextPartNumberMarker <= marker {
			break
		}
		marker = page.NextPartNumberMarker
	}
	slices.SortFunc(w.parts, func(a, b minio.ObjectPart) int { return a.PartNumber - b.PartNumber })
	return nil
}

// size returns the total size of the parts that were sent, in bytes.
func (w *s3Writer) size() (n int64) {
	for _, p := range w.parts {
		n += p.Size
	}
	return n
}

// Write implements io.Writer.
func (w *s3Writer) Write(p []byte) (int, error) {
	if n := len(w.parts); n > 0 && len(p) > 0 && w.sent == nil && w.parts[n-1].Size < minPart {
		if err := w.mend(w.ctx); err != nil {
			return 0, err
		}
	}
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), partSize-len(w.buf))
		w.grow(n)
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		if len(w.buf) == partSize {
			if err := w.send(); err != nil {
				return total - len(p), err
			}
		}
	}
	return total, nil
}

// grow makes room for n bytes. Most files are small, so a buffer begins smaller than a part.
func (w *s3Writer) grow(n int) {
	if w.whole != nil || len(w.buf)+n <= smallBuffer {
		return
	}
	w.whole = partBuffers.Get().(*[partSize]byte)
	w.buf = append(w.whole[:0], w.buf...)
}

// send starts sending the buffer as soon as the previous part has arrived.
func (w *s3Writer) send() error {
	if err := w.wait(); err != nil {
		return err
	}
	if w.upload == "" {
		id, err := w.s.core.NewMultipartUpload(w.ctx, w.s.bucket, w.s.key(w.path),
			minio.PutObjectOptions{ContentType: contentType})
		if err != nil {
			return w.s.failure("write", w.path, err)
		}
		w.upload = id
	}
	number := len(w.parts) + 1
	if number > maxParts {
		return fmt.Errorf("write %s: it has more than %d parts, which S3 does not allow", w.path, maxParts)
	}
	content, buffer := w.buf, w.whole
	w.buf, w.whole, w.sent = nil, nil, make(chan sentPart, 1)
	go func(sent chan<- sentPart) {
		var part minio.ObjectPart
		err := upload(w.ctx, content, func(body io.Reader) (err error) {
			part, err = w.s.core.PutObjectPart(w.ctx, w.s.bucket, w.s.key(w.path), w.upload, number, body,
				int64(len(content)), minio.PutObjectPartOptions{})
			return err
		})
		sent <- sentPart{part, w.s.failure("write", w.path, err), buffer}
	}(w.sent)
	return nil
}

// wait waits until no part is being sent.
func (w *s3Writer) wait() error {
	if w.sent == nil {
		return nil
	}
	done := <-w.sent
	w.sent = nil
	if done.buffer != nil {
		partBuffers.Put(done.buffer)
	}
	if done.err == nil {
		w.parts = append(w.parts, done.part)
	}
	return done.err
}

// flush waits until everything that was written has been sent.
func (w *s3Writer) flush() error {
	if len(w.buf) > 0 {
		if err := w.send(); err != nil {
			return err
		}
	}
	return w.wait()
}

// release returns the buffer to the pool.
func (w *s3Writer) release() {
	if w.whole != nil {
		partBuffers.Put(w.whole)
	}
	w.buf, w.whole = nil, nil
}

// Pause implements Writer. S3 accepts a part below the minimum size only as the last part. So if Write is called
// after Resume, mend has to replace that part. Most clients send nothing more.
func (w *s3Writer) Pause(context.Context) error {
	defer w.release()
	return w.flush()
}

// Commit implements Writer.
func (w *s3Writer) Commit(ctx context.Context) error {
	defer w.release()
	if w.upload == "" {
		return w.s.putObject(ctx, w.path, w.buf)
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.complete(ctx)
}

// complete turns the parts into a file. If the response to a first attempt was lost, the next attempt fails
// because the upload no longer exists. In that case the file exists.
func (w *s3Writer) complete(ctx context.Context) error {
	parts := make([]minio.CompletePart, len(w.parts))
	for i, p := range w.parts {
		parts[i] = minio.CompletePart{PartNumber: p.PartNumber, ETag: p.ETag}
	}
	_, err := w.s.core.CompleteMultipartUpload(ctx, w.s.bucket, w.s.key(w.path), w.upload, parts, minio.PutObjectOptions{})
	err = w.s.failure("complete", w.path, err)
	if !Missing(err) {
		return err
	}
	size, failed := w.s.Size(ctx, w.path)
	if failed != nil || size != w.size() {
		return err
	}
	return nil
}

// Cancel implements Writer.
func (w *s3Writer) Cancel(ctx context.Context) error {
	_ = w.wait() // a part that arrives after the upload was aborted would stay in the bucket
	w.release()
	return w.s.Discard(ctx, w.path)
}

// mend replaces a last part that is too small to be followed by another part. Parts cannot be read, so mend
// completes the file, and starts a new upload that begins with the file's content.
func (w *s3Writer) mend(ctx context.Context) error {
	if err := w.complete(ctx); err != nil {
		return err
	}
	size := w.size()
	w.upload, w.parts = "", nil
	if size < minPart {
		return w.readBack(ctx, size)
	}
	id, err := w.s.core.NewMultipartUpload(ctx, w.s.bucket, w.s.key(w.path),
		minio.PutObjectOptions{ContentType: contentType})
	if err != nil {
		return w.s.failure("write", w.path, err)
	}
	w.upload = id
	for offset := int64(0); offset < size; {
		n := min(size-offset, maxCopy)
		if rest := size - offset - n; rest > 0 && rest < minPart {
			n -= minPart
		}
		part, err := w.s.core.CopyObjectPart(ctx, w.s.bucket, w.s.key(w.path), w.s.bucket, w.s.key(w.path), id,
			len(w.parts)+1, offset, n, nil)
		if err != nil {
			return w.s.failure("copy", w.path, err)
		}
		w.parts = append(w.parts, minio.ObjectPart{PartNumber: part.PartNumber, ETag: part.ETag, Size: n})
		offset += n
	}
	return nil
}

// readBack reads a small file into the buffer.
func (w *s3Writer) readBack(ctx context.Context, size int64) error {
	body, err := w.s.Open(ctx, w.path)
	if err != nil {
		return err
	}
	defer body.Close()
	w.grow(int(size))
	buf := append(w.buf, make([]byte, size)...)
	if _, err := io.ReadFull(body, buf[len(w.buf):]); err != nil {
		return fmt.Errorf("read %s: %w", w.path, err)
	}
	w.buf = buf
	return nil
}
