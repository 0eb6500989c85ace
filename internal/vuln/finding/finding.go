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
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Finding is a vulnerability of a package in an image. Advisories that share an
// ID or an alias are one finding.
type Finding struct {
	ID                string   // first ID of the advisories in alphabetical order
	Aliases           []string // all other names of the advisories
	Package           registry.ImagePackage
	Fixed             []string // versions of the package without the vulnerability
	Severity          Severity
	Score             float64 // CVSS score; 0 if no advisory has one
	Summary           string
	FirstSeen         time.Time
	Advisories        []resource.UID
	vuln.Exploitation // data from the exploit lists that the caller may read

	State            State
	Exception        resource.UID // the exception that holds for the finding; "" if there is none
	ExceptionExpires time.Time    // when the exception expires, so that the finding opens again; zero means never
	OpenedBy         string       // source of the change that opened it: a feed and its revision, import, api, or image
	Closing                       // set if State is StateClosed

	Claims [][]string // names by which exceptions select the finding; see the function Claims
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

// New returns the finding that hits describe. All hits are about package p, and their advisories share a name, as in a
// group that GroupByAlias returns.
func New(p registry.ImagePackage, hits []findingdb.Hit, advisories map[int64]vuln.Advisory) Finding {
	v := Finding{Package: p, Claims: Claims(hits, advisories)}
	first := int64(0)
	for _, h := range hits {
		a := advisories[h.Advisory]
		v.Advisories = append(v.Advisories, a.UID)
		v.Aliases = append(v.Aliases, AdvisoryNames(a)...)
		if v.ID == "" || a.ID < v.ID {
			v.ID = a.ID
		}
		v.Summary = cmp.Or(v.Summary, a.Summary)
		v.Score = max(v.Score, float64(h.Score)/10)
		for _, fixed := range h.Fixed {
			if !slices.Contains(v.Fixed, fixed) {
				v.Fixed = append(v.Fixed, fixed)
			}
		}
		if first == 0 || h.Since < first {
			first, v.OpenedBy = h.Since, h.OpenedBy
		}
	}
	slices.Sort(v.Aliases)
	v.Aliases = slices.DeleteFunc(slices.Compact(v.Aliases), func(s string) bool { return s == v.ID })
	slices.Sort(v.Advisories)
	v.Advisories = slices.Compact(v.Advisories)
	v.Severity, v.FirstSeen = SeverityOf(v.Score), store.FromMS(first)
	return v
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
	return fmt.Sprintf("%d%d%010d%04.0f\x00%s\x00%s\x00%s\x00%s", known, fixable, v.likelihood(), v.Score*10, v.ID,
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
