package format

import (
	"bufio"
	"errors"
	"io"
	"iter"
)

// values yields the objects of a JSON array or of a sequence of objects. For an object of more than limit bytes it
// yields errTooLarge. A yielded object is valid until the next one.
func values(r io.Reader, limit int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := splitter{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
		for {
			value, err := s.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(value, err) || err != nil && !errors.Is(err, errTooLarge) {
				return
			}
		}
	}
}

// A splitter finds the ends of objects by counting brackets outside of strings. It does not validate the objects.
type splitter struct {
	r     *bufio.Reader
	limit int64
	buf   []byte
	array bool // the input is an array
	ended bool // the array was closed
}

// next returns the next object, or io.EOF if there is none.
func (s *splitter) next() ([]byte, error) {
	for {
		c, err := s.r.ReadByte()
		switch {
		case err != nil && s.array && !s.ended:
			return nil, unexpected(err)
		case err != nil:
			return nil, err
		case c == '{':
			return s.object()
		case c == '[' && !s.array:
			s.array = true
		case c == ']' && s.array && !s.ended:
			s.ended = true
		case c == ' ', c == '\n', c == '\t', c == '\r', c == ',' && s.array && !s.ended:
		case c == 0xef, c == 0xbb, c == 0xbf: // a byte order mark
		default:
			return nil, errors.New("is not a JSON object or a list of JSON objects")
		}
	}
}

// object reads the rest of an object.
func (s *splitter) object() ([]byte, error) {
	s.buf = append(s.buf[:0], '{')
	large, depth, quoted, escaped := false, 1, false, false
	for depth > 0 {
		chunk, err := s.r.Peek(max(1, s.r.Buffered()))
		if err != nil {
			return nil, unexpected(err)
		}
		n := 0
		for n < len(chunk) && depth > 0 {
			c := chunk[n]
			n++
			switch {
			case escaped:
				escaped = false
			case quoted:
				quoted, escaped = c != '"', c == '\\'
			case c == '"':
				quoted = true
			case c == '{', c == '[':
				depth++
			case c == '}', c == ']':
				depth--
			}
		}
		if large = large || int64(len(s.buf)+n) > s.limit; !large {
			s.buf = append(s.buf, chunk[:n]...)
		}
		if _, err := s.r.Discard(n); err != nil {
			return nil, err
		}
	}
	if large {
		return nil, errTooLarge
	}
	return s.buf, nil
}

// unexpected returns err, or an error that says that the text ends inside a record if err is io.EOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("ends in the middle of a record")
	}
	return err
}
