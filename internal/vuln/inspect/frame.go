package inspect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The parent writes a sequence of frames to the child. A frame is a byte for the kind, four bytes for the length, and
// the content. The first frame is the request. For each layer, frames with its data and an end frame follow. When the
// child has answered, the frames of the next image follow.
const (
	frameRequest = 'R'
	frameData    = 'D'
	frameEnd     = 'E'

	frameHead = 5
	maxFrame  = 256 << 10

	maxRequest = 64 << 20 // maximum length of a request, which may list many hard links
)

var errFrame = errors.New("unexpected frame")

func writeFrame(w io.Writer, kind byte, content []byte) error {
	head := make([]byte, frameHead, frameHead+len(content))
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(content)))
	_, err := w.Write(append(head, content...))
	return err
}

// writeLayer writes the content of r as one layer. It returns an error of r as readErr, and an error of the child's
// pipe as writeErr.
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
	left int  // number of unread bytes in the current data frame
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
	if length > maxFrame && (head[0] != frameRequest || length > maxRequest) {
		return 0, 0, fmt.Errorf("%w: %d bytes", errFrame, length)
	}
	return head[0], length, nil
}

// request returns the content of the frame with which an image begins. It skips the rest of the previous image's layer.
func (f *frameReader) request() ([]byte, error) {
	if err := f.skip(); err != nil {
		return nil, err
	}
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

// next moves to the next layer. It skips the rest of the previous layer.
func (f *frameReader) next() error {
	err := f.skip()
	f.done = false
	return err
}

// skip reads the current layer to its end.
func (f *frameReader) skip() error {
	_, err := io.Copy(io.Discard, f)
	return err
}

// Read reads the current layer. It returns io.EOF at the end of the layer, and io.ErrUnexpectedEOF at the end of the
// stream.
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
