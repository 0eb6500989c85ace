package protocol

import (
	"hash"
	"sync"
)

// chunk is how many bytes of a body are read, hashed and written at a time. hashAhead of them are in memory, so that one
// is read and written while others are hashed.
const (
	chunk     = 128 << 10
	hashAhead = 4
)

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// A hasher hashes chunks in a goroutine of its own, because hashing takes as long as writing.
type hasher struct {
	free chan *[chunk]byte
	full chan hashed
	made int
	done chan struct{}
}

type hashed struct {
	buf *[chunk]byte
	n   int
}

// newHasher returns a hasher that adds to sum. The caller must call end.
func newHasher(sum hash.Hash) *hasher {
	h := &hasher{free: make(chan *[chunk]byte, hashAhead), full: make(chan hashed, hashAhead), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for c := range h.full {
			sum.Write(c.buf[:c.n])
			h.free <- c.buf
		}
	}()
	return h
}

// buffer returns one that nobody uses.
func (h *hasher) buffer() *[chunk]byte {
	select {
	case b := <-h.free:
		return b
	default:
	}
	if h.made < hashAhead {
		h.made++
		return chunks.Get().(*[chunk]byte)
	}
	return <-h.free
}

// add hashes n bytes of a buffer. The caller may go on reading them until the next call of buffer.
func (h *hasher) add(b *[chunk]byte, n int) { h.full <- hashed{b, n} }

// end returns when everything is hashed. last is a buffer that was not added, or nil.
func (h *hasher) end(last *[chunk]byte) {
	close(h.full)
	<-h.done
	if last != nil {
		chunks.Put(last)
	}
	for {
		select {
		case b := <-h.free:
			chunks.Put(b)
		default:
			return
		}
	}
}
