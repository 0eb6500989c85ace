package protocol

import (
	_ "crypto/sha256" // go-digest finds the algorithms through crypto.Hash
	_ "crypto/sha512"
	"encoding"
	"fmt"
	"hash"
	"net/http"

	"github.com/opencontainers/go-digest"
)

// parseDigest parses a digest. Its algorithm must be sha256 or sha512.
func parseDigest(s string) (digest.Digest, error) {
	d := digest.Digest(s)
	if err := d.Validate(); err != nil {
		return "", problem(http.StatusBadRequest, digestInvalid, "%.200q: %v", s, err)
	}
	if !supported(d.Algorithm()) {
		return "", problem(http.StatusBadRequest, digestInvalid, "algorithm %q is not supported", d.Algorithm())
	}
	return d, nil
}

func supported(a digest.Algorithm) bool { return a == digest.SHA256 || a == digest.SHA512 }

// saveHash returns the state of a hash, which is 100 to 200 bytes long. All hashes of the
// standard library have one.
func saveHash(h hash.Hash) ([]byte, error) { return h.(encoding.BinaryMarshaler).MarshalBinary() }

// restoreHash returns a hash with a state from saveHash, or a new one if the state is empty.
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
