package retentiondb

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

// FuzzFingerprint checks that a parsed fingerprint has at most as many images as a plan, and that its text can
// be parsed again.
func FuzzFingerprint(f *testing.F) {
	f.Add("AQ")
	f.Add(fingerprintOf([]GoingImage{{Digest: "sha256:a", Tags: []string{"v1"}}, {Digest: "sha256:b"}}).String())
	f.Add("AQAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseFingerprint(text)
		if err != nil {
			return
		}
		if len(p) > maxGoing {
			t.Fatalf("%d images", len(p))
		}
		again, err := parseFingerprint(p.String())
		if err != nil || len(again) != len(p) {
			t.Fatalf("%q cannot be parsed again: %v", p.String(), err)
		}
	})
}

// FuzzRetentionTags checks that no tag makes the rules panic, and that a tag that a rule matches literally is kept.
func FuzzRetentionTags(f *testing.F) {
	attached := "sha256-" + strings.Repeat("0", 64) + ".sig"
	for _, tag := range []string{"v1.2.3", "1.10", "2.0.0-rc.1", "latest", attached, "999999999.0"} {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		if !registry.ValidTag(tag) {
			return
		}
		n := &node{digest: "sha256:x", tags: []string{tag}, time: 1}
		j := &judge{
			rules:  registry.Retention{KeepMatching: []string{tag}, KeepMinors: 1},
			frozen: func(string) bool { return false },
			nodes:  map[string]*node{n.digest: n},
		}
		j.link()
		j.judgeByManifests()
		if v := j.decide(nil); len(v.gone) != 0 {
			t.Fatalf("%q is deleted", tag)
		}
		if v, _, ok := registry.ParseVersionTag(tag); ok && (v.Major < 0 || v.Minor < 0) {
			t.Fatalf("%q is version %v", tag, v)
		}
	})
}
