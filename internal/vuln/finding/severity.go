package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Severity is a rating on the CVSS scale.
type Severity int

// The severities.
const (
	SeverityUnknown Severity = iota
	SeverityLow
	SeverityMedium
	SeverityHigh
	SeverityCritical
)

// SeverityOf returns the severity of a CVSS score.
func SeverityOf(score float64) Severity {
	switch {
	case score <= 0:
		return SeverityUnknown
	case score < 4:
		return SeverityLow
	case score < 7:
		return SeverityMedium
	case score < 9:
		return SeverityHigh
	}
	return SeverityCritical
}

// Score returns the CVSS score of an advisory for the package with that name, or 0. A
// score for the package takes precedence over a score for all packages, and a newer
// version of CVSS over an older one.
func Score(a vuln.Advisory, name string) float64 {
	for _, affected := range a.Affected {
		if affected.Name == name {
			if score := newest(affected.Severities); score > 0 {
				return score
			}
		}
	}
	return newest(a.Severities)
}

// newest returns the highest score in the newest version of CVSS, or 0.
func newest(severities []vuln.Severity) (score float64) {
	for _, t := range []vuln.SeverityType{vuln.CVSSv4, vuln.CVSSv3, vuln.CVSSv2} {
		for _, s := range severities {
			if s.Type == t {
				score = max(score, format.Score(s))
			}
		}
		if score > 0 {
			return score
		}
	}
	return 0
}

// A Rating is what a source says about the severity of a vulnerability.
type Rating struct {
	Source   string // author of the advisory
	Advisory string // ID of the advisory
	Severity Severity
	Score    float64      // CVSS score; 0 if the source gives a severity in words
	Vendor   bool         // whether the source is the vendor of the package's distribution
	Group    resource.UID // group of the advisory
}

// distributionTypes are the types of package URLs of distributions' packages.
var distributionTypes = []string{"apk", "deb", "rpm", "alpm", "generic"}

// ofDistribution reports whether packages of an ecosystem belong to a distribution, which rates vulnerabilities for its
// own packages.
func ofDistribution(ecosystem string) bool {
	return ecosystem != "" && slices.Contains(distributionTypes, version.PURLType(ecosystem))
}

// Ranks order ratings by precedence: first the words of a package's distribution, then CVSS scores, then the words of
// others. The last digit of a rank is a severity.
const (
	rankWord   = 10
	rankScore  = 20
	rankVendor = 30
)

// Rank returns the rank of a rating for a package of an ecosystem. It is 0 if the rating contains no severity. The
// greatest rank decides the severity of a finding.
func Rank(ecosystem string, r findingdb.Rating) int64 {
	switch {
	case r.Vendor > 0 && ofDistribution(ecosystem):
		return rankVendor + r.Vendor
	case r.Score > 0:
		return rankScore + int64(SeverityOf(float64(r.Score)/10))
	case r.Vendor > 0:
		return rankWord + r.Vendor
	}
	return 0
}

// SeverityOfRank returns the severity that a rank means.
func SeverityOfRank(rank int64) Severity { return Severity(rank % 10) }

// RatingsOf returns the ratings of an advisory for packages with a name in an ecosystem: its word and its score, if it
// has them.
func RatingsOf(a vuln.Advisory, ecosystem, name string) (ratings []Rating) {
	covers := func(other string) bool { return version.SameEcosystem(ecosystem, other) }
	if word := vuln.RatingOf(a.VendorWord(covers, name)); word > 0 {
		isVendor := ofDistribution(ecosystem) && slices.ContainsFunc(a.Affected, func(v vuln.Affected) bool {
			return v.Name == name && covers(v.Ecosystem)
		})
		ratings = append(ratings, Rating{Source: a.Author, Advisory: a.ID, Severity: Severity(word), Vendor: isVendor,
			Group: a.UID.Parent()})
	}
	if score := Score(a, name); score > 0 {
		ratings = append(ratings, Rating{Source: a.Author, Advisory: a.ID, Severity: SeverityOf(score), Score: score,
			Group: a.UID.Parent()})
	}
	return ratings
}

// rank returns the rank of a rating.
func (r Rating) rank() int64 {
	switch {
	case r.Vendor:
		return rankVendor + int64(r.Severity)
	case r.Score > 0:
		return rankScore + int64(r.Severity)
	}
	return rankWord + int64(r.Severity)
}

// AddRatings adds ratings of the same vulnerability to a finding, each once, and sorts all by precedence. They are the
// ratings of advisories that do not affect the package. AddRatings removes ratings that do not count, and sets the
// source of the severity.
func (v *Finding) AddRatings(others []Rating) {
	v.Ratings = slices.DeleteFunc(v.Ratings, func(r Rating) bool { return !v.counts(r.Group) })
	for _, r := range others {
		if !v.counts(r.Group) {
			continue
		}
		r.Vendor = false
		if !slices.ContainsFunc(v.Ratings, func(o Rating) bool {
			return o.Advisory == r.Advisory && o.Source == r.Source && o.Score == r.Score && o.Severity == r.Severity
		}) {
			v.Ratings = append(v.Ratings, r)
		}
	}
	slices.SortFunc(v.Ratings, func(a, b Rating) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(b.Score, a.Score), strings.Compare(a.Source, b.Source),
			strings.Compare(a.Advisory, b.Advisory))
	})
	for _, r := range v.Ratings {
		v.Score = max(v.Score, r.Score)
		if v.Severity == r.Severity && v.SeveritySource == "" {
			v.SeveritySource = r.Source
		}
	}
}

// order returns a number by which findings are sorted by severity, and within a severity by score.
func (v Finding) order() float64 {
	least := []float64{0, 0.1, 4, 7, 9}[v.Severity]
	most := []float64{0, 3.9, 6.9, 8.9, 10}[v.Severity]
	return min(max(v.Score, least), most)
}
