package token

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A capset is a set of capabilities in the encoding of tokens. The encoding is
// base64url of the length in bits (8 bytes), followed by the bits in words of 8
// bytes. All are big-endian.
type capset resource.Capabilities

// minBits is the smallest length, in bits, that is written. Readers accept any length. All writers use the same
// minimum, so that a set always has the same text.
const minBits = 50

// maxBits is the greatest length, in bits, that is read. It leaves room for the capabilities of newer versions.
const maxBits = 4096

var errCapset = errors.New("not a set of capabilities")

// MarshalJSON writes the compact form.
func (s capset) MarshalJSON() ([]byte, error) {
	length := max(minBits, s.length())
	b := binary.BigEndian.AppendUint64(nil, uint64(length))
	for _, w := range s[:(length+63)/64] {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return json.Marshal(base64.URLEncoding.EncodeToString(b))
}

// UnmarshalJSON reads the compact form or a list of capability numbers. It
// ignores capabilities that this version does not know, because this version never
// requires them.
func (s *capset) UnmarshalJSON(text []byte) error {
	var numbers []int32
	if err := json.Unmarshal(text, &numbers); err == nil && numbers != nil {
		*s = capsetOf(numbers)
		return nil
	}
	var encoded string
	if err := json.Unmarshal(text, &encoded); err != nil {
		return errCapset
	}
	b, err := base64.URLEncoding.DecodeString(encoded)
	if err != nil || len(b) < 8 || len(b)%8 != 0 {
		return errCapset
	}
	length := binary.BigEndian.Uint64(b)
	if length > maxBits || uint64(len(b)) != 8+8*((length+63)/64) {
		return fmt.Errorf("%w: the length is wrong", errCapset)
	}
	*s = capset{}
	for i := range min(len(s), len(b)/8-1) {
		s[i] = binary.BigEndian.Uint64(b[8+8*i:])
	}
	if uint64(s.length()) > length {
		return fmt.Errorf("%w: a bit is beyond its length", errCapset)
	}
	return nil
}

// length returns the number of bits up to the last one that is set.
func (s *capset) length() (n int) {
	for i, w := range s {
		if w != 0 {
			n = 64*i + bits.Len64(w)
		}
	}
	return n
}

func capsetOf(numbers []int32) capset {
	var set resource.Capabilities
	for _, n := range numbers {
		if c, ok := resource.CapabilityNumbered(n); ok {
			set.Add(c)
		}
	}
	return capset(set)
}
