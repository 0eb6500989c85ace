// Package bitmap has sets of numbers below 2,048, as they stand in a column of a
// database.
package bitmap

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
)

// Size is the number of numbers of a chunk.
const Size = 2048

// A Set has numbers from 0 to Size-1.
type Set [Size / 64]uint64

// At returns the chunk of a number of any size, and its place in there.
func At(number int64) (chunk int64, place int) { return number / Size, int(number % Size) }

// Add adds a place.
func (s *Set) Add(place int) { s[place/64] |= 1 << (place % 64) }

// Remove removes a place.
func (s *Set) Remove(place int) { s[place/64] &^= 1 << (place % 64) }

// Has reports whether a place is in the set.
func (s *Set) Has(place int) bool { return s[place/64]&(1<<(place%64)) != 0 }

// Or adds what another set has.
func (s *Set) Or(o *Set) {
	for i := range s {
		s[i] |= o[i]
	}
}

// And removes what another set does not have.
func (s *Set) And(o *Set) {
	for i := range s {
		s[i] &= o[i]
	}
}

// Minus removes what another set has.
func (s *Set) Minus(o *Set) {
	for i := range s {
		s[i] &^= o[i]
	}
}

// Len returns how many there are.
func (s *Set) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// All returns the places in order.
func (s *Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// Encode returns the set as bytes: two for each place while there are few, otherwise
// all bits.
func (s *Set) Encode() []byte {
	if n := s.Len(); 2*n < Size/8 {
		out := make([]byte, 0, 2*n)
		for place := range s.All() {
			out = binary.LittleEndian.AppendUint16(out, uint16(place))
		}
		return out
	}
	out := make([]byte, 0, Size/8)
	for _, w := range s {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	return out
}

// Decode returns the set that Encode has made bytes of.
func Decode(b []byte) (s Set, _ error) {
	if len(b) == Size/8 {
		for i := range s {
			s[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		return s, nil
	}
	if len(b) > Size/8 || len(b)%2 != 0 {
		return s, fmt.Errorf("a bitmap of %d bytes", len(b))
	}
	for ; len(b) > 0; b = b[2:] {
		place := binary.LittleEndian.Uint16(b)
		if place >= Size {
			return s, fmt.Errorf("a bitmap with the place %d", place)
		}
		s.Add(int(place))
	}
	return s, nil
}
