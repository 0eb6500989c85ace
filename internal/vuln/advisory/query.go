package advisory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// A Package is a version of a package, given by a package URL, or by an ecosystem and a name.
type Package struct {
	PURL, Ecosystem, Name, Version string
}

// A Match is an advisory that affects a version of a package, and the versions that fix it.
type Match struct {
	vuln.Advisory
	Fixed []string
}

// MaxBatchQuery is the maximum number of packages in one call of BatchQuery.
const MaxBatchQuery = 1000

const maxPackageText = 2048 // maximum length of each text in a Package, in bytes

// resolve validates a package and sets its other fields from its package URL, if it has one.
func (p Package) resolve(field string) (Package, error) {
	var bad []fault.Violation
	for _, v := range [...][2]string{{"purl", p.PURL}, {"ecosystem", p.Ecosystem}, {"name", p.Name},
		{"version", p.Version}} {
		if len(v[1]) > maxPackageText {
			bad = append(bad, fault.Violation{Subject: field + "." + v[0],
				Description: "must have at most 2048 bytes"})
		}
	}
	if len(bad) > 0 {
		return p, fault.Fields(bad)
	}
	if p.PURL != "" {
		if p.Ecosystem != "" || p.Name != "" {
			return p, fault.Field(field, "must have a purl, or an ecosystem and a name, but not both")
		}
		ecosystem, name, v, err := version.ParsePURL(p.PURL)
		if err != nil {
			return p, fault.Field(field+".purl", "%s", reason(err))
		}
		if v != "" && p.Version != "" && v != p.Version {
			return p, fault.Field(field+".version", "differs from the version in the purl")
		}
		p.Ecosystem, p.Name, p.Version = ecosystem, name, cmp.Or(v, p.Version)
	}
	for _, v := range [...][2]string{{"ecosystem", p.Ecosystem}, {"name", p.Name}, {"version", p.Version}} {
		if v[1] == "" {
			bad = append(bad, fault.Violation{Subject: field + "." + v[0], Description: "is required"})
		}
	}
	if len(bad) > 0 {
		return p, fault.Fields(bad)
	}
	return p, nil
}

// Query returns the advisories that affect a version and on which the caller holds advisories.list, ordered by ID. It
// omits withdrawn advisories, and advisories whose latest approved event is a false positive.
func (s *Service) Query(ctx context.Context, uids resource.UIDFilter, p Package) ([]Match, error) {
	reach, err := s.reach(ctx, uids)
	if err != nil {
		return nil, err
	}
	return s.query(ctx, reach, uids, p, "package")
}

// BatchQuery is like Query for several packages.
func (s *Service) BatchQuery(ctx context.Context, uids resource.UIDFilter, packages []Package) ([][]Match, error) {
	reach, err := s.reach(ctx, uids)
	if err != nil {
		return nil, err
	}
	if len(packages) == 0 || len(packages) > MaxBatchQuery {
		return nil, fault.Field("packages", "must have 1 to %d entries", MaxBatchQuery)
	}
	out := make([][]Match, len(packages))
	for i, p := range packages {
		if out[i], err = s.query(ctx, reach, uids, p, fmt.Sprintf("packages[%d]", i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Service) query(
	ctx context.Context, reach store.Reach, uids resource.UIDFilter, p Package, field string,
) ([]Match, error) {
	p, err := p.resolve(field)
	if err != nil {
		return nil, err
	}
	q, err := version.NewQuery(p.Ecosystem, p.Version)
	if err != nil {
		return nil, fault.Field(field+".version", "%s", reason(err))
	}
	found, err := s.store.MatchingAdvisories(ctx, reach, uids, p.Name, func(affected []vuln.Affected) (bool, error) {
		for _, a := range affected {
			if a.Name != p.Name {
				continue
			}
			// A version is not affected by a range that it cannot be compared with.
			if in, err := q.In(a); err == nil && in {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	var matches []Match
	for _, a := range found {
		latest := a.Latest()
		if !a.DeleteTime.IsZero() || latest != nil && latest.Type == vuln.EventFalsePositive {
			continue
		}
		matches = append(matches, Match{a, version.Fixed(a, p.Ecosystem, p.Name)})
	}
	slices.SortFunc(matches, func(a, b Match) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.UID, b.UID))
	})
	return matches, nil
}
