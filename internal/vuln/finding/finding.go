// Package finding defines findings: the advisories with a common alias that affect
// a package of an image. It merges them into one, and rates and orders findings.
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

// A State says whether something has to be done about a finding. Its values are those of
// the API.
type State int

// The states.
const (
	StateUnspecified State = iota
	StateOpen
	StateExcepted
	StateClosed
)

// CVEs returns the CVEs among the names of a finding.
func (v Finding) CVEs() []vuln.CVE { return CVEs(append([]string{v.ID}, v.Aliases...)) }

func CVEs(names []string) (all []vuln.CVE) {
	for _, name := range names {
		if c, ok := vuln.ParseCVE(name); ok {
			all = append(all, c)
		}
	}
	return all
}

// likelihood orders findings by their probability of being exploited. One without is below
// all others.
func (v Finding) likelihood() int64 {
	if !v.Scored {
		return 0
	}
	return 1 + int64(v.Probability)
}

// A Finding is something that is wrong with a package of an image, whichever advisories
// say so: those that share an ID or an alias are one.
type Finding struct {
	ID                string   // of the advisory
	Aliases           []string // all other names of it
	Package           registry.ImagePackage
	Fixed             []string // versions in which it is fixed
	Severity          Severity
	Score             float64 // of CVSS; 0 if there is none
	Summary           string
	FirstSeen         time.Time
	Advisories        []resource.UID
	vuln.Exploitation // see addExploits

	State            State
	Exception        resource.UID // that holds for it
	ExceptionExpires time.Time    // when the finding is open again; zero is never
	OpenedBy         string       // what brought the advisory: a feed and its revision, import, api, or image
	Closing                       // how it ended, if it is over

	Claims [][]string // see the function claims
}

// Key orders findings by their urgency.
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

// New makes one finding of the advisories that say the same.
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

// A Closing is how a finding has ended.
type Closing struct {
	CloseTime   time.Time
	CloseReason CloseReason
	ClosedBy    string // what changed the advisory, or "image" and the digest that replaced it
}

// A CloseReason says why a finding is over. Its values are those of the API.
type CloseReason int

// The reasons.
const (
	CloseUnspecified     CloseReason = iota
	CloseAdvisoryChanged             // it no longer affects the package, is withdrawn or gone
	CloseImageChanged                // the tag stands for another image, which does not have it
)
