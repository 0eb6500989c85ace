// Package bitmap implements sets of numbers below 2,048, in the form in which a
// database column stores them.
package bitmap

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
)

// Size is how many different numbers a chunk can contain.
const Size = 2048

// A Set is a set of numbers from 0 to Size-1.
type Set [Size / 64]uint64

// At returns the chunk that a number of any size belongs to, and the number's place in the chunk.
func At(number int64) (chunk int64, place int) { return number / Size, int(number % Size) }

// Add adds a place to the set.
func (s *Set) Add(place int) { s[place/64] |= 1 << (place % 64) }

// Remove removes a place from the set.
func (s *Set) Remove(place int) { s[place/64] &^= 1 << (place % 64) }

// Has reports whether a place is in the set.
func (s *Set) Has(place int) bool { return s[place/64]&(1<<(place%64)) != 0 }

// Or adds the places in another set.
func (s *Set) Or(o *Set) {
	for i := range s {
		s[i] |= o[i]
	}
}

// And removes the places that are not in another set.
func (s *Set) And(o *Set) {
	for i := range s {
		s[i] &= o[i]
	}
}

// Minus removes the places that are in another set.
func (s *Set) Minus(o *Set) {
	for i := range s {
		s[i] &^= o[i]
	}
}

// Len returns the number of places in the set.
func (s *Set) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// All returns the places in the set, in order.
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

// Encode returns the set as bytes. A small set has two bytes for each place, and a
// larger one has all bits.
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

// Decode returns the set that Encode has encoded as b.
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
