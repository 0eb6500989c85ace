package backup

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"strings"
)

var digestForm = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// blobPath returns the path of a blob in a back-up.
func blobPath(digest string) string {
	algorithm, sum, _ := strings.Cut(digest, ":")
	return "/blobs/" + algorithm + "/" + sum[:min(2, len(sum))] + "/" + sum
}

// A badBlobError means that a blob is missing, or that its content does not match its digest.
type badBlobError struct{ digest, why string }

// IsBadBlob reports whether an error means that a blob is missing, or that its content does not match its digest. Other
// errors mean that the storage could not be read.
func IsBadBlob(err error) bool {
	_, ok := errors.AsType[*badBlobError](err)
	return ok
}

func (e *badBlobError) Error() string { return fmt.Sprintf("blob %s: %s", e.digest, e.why) }

// A verifier reads a blob. At the end it returns a *badBlobError instead of io.EOF if the content does not match the
// digest or the size.
type verifier struct {
	in     io.Reader
	sum    hash.Hash
	digest string
	left   int64
}

func newVerifier(in io.Reader, digest string, size int64) (*verifier, error) {
	v := &verifier{in: in, digest: digest, left: size}
	switch algorithm, _, _ := strings.Cut(digest, ":"); algorithm {
	case "sha256":
		v.sum = sha256.New()
	case "sha512":
		v.sum = sha512.New()
	default:
		return nil, &badBlobError{digest, "the algorithm is unknown"}
	}
	return v, nil
}

// Read implements io.Reader.
func (v *verifier) Read(b []byte) (int, error) {
	n, err := v.in.Read(b)
	v.sum.Write(b[:n])
	v.left -= int64(n)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if _, want, _ := strings.Cut(v.digest, ":"); v.left != 0 || hex.EncodeToString(v.sum.Sum(nil)) != want {
		return n, &badBlobError{v.digest, "its content does not match its digest"}
	}
	return n, err
}
