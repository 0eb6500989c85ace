package inspect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What the parent writes to the child is a sequence of frames: a byte for the kind, four
// for the length, and the content. First comes the request; then for each layer its data
// and an end.
const (
	frameRequest = 'R'
	frameData    = 'D'
	frameEnd     = 'E'

	frameHead = 5
	maxFrame  = 256 << 10
)

var errFrame = errors.New("not a frame that is expected here")

func writeFrame(w io.Writer, kind byte, content []byte) error {
	head := make([]byte, frameHead, frameHead+len(content))
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(content)))
	_, err := w.Write(append(head, content...))
	return err
}

// writeLayer writes all that r has as one layer. A broken r is told apart from a child
// that is gone: only the first error is one of reading.
func writeLayer(w io.Writer, r io.Reader) (readErr, writeErr error) {
	buffer := make([]byte, frameHead+maxFrame)
	for {
		n, err := io.ReadFull(r, buffer[frameHead:])
		if n > 0 {
			buffer[0] = frameData
			binary.BigEndian.PutUint32(buffer[1:], uint32(n))
			if _, err := w.Write(buffer[:frameHead+n]); err != nil {
				return nil, err
			}
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, writeFrame(w, frameEnd, nil)
		}
		if err != nil {
			return err, nil
		}
	}
}

// A frameReader reads frames, in the child.
type frameReader struct {
	from *bufio.Reader
	left int  // of the current frame of data
	done bool // whether the current layer has ended
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{from: bufio.NewReaderSize(r, 64<<10), done: true}
}

func (f *frameReader) head() (kind byte, length int, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(f.from, head[:]); err != nil {
		return 0, 0, fmt.Errorf("read a frame: %w", err)
	}
	length = int(binary.BigEndian.Uint32(head[1:]))
	if length > maxFrame {
		return 0, 0, fmt.Errorf("%w: %d bytes", errFrame, length)
	}
	return head[0], length, nil
}

// request returns the content of the first frame.
func (f *frameReader) request() ([]byte, error) {
	kind, length, err := f.head()
	if err != nil {
		return nil, err
	}
	if kind != frameRequest {
		return nil, errFrame
	}
	content := make([]byte, length)
	_, err = io.ReadFull(f.from, content)
	return content, err
}

// next begins with the next layer, and skips what is left of the one before.
func (f *frameReader) next() error {
	if !f.done {
		if _, err := io.Copy(io.Discard, f); err != nil {
			return err
		}
	}
	f.done = false
	return nil
}

// Read reads the current layer. Its end is io.EOF; the end of the stream is not.
func (f *frameReader) Read(p []byte) (int, error) {
	for f.left == 0 {
		if f.done {
			return 0, io.EOF
		}
		kind, length, err := f.head()
		if errors.Is(err, io.EOF) {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		switch {
		case kind == frameData:
			f.left = length
		case kind == frameEnd && length == 0:
			f.done = true
		default:
			return 0, errFrame
		}
	}
	n, err := f.from.Read(p[:min(len(p), f.left)])
	f.left -= n
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
