package vuln

import "strings"

// The severities of vendors, from 1 to 4. They are equal to the severities of findings.
const (
	ratingLow int64 = iota + 1
	ratingMedium
	ratingHigh
	ratingCritical
)

// vendorWords are the words by which vendors rate vulnerabilities, in lower case. Debian calls them urgencies, and
// Ubuntu priorities. Debian marks a word with asterisks if it comes from another source.
var vendorWords = map[string]int64{
	"critical":  ratingCritical,
	"important": ratingHigh, "high": ratingHigh, "severe": ratingHigh,
	"moderate": ratingMedium, "medium": ratingMedium,
	"low": ratingLow, "minor": ratingLow, "negligible": ratingLow, "unimportant": ratingLow,
}

// RatingOf returns the severity that a word of a vendor means, from 1 (low) to 4 (critical), or 0 if it means none.
func RatingOf(word string) int64 {
	return vendorWords[strings.ToLower(strings.TrimRight(strings.TrimSpace(word), "*"))]
}

// VendorWord returns the word by which the vendor rates the severity for a package of an ecosystem, or "". A word for
// the package takes precedence. The titles of advisories of AlmaLinux, Rocky and Oracle, and of Red Hat's own lists of
// updates, begin with the word. Titles of Red Hat in OSV begin with "Red Hat Security Advisory:"; these records have
// scores instead.
func (a Advisory) VendorWord(same func(ecosystem string) bool, name string) string {
	for _, v := range a.Affected {
		if v.Name == name && v.VendorSeverity != "" && same(v.Ecosystem) {
			return v.VendorSeverity
		}
	}
	if a.VendorSeverity != "" {
		return a.VendorSeverity
	}
	word, _, ok := strings.Cut(a.Summary, ":")
	if ok && isDistribution(a.ID) && RatingOf(word) > 0 {
		return word
	}
	return ""
}
