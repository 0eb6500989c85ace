package upload

import (
	"encoding"
	"fmt"
	"hash"
	"sync"

	"github.com/opencontainers/go-digest"
)

const (
	// ChunkSize is the number of bytes that are read from a body, hashed and written at a time.
	ChunkSize = 128 << 10

	// hashAhead is the number of chunks in memory. While some are hashed, another one is read and written.
	hashAhead = 4
)

// Chunk is a buffer for a part of a body.
type Chunk = [ChunkSize]byte

var chunks = sync.Pool{New: func() any { return new(Chunk) }}

// GetChunk returns an unused buffer. The caller returns it with PutChunk.
func GetChunk() *Chunk { return chunks.Get().(*Chunk) }

// PutChunk makes a buffer available to other callers of GetChunk.
func PutChunk(c *Chunk) { chunks.Put(c) }

// A hasher hashes chunks in its own goroutine, because hashing takes as long as writing.
type hasher struct {
	free chan *Chunk
	full chan filledChunk
	made int // number of buffers that were taken from the pool
	done chan struct{}
}

// A filledChunk is a buffer with n bytes to hash.
type filledChunk struct {
	buf *Chunk
	n   int
}

// newHasher returns a hasher that writes to sum. The caller must call end.
func newHasher(sum hash.Hash) *hasher {
	h := &hasher{
		free: make(chan *Chunk, hashAhead), full: make(chan filledChunk, hashAhead), done: make(chan struct{}),
	}
	go func() {
		defer close(h.done)
		for c := range h.full {
			sum.Write(c.buf[:c.n])
			h.free <- c.buf
		}
	}()
	return h
}

// buffer returns a buffer that is not in use. If hashAhead buffers wait to be hashed, it waits until one is free.
func (h *hasher) buffer() *Chunk {
	select {
	case b := <-h.free:
		return b
	default:
	}
	if h.made < hashAhead {
		h.made++
		return GetChunk()
	}
	return <-h.free
}

// add hashes n bytes of a buffer. The caller may read the buffer until it calls buffer again.
func (h *hasher) add(b *Chunk, n int) { h.full <- filledChunk{b, n} }

// end returns when all added bytes are hashed. last is a buffer that was not added, or nil.
func (h *hasher) end(last *Chunk) {
	close(h.full)
	<-h.done
	if last != nil {
		PutChunk(last)
	}
	for {
		select {
		case b := <-h.free:
			PutChunk(b)
		default:
			return
		}
	}
}

// saveHash returns the state of a hash, which is 100 to 200 bytes long. Every hash of the standard library can return
// its state.
func saveHash(h hash.Hash) ([]byte, error) { return h.(encoding.BinaryMarshaler).MarshalBinary() }

// restoreHash returns a hash with a state from saveHash, or a new hash if the state is empty.
func restoreHash(a digest.Algorithm, state []byte) (hash.Hash, error) {
	h := a.Hash()
	if len(state) == 0 {
		return h, nil
	}
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("restore hash: %w", err)
	}
	return h, nil
}
