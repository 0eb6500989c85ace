package mirror

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/registry/upload"
	"github.com/holdfast-dev/holdfast/internal/store/access"
)

// A Download is a blob that arrives from an upstream. All clients that ask for the blob during the download read from
// it. Its bytes are in an unlinked temporary file and not in the storage, because an object store cannot return bytes
// before they are committed. No client gets the last byte before the digest is verified.
//
// The download is canceled when its last reader leaves, unless all bytes have arrived.
type Download struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	begun  chan struct{} // closed when size is known or the download has failed

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced on every change
	file     *os.File
	users    int   // number of readers of the file, plus its writer
	size     int64 // size of the blob in bytes; -1 if the upstream does not report it
	have     int64 // number of bytes that have arrived
	verified bool  // the blob is complete and has the right digest
	ended    bool  // the blob is stored, or the download has failed
	err      error
}

// errAbandoned is the reason for canceling a download that nobody waits for.
var errAbandoned = errors.New("no client waits for the download")

// newDownload returns a download whose context keeps the values of ctx. The download does not end with the request of
// ctx, because other clients may wait for it.
func newDownload(ctx context.Context) *Download {
	d := &Download{begun: make(chan struct{}), changed: make(chan struct{}), size: -1, users: 1}
	d.ctx, d.cancel = context.WithCancelCause(access.Without(context.WithoutCancel(ctx)))
	return d
}

// change calls f with the lock held, and then wakes up the readers of the download.
func (d *Download) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
}

// start creates the file in dir and sets the size of the blob.
func (d *Download) start(dir string, size int64) error {
	file, err := os.CreateTemp(dir, ".upstream-*")
	if err != nil {
		return err
	}
	if err := os.Remove(file.Name()); err != nil { // the open file stays usable, and a crash leaves no file behind
		return errors.Join(err, file.Close())
	}
	d.change(func() { d.file, d.size = file, size })
	close(d.begun)
	return nil
}

// Write implements io.Writer.
func (d *Download) Write(p []byte) (int, error) {
	n, err := d.file.WriteAt(p, d.have)
	d.change(func() { d.have += int64(n) })
	return n, err
}

// verify marks the blob as complete, so that it is stored even if all readers leave. The caller must have verified its
// digest. verify returns false if the download was canceled before.
func (d *Download) verify() bool {
	d.change(func() {
		if d.ctx.Err() == nil {
			d.verified, d.size = true, d.have
		}
	})
	return d.ctx.Err() == nil
}

// end marks the download as ended. err is nil if the blob is stored, and otherwise the reason why the download
// failed.
func (d *Download) end(err error) {
	d.change(func() { d.ended, d.err = true, err })
	select {
	case <-d.begun:
	default:
		close(d.begun)
	}
	d.cancel(nil)
	d.Leave()
}

// join adds a user of the download, so that the file stays open until Leave. It returns false if the download was
// canceled because its last reader has left.
func (d *Download) join() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil && !d.ended {
		return false
	}
	d.users++
	return true
}

// Leave removes a user of the download. The last reader cancels it, unless all bytes have arrived. The last user closes
// the file.
func (d *Download) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users--
	if d.users == 1 && !d.verified && !d.ended { // only the writer is left
		d.cancel(errAbandoned)
	}
	if d.users == 0 && d.file != nil {
		_ = d.file.Close() // the file has no name, so closing it deletes it
	}
}

// state returns how many bytes can be read, whether these are the whole blob, and a channel that is closed on the
// next change. The error is not nil if no further bytes will arrive.
func (d *Download) state() (ready int64, complete bool, changed <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.verified {
		return d.have, true, d.changed, nil
	}
	return max(0, d.have-1), false, d.changed, d.err
}

// Size waits until the size of the blob is known and returns it, in bytes. The size is -1 if the upstream does not
// report it.
func (d *Download) Size(ctx context.Context) (int64, error) {
	select {
	case <-d.begun:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.verified {
		return d.size, nil
	}
	return d.size, d.err
}

// Wait waits until the blob is stored. It returns an error if the download has failed.
func (d *Download) Wait(ctx context.Context) error {
	for {
		d.mu.Lock()
		ended, err, changed := d.ended, d.err, d.changed
		d.mu.Unlock()
		if ended {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CopyTo writes the blob to w as it arrives. It calls flush whenever it has to wait for further bytes.
func (d *Download) CopyTo(ctx context.Context, w io.Writer, flush func()) error {
	buf := upload.GetChunk()
	defer upload.PutChunk(buf)
	for offset := int64(0); ; {
		ready, complete, changed, err := d.state()
		switch {
		case offset < ready:
			n, err := d.file.ReadAt(buf[:min(upload.ChunkSize, ready-offset)], offset)
			if n == 0 && err != nil {
				return err
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			offset += int64(n)
			continue
		case complete:
			return nil
		case err != nil:
			return err
		}
		flush()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// downloads holds the downloads that are running.
type downloads struct {
	mu    sync.Mutex
	byKey map[string]*Download
}

func newDownloads() *downloads { return &downloads{byKey: map[string]*Download{}} }

// get returns the download with a key. The caller must call Leave. If first is true, the download is new and the
// caller must start it.
func (a *downloads) get(ctx context.Context, key string) (d *Download, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d = a.byKey[key]; d != nil && d.join() {
		return d, false
	}
	d = newDownload(ctx)
	d.join()
	a.byKey[key] = d
	return d, true
}

// end ends a download. A later request finds the stored blob or starts another download.
func (a *downloads) end(key string, d *Download, err error) {
	a.mu.Lock()
	if a.byKey[key] == d { // another download may have replaced a canceled one
		delete(a.byKey, key)
	}
	a.mu.Unlock()
	d.end(err)
}
