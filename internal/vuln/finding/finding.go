// Package finding defines a finding: all advisories about one vulnerability that
// affect a package of an image. It merges advisories into findings, and rates and
// orders findings.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A Finding is a vulnerability of a package in an image. All advisories that describe the vulnerability and affect the
// package are its evidence.
type Finding struct {
	ID                string   // see NameOf
	Aliases           []string // all other names of the vulnerability
	Package           registry.ImagePackage
	Fixed             []string // versions of the package without the vulnerability
	FixedVersion      string   // the smallest of them that is above the current version; "" if there is none
	Advice            string   // smallest version without any open finding of the package; "" if unknown, see Advise
	Severity          Severity // see View and Rank
	SeveritySource    string   // source of the severity; "" if the severity is unknown, or before Describe
	Score             float64  // highest CVSS score of the advisories that count; 0 if none has one
	Ratings           []Rating // ratings that count, by precedence; set by Describe and AddRatings
	Summary           string
	FirstSeen         time.Time
	Advisories        []resource.UID
	Evidence          []Evidence // the same advisories, in the same order
	vuln.Exploitation            // data from the exploit lists that the caller may read

	State            State
	Exception        resource.UID // the exception that holds for the finding; "" if there is none
	ExceptionExpires time.Time    // when the exception expires, so that the finding opens again; zero means never
	OpenedBy         string       // source of the change that opened it: a feed and its revision, import, api, or image
	Closing                       // set if State is StateClosed

	DueTime time.Time // when an open finding of a tag must be fixed; zero if there is no limit, or if it was not computed
	Overdue bool      // whether DueTime has passed

	Claims [][]string // names by which exceptions select the finding; see the function Claims

	views  []View
	places []resource.UID // only views of these places count; nil means all
	scores []groupScore   // scores of the advisories
}

// An Evidence is an advisory that describes the vulnerability of a finding.
type Evidence struct {
	Advisory     resource.UID
	ID           string
	Fixes        bool   // whether the advisory fixes the vulnerability, and is not a description of it
	Summary      string // title of the advisory
	FixedVersion string // smallest fixed version above the current version of the package; "" if there is none
}

// A State says whether a finding needs attention. Its values are equal to the values in the API.
type State int

// The states.
const (
	StateUnspecified State = iota
	StateOpen
	StateExcepted
	StateClosed
)

// A Closing says when and why a finding was closed.
type Closing struct {
	CloseTime   time.Time
	CloseReason CloseReason
	ClosedBy    string // source of the advisory's change, or "image" and the digest of the new image
}

// A CloseReason says why a finding was closed. Its values are equal to the values in the API.
type CloseReason int

// The reasons.
const (
	CloseUnspecified     CloseReason = iota
	CloseAdvisoryChanged             // the advisory no longer affects the package, or was withdrawn or deleted
	CloseImageChanged                // the tag was moved to an image without the finding
)

// New returns the finding about one vulnerability of package p. mentions are its mentions, as in a group that
// ByVulnerability returns. Its severity is the worst of all groups; RateIn restricts it to the places of images.
func New(p registry.ImagePackage, mentions []Mention, advisories map[int64]vuln.Advisory) Finding {
	v := Finding{Package: p, Aliases: NamesOf(mentions)}
	v.ID = NameOf(v.Aliases)
	v.Aliases = slices.DeleteFunc(v.Aliases, func(s string) bool { return s == v.ID })
	v.setViews(mentions, advisories)
	first := int64(0)
	for _, m := range mentions {
		for _, fixed := range m.Fixed {
			if !slices.Contains(v.Fixed, fixed) {
				v.Fixed = append(v.Fixed, fixed)
			}
		}
		if first == 0 || m.Since < first {
			first, v.OpenedBy = m.Since, m.OpenedBy
		}
		a := advisories[m.Advisory]
		if !slices.Contains(v.Advisories, a.UID) {
			v.Advisories = append(v.Advisories, a.UID)
			v.Evidence = append(v.Evidence, Evidence{Advisory: a.UID, ID: a.ID, Fixes: len(a.Fixes) > 0,
				FixedVersion: SmallestFix(p.Package, m.Fixed)})
		}
	}
	slices.SortFunc(v.Evidence, func(a, b Evidence) int { return cmp.Compare(a.Advisory, b.Advisory) })
	slices.Sort(v.Advisories)
	v.FixedVersion = SmallestFix(p.Package, v.Fixed)
	v.FirstSeen = store.FromMS(first)
	return v
}

// Describe sets the titles of a finding and of its evidence, and the ratings in the evidence. The title of a
// vulnerability is the title in its own record or, if there is none, the line about it in an advisory that fixes it.
// The title of such an advisory itself is not used, because the advisory may fix other vulnerabilities, too.
func (v *Finding) Describe(advisories map[resource.UID]vuln.Advisory) {
	recordTitle, advisoryLine := "", ""
	for i, e := range v.Evidence {
		a := advisories[e.Advisory]
		v.Evidence[i].Summary = a.Summary
		ecosystem, name := nameIn(v.Package.Package, a)
		if v.counts(a.UID.Parent()) {
			v.Ratings = append(v.Ratings, RatingsOf(a, ecosystem, name)...)
		}
		if !e.Fixes && (recordTitle == "" || a.ID == v.ID) {
			recordTitle = cmp.Or(a.Summary, recordTitle)
		}
		if e.Fixes {
			advisoryLine = cmp.Or(advisoryLine, a.TitleOf(v.ID))
		}
	}
	v.Summary = cmp.Or(recordTitle, advisoryLine)
	v.AddRatings(nil)
}

// Key returns a text by which findings are sorted. A more urgent finding has a greater key. The key contains whether
// the finding is known to be exploited, whether it is fixable, the probability of exploitation, and the score.
func (v Finding) Key() string {
	known, fixable := 0, 0
	if v.Known {
		known = 1
	}
	if len(v.Fixed) > 0 {
		fixable = 1
	}
	return fmt.Sprintf("%d%d%010d%04.0f\x00%s\x00%s\x00%s\x00%s", known, fixable, v.likelihood(), v.order()*10, v.ID,
		v.Package.Name, v.Package.Version, v.Package.PURL)
}

// likelihood returns a number by which findings are sorted by their probability of exploitation. It is 0
// for a finding without a probability.
func (v Finding) likelihood() int64 {
	if !v.Scored {
		return 0
	}
	return 1 + int64(v.Probability)
}

// CVEs returns the CVEs among the ID and the aliases of a finding.
func (v Finding) CVEs() []vuln.CVE { return CVEs(append([]string{v.ID}, v.Aliases...)) }

// CVEs returns the CVEs among names.
func CVEs(names []string) (cves []vuln.CVE) {
	for _, name := range names {
		if c, ok := vuln.ParseCVE(name); ok {
			cves = append(cves, c)
		}
	}
	return cves
}
