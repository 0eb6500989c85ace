package retentiondb

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// A fingerprint identifies the images that a plan deletes, with their tags and the manifests that are deleted with
// them. It has a separate part for each image, so that compare can name the images that have changed: eight bytes of
// the hash of the digest, and four bytes of the hash of everything that is deleted with the image.
//
// It is not secret, because a caller that forges one cannot delete more than the rules allow.
type fingerprint map[[8]byte][4]byte

// fingerprintFormat is the first byte of a fingerprint.
const fingerprintFormat = 1

// fingerprintPart is the number of bytes that a fingerprint has for each image.
const fingerprintPart = 12

func short(digest string) [8]byte {
	sum := sha256.Sum256([]byte(digest))
	return [8]byte(sum[:8])
}

// content returns the hash of an image, its tags and the manifests that are deleted with it.
func (g GoingImage) content() [4]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", g.Digest, g.Tags, g.With))
	return [4]byte(sum[:4])
}

func fingerprintOf(going []GoingImage) fingerprint {
	f := fingerprint{}
	for _, g := range going {
		f[short(g.Digest)] = g.content()
	}
	return f
}

// String returns the fingerprint as text.
func (f fingerprint) String() string {
	var parts []string
	for digest, content := range f {
		parts = append(parts, string(digest[:])+string(content[:]))
	}
	slices.Sort(parts)
	return base64.RawURLEncoding.EncodeToString([]byte(string(rune(fingerprintFormat)) + strings.Join(parts, "")))
}

// parseFingerprint parses the result of String. It returns fault.InvalidArgument for any other text.
func parseFingerprint(text string) (fingerprint, error) {
	const most = 1 + fingerprintPart*maxGoing
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > most || b[0] != fingerprintFormat || len(b)%fingerprintPart != 1 {
		return nil, fault.Field("fingerprint", "is not the fingerprint of a preview")
	}
	f := fingerprint{}
	for part := range slices.Chunk(b[1:], fingerprintPart) {
		f[[8]byte(part)] = [4]byte(part[8:])
	}
	return f, nil
}

// has reports whether the fingerprint contains the image n.
func (f fingerprint) has(n *node) bool {
	_, ok := f[short(n.digest)]
	return ok
}

// compare returns fault.FailedPrecondition, with the differences, if actual is not equal to f.
func (f fingerprint) compare(actual fingerprint, j *judge) error {
	var changed []string
	found := 0
	for _, n := range j.nodes {
		planned, ok := f[short(n.digest)]
		if !ok || !n.judged() {
			continue
		}
		found++
		switch content, deleted := actual[short(n.digest)]; {
		case !deleted:
			changed = append(changed, n.digest+" is kept now: "+keptBecause(n))
		case content != planned:
			changed = append(changed, n.digest+" has other tags or attached manifests now")
		}
	}
	if gone := len(f) - found; gone > 0 {
		changed = append(changed, fmt.Sprintf("%d images of the preview are gone or belong to another image now", gone))
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	const most = 5
	text := strings.Join(changed[:min(len(changed), most)], "; ")
	if len(changed) > most {
		text += fmt.Sprintf("; and %d more", len(changed)-most)
	}
	return fault.Unmet("PREVIEW_OUTDATED",
		"nothing was deleted, because the images have changed since the preview: %s", text)
}

// keptBecause returns a text with the reason for which an image is kept.
func keptBecause(n *node) string {
	switch n.kept {
	case registry.KeptImmutable:
		return "one of its tags is immutable"
	case registry.KeptMatching:
		return "one of its tags matches a pattern"
	case registry.KeptNewest:
		return "it is one of the newest"
	case registry.KeptMinor:
		return "it belongs to one of the last minor versions"
	case registry.KeptYounger:
		return "it was pushed or tagged recently"
	case registry.KeptSigned:
		return "it is signed"
	case registry.KeptDeployed:
		return "it runs"
	case registry.KeptPulled:
		return "it was pulled recently"
	case registry.KeptNeeded:
		return "another image is built on it"
	case registry.KeptTooLarge:
		return "too many manifests and tags would be deleted with it"
	}
	return "it belongs to another image that is kept"
}
