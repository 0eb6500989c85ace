package fetch

import (
	"net/http"
	"strings"
	"testing"
)

// TestAttackManyChecksums checks that a server cannot make the fetcher compute the same checksum thousands of times,
// because every checksum costs a pass over the response.
func TestAttackManyChecksums(t *testing.T) {
	const header = 60 << 10 // about the maximum size of headers that package outbound reads
	tests := map[string]http.Header{
		"one header": {"Digest": {strings.Repeat("md5=,", header/5)}},
		"many lines": {"Digest": strings.Split(strings.Repeat("sha-256=AAAA\n", header/13), "\n")},
		"every header": {"Digest": {"md5=,MD5=,sha-256=,sha-512="}, "Repr-Digest": {"md5=::,sha-256=::"},
			"Content-Digest": {"sha-512=::"}, "X-Goog-Hash": {"md5="}, "Content-Md5": {""}},
		"unknown kinds": {"Digest": {strings.Repeat("crc32c=AAAA,x=,", header/15)}},
	}
	for name, h := range tests {
		if got := len(checksums(h)); got > 3 {
			t.Errorf("%s: %d checksums are computed of one answer, want at most one of each of the three kinds", name,
				got)
		}
	}
}
