package protocol

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

// A download is a blob that arrives from an upstream, for everybody who asks for it meanwhile. Its bytes are in a file
// without a name beside the storage, because an object store cannot read what is not committed. Nobody gets the last of
// them before their digest was compared.
type download struct {
	begun chan struct{} // closed when size is known, or the download has failed

	mu       sync.Mutex
	moved    chan struct{} // closed, and made anew, whenever something changes
	file     *os.File
	users    int   // who have the file open, with the one who writes
	size     int64 // -1 if the upstream does not say it
	have     int64
	verified bool // all is here, and is what it should be
	over     bool // and is stored, or has failed
	err      error
}

func newDownload() *download {
	return &download{begun: make(chan struct{}), moved: make(chan struct{}), size: -1, users: 1}
}

// change changes the download, and wakes up who waits.
func (d *download) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.moved)
	d.moved = make(chan struct{})
}

// start tells how long the blob is. It fails if nothing can be written to a folder.
func (d *download) start(dir string, size int64) error {
	file, err := os.CreateTemp(dir, ".upstream-*")
	if err != nil {
		return err
	}
	if err := os.Remove(file.Name()); err != nil { // a crash leaves nothing behind
		return errors.Join(err, file.Close())
	}
	d.change(func() { d.file, d.size = file, size })
	close(d.begun)
	return nil
}

// Write implements io.Writer.
func (d *download) Write(p []byte) (int, error) {
	n, err := d.file.WriteAt(p, d.have)
	d.change(func() { d.have += int64(n) })
	return n, err
}

// verify says that all is here, and is what it should be.
func (d *download) verify() { d.change(func() { d.verified, d.size = true, d.have }) }

// end says that the blob is stored, or why not.
func (d *download) end(err error) {
	d.change(func() { d.over, d.err = true, err })
	select {
	case <-d.begun:
	default:
		close(d.begun)
	}
	d.leave()
}

// join lets the caller read the download until leave.
func (d *download) join() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users++
}

func (d *download) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users--; d.users == 0 && d.file != nil {
		_ = d.file.Close() // it has no name, so nothing of it is left
	}
}

// state returns up to where the download can be read, whether that is all, what tells of a change, and why no more comes.
func (d *download) state() (ready int64, all bool, moved <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.verified {
		return d.have, true, d.moved, nil
	}
	return max(0, d.have-1), false, d.moved, d.err
}

// length waits until the length of the blob is known. It is -1 if the upstream does not say it.
func (d *download) length(ctx context.Context) (int64, error) {
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

// wait waits until the blob is stored, and returns why it is not.
func (d *download) wait(ctx context.Context) error {
	for {
		d.mu.Lock()
		over, err, moved := d.over, d.err, d.moved
		d.mu.Unlock()
		if over {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// copyTo writes the blob as it arrives.
func (d *download) copyTo(ctx context.Context, w io.Writer, flush func()) error {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for at := int64(0); ; {
		ready, all, moved, err := d.state()
		switch {
		case at < ready:
			n, err := d.file.ReadAt(buf[:min(chunk, ready-at)], at)
			if n == 0 && err != nil {
				return err
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			at += int64(n)
			continue
		case all:
			return nil
		case err != nil:
			return err
		}
		flush()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// downloads are the blobs that arrive just now.
type downloads struct {
	mu  sync.Mutex
	all map[string]*download
}

// get returns the download of a key, which the caller must leave. first reports that it begins now, and the caller must
// see to it.
func (a *downloads) get(key string) (d *download, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d = a.all[key]; d != nil {
		d.join()
		return d, false
	}
	d = newDownload()
	d.join()
	a.all[key] = d
	return d, true
}

// end ends a download. Whoever asks now finds the blob, or begins another download.
func (a *downloads) end(key string, d *download, err error) {
	a.mu.Lock()
	delete(a.all, key)
	a.mu.Unlock()
	d.end(err)
}
