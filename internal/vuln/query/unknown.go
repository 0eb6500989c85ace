package query

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const maxSimilar = 5 // maximum number of similar names in an error

// unknown returns the error for a name that no advisory in reach has. An empty list would wrongly say that nothing is
// affected.
func (s *Service) unknown(ctx context.Context, reach []resource.UID, name string) error {
	if cve, ok := vuln.ParseCVE(name); ok {
		known, err := s.advisories.Exploits(ctx, reach, []vuln.CVE{cve})
		if err != nil {
			return err
		}
		if e, ok := known[cve]; ok {
			list := "has a probability of exploitation (EPSS)"
			if e.Known {
				list = "is in a list of exploited vulnerabilities"
			}
			return fault.Unmet("NO_ADVISORY", "%s %s, but no advisory that you can list says which packages it affects, so "+
				"nothing was compared", cve, list)
		}
	}
	missing := fault.Missing("advisory", name)
	if len(reach) == 0 {
		missing.Message += "; you cannot list the advisories of any group"
		return missing
	}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return err
	}
	defer done()
	similar, err := s.advisories.SimilarNames(ctx, store.Reach{Under: reach}, name, maxSimilar)
	if err != nil || len(similar) == 0 {
		return withCause(missing, err)
	}
	missing.Message += "; similar: " + strings.Join(similar, ", ")
	missing.Metadata = map[string]string{"similar": strings.Join(similar, ",")}
	return missing
}

// withCause returns err, or the fault if err is nil.
func withCause(f *fault.Error, err error) error {
	if err != nil {
		return err
	}
	return f
}

// checkAffected returns fault.FailedPrecondition if the advisories with these keys cannot affect anything: all of them
// are withdrawn, or none of them names a package.
func (s *Service) checkAffected(ctx context.Context, keys []int64, name string) error {
	found, err := s.advisories.AdvisoriesByKey(ctx, keys)
	if err != nil {
		return err
	}
	valid := slices.DeleteFunc(slices.Clone(found), func(a vuln.Advisory) bool { return !a.DeleteTime.IsZero() })
	switch {
	case len(found) > 0 && len(valid) == 0:
		return fault.Unmet("ADVISORY_WITHDRAWN", "the advisory %s is withdrawn, so nothing is compared with it", name)
	case !slices.ContainsFunc(valid, func(a vuln.Advisory) bool { return len(a.Affected) > 0 }):
		return fault.Unmet("NO_AFFECTED_PACKAGES",
			"no advisory says which packages %s affects, so nothing was compared", name)
	}
	return nil
}
