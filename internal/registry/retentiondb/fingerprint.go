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

// A fingerprint says which images a plan deletes, and with which tags and other manifests. It has a part for each image,
// so that it can be told what has changed: eight bytes of the hash of its digest, and four of the hash of all that goes.
//
// It is no secret, and need not be: what goes is decided by the rules, and it only makes that less.
type fingerprint map[[8]byte][4]byte

// fingerprintFormat is the first byte of a fingerprint.
const fingerprintFormat = 1

// fingerprintPart is how many bytes an image has in a fingerprint.
const fingerprintPart = 12

func short(digest string) [8]byte {
	sum := sha256.Sum256([]byte(digest))
	return [8]byte(sum[:8])
}

// content returns the hash of all that goes with an image.
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
	for digest, all := range f {
		parts = append(parts, string(digest[:])+string(all[:]))
	}
	slices.Sort(parts)
	return base64.RawURLEncoding.EncodeToString([]byte(string(rune(fingerprintFormat)) + strings.Join(parts, "")))
}

// parseFingerprint reads a fingerprint. It returns fault.InvalidArgument if a text is none.
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

// has reports whether the image of a node goes.
func (f fingerprint) has(n *node) bool {
	_, ok := f[short(n.digest)]
	return ok
}

// compare returns fault.FailedPrecondition if what goes now is not what the fingerprint says, and tells what has changed.
func (f fingerprint) compare(now fingerprint, j *judge) error {
	var changed []string
	found := 0
	for _, n := range j.nodes {
		all, ok := f[short(n.digest)]
		if !ok || !n.judged() {
			continue
		}
		found++
		switch going, goes := now[short(n.digest)]; {
		case !goes:
			changed = append(changed, n.digest+" stays now: "+keptBecause(n))
		case going != all:
			changed = append(changed, n.digest+" has other tags now, or something else goes with it")
		}
	}
	if gone := len(f) - found; gone > 0 {
		changed = append(changed, fmt.Sprintf("%d images of it are not there any more, or belong to another", gone))
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	const most = 5
	text := strings.Join(changed[:min(len(changed), most)], "; ")
	if len(changed) > most {
		text += fmt.Sprintf("; and %d others", len(changed)-most)
	}
	return fault.Unmet("PREVIEW_OUTDATED", "nothing was deleted, because this is different since the preview: %s", text)
}

// keptBecause says in words why an image stays.
func keptBecause(n *node) string {
	switch n.kept {
	case registry.KeptImmutable:
		return "a tag of it is immutable"
	case registry.KeptMatching:
		return "a tag of it matches a pattern"
	case registry.KeptNewest:
		return "it is one of the newest"
	case registry.KeptMinor:
		return "it is of one of the last minor versions"
	case registry.KeptYounger:
		return "it was pushed or tagged not long ago"
	case registry.KeptSigned:
		return "it is signed"
	case registry.KeptDeployed:
		return "it runs"
	case registry.KeptPulled:
		return "it was pulled not long ago"
	case registry.KeptNeeded:
		return "another image is built on it"
	case registry.KeptTooLarge:
		return "too much goes with it"
	}
	return "it belongs to another image that stays"
}
