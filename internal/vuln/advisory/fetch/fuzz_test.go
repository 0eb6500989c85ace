package fetch

import (
	"net/http"
	"testing"
)

// FuzzPromises checks that every parsed checksum has the right length, or matches no response.
func FuzzPromises(f *testing.F) {
	f.Add("Repr-Digest", "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:, sha-512=:AAAA:")
	f.Add("X-Goog-Hash", "crc32c=AAAAAA==,md5=hJqf2Q1AkhMcqsKSFBlsoA==")
	f.Add("Content-Md5", "=")
	f.Fuzz(func(t *testing.T, name, value string) {
		for _, p := range checksums(http.Header{http.CanonicalHeaderKey(name): {value}}) {
			if p.want == "" && string(p.hash.Sum(nil)) == "" {
				t.Fatal("an empty checksum is met")
			}
		}
	})
}
