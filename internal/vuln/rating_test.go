package vuln_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

func TestVendorWord(t *testing.T) {
	t.Parallel()
	affected := []vuln.Affected{{Ecosystem: "Debian:12", Name: "a", VendorSeverity: "low**"},
		{Ecosystem: "Debian:12", Name: "b"}}
	for name, tt := range map[string]struct {
		a    vuln.Advisory
		name string
		want int64
	}{
		"a title":                      {vuln.Advisory{ID: "ALSA-1", Summary: "Important: kernel"}, "a", 3},
		"a title that rates nothing":   {vuln.Advisory{ID: "ALSA-1", Summary: "None: kernel"}, "a", 0},
		"a title of another source":    {vuln.Advisory{ID: "GO-1", Summary: "Critical: kernel"}, "a", 0},
		"a word of the record":         {vuln.Advisory{ID: "GHSA-1", VendorSeverity: "MODERATE"}, "a", 2},
		"a word for the package":       {vuln.Advisory{ID: "X-1", VendorSeverity: "high", Affected: affected}, "a", 1},
		"a word for another package":   {vuln.Advisory{ID: "X-1", VendorSeverity: "high", Affected: affected}, "b", 3},
		"an unknown word":              {vuln.Advisory{ID: "X-1", VendorSeverity: "not yet assigned"}, "a", 0},
		"the highest word of a vendor": {vuln.Advisory{ID: "RHSA-1", Summary: "Critical: x"}, "a", 4},
		"a title of Red Hat in OSV":    {vuln.Advisory{ID: "RHSA-1", Summary: "Red Hat Security Advisory: x"}, "a", 0},
		"a word that Ubuntu uses":      {vuln.Advisory{ID: "USN-1", VendorSeverity: "negligible"}, "a", 1},
		"a word precedes a title":      {vuln.Advisory{ID: "RHSA-1", Summary: "Low: x", VendorSeverity: "high"}, "a", 3},
	} {
		word := tt.a.VendorWord(func(ecosystem string) bool { return ecosystem == "Debian:12" }, tt.name)
		if got := vuln.RatingOf(word); got != tt.want {
			t.Errorf("%s: %q means %d, want %d", name, word, got, tt.want)
		}
	}
}
