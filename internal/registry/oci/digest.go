package oci

import (
	_ "crypto/sha256" // registers the algorithm, which go-digest finds through crypto.Hash
	_ "crypto/sha512"
	"net/http"

	"github.com/opencontainers/go-digest"
)

// ParseDigest parses a digest. It returns a Problem unless the algorithm is sha256 or sha512.
func ParseDigest(s string) (digest.Digest, error) {
	d := digest.Digest(s)
	if err := d.Validate(); err != nil {
		return "", NewProblem(http.StatusBadRequest, DigestInvalid, "%.200q: %v", s, err)
	}
	if !Supported(d.Algorithm()) {
		return "", NewProblem(http.StatusBadRequest, DigestInvalid, "algorithm %q is not supported", d.Algorithm())
	}
	return d, nil
}

// Supported reports whether an algorithm may be used in digests.
func Supported(a digest.Algorithm) bool { return a == digest.SHA256 || a == digest.SHA512 }
