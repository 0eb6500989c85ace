package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// A RefusedPull is an image that a rule would refuse, and an identity that pulled it.
type RefusedPull struct {
	pulldb.PullSum
	Path   string // path of the repo
	Reason string
}

// A RuleCheck is a page of the pulls that a rule would refuse, and their totals.
type RuleCheck struct {
	page.Page[RefusedPull]
	Pulls, Images, Identities int64

	Rule        vuln.PullRule
	Ineffective string // why the rule cannot refuse anything at present; "" if it can
	Unrated     int64  // number of images with a finding that passes only because its severity is unknown
}

const (
	checkPeriod = 30 * 24 * time.Hour
	checkBatch  = 200    // number of images that are judged in one batch
	maxSums     = 50_000 // maximum number of pairs of an image and an identity that pulled it
	maxVerified = 5_000  // maximum number of images whose signatures are verified
)

// refusedList orders refused pulls by the time of the last pull.
var refusedList = page.List{
	Kind: "refused_pulls", Fields: []string{"time"}, Default: page.Order{Field: "time", Desc: true},
}

// A checked contains the rule to check. It is stored in page tokens.
type checked struct {
	Rule resource.UID `json:"rule,omitempty"`
}

// CheckRule returns a page of the pulls of the last 30 days that a rule would refuse
// now. The caller needs repo.check_policies on the rule. Because the result contains
// rules, repos, identities, reports and advisories, the caller also needs the
// capabilities to list them. CheckRule returns fault.FailedPrecondition if there are
// too many pulls.
func (s *Service) CheckRule(ctx context.Context, uid resource.UID, p page.Params) (zero RuleCheck, _ error) {
	selected, req, err := page.Resume(s.pages, refusedList, checked{uid}, p)
	if err != nil {
		return zero, err
	}
	if err := s.requireEach(ctx, selected.Rule, resource.RepoCheckPolicies, resource.PolicyList, resource.RepoList,
		resource.IdentityList, resource.ReportsList, resource.AdvisoriesList); err != nil {
		return zero, err
	}
	rule, err := s.packages.PullRule(ctx, selected.Rule)
	if err != nil {
		return zero, err
	}
	if rule.Unsigned {
		end, err := s.turns.Wait(ctx, []resource.UID{rule.Target})
		if err != nil {
			return zero, err
		}
		defer end()
	}
	asOf := s.packages.Time()
	sums, err := s.pulls.PullSums(ctx, rule.Target, asOf.Add(-checkPeriod), maxSums+1)
	if err != nil {
		return zero, err
	}
	if len(sums) > maxSums {
		return zero, fault.Unmet("TOO_MANY_PULLS",
			"there are more than %d pairs of an image and an identity; check a rule with a smaller target", maxSums)
	}
	refused, unrated, err := s.refusedOf(ctx, rule, sums, asOf)
	if err != nil {
		return zero, err
	}
	out := totals(refused)
	out.Rule, out.Unrated = rule, unrated
	if out.Ineffective, err = s.Ineffective(ctx, rule); err != nil {
		return zero, err
	}
	got := page.Cut(refused, req, RefusedPull.key)
	if err := s.addPaths(ctx, got.Items); err != nil {
		return zero, err
	}
	out.Page = page.Finish(s.pages, req, got)
	return out, nil
}

// key returns a text by which refused pulls are sorted by time.
func (p RefusedPull) key() string {
	return fmt.Sprintf("%020d\x00%s\x00%s\x00%s", store.MS(p.Last), p.Repo, p.Digest, p.Identity)
}

// totals returns a RuleCheck with the numbers of pulls, images and identities.
func totals(pulls []RefusedPull) (out RuleCheck) {
	images, identities := map[finding.ImageKey]bool{}, map[resource.UID]bool{}
	for _, p := range pulls {
		out.Pulls += p.Count
		images[finding.ImageKey{Repo: p.Repo, Digest: p.Digest}], identities[p.Identity] = true, true
	}
	out.Images, out.Identities = int64(len(images)), int64(len(identities))
	return out
}

// refusedOf returns the pulls that a rule would refuse at a time, and the number of images with a finding that passes
// the rule only because its severity is unknown.
func (s *Service) refusedOf(
	ctx context.Context, rule vuln.PullRule, sums []pulldb.PullSum, asOf time.Time,
) (refused []RefusedPull, unrated int64, _ error) {
	var keys []finding.ImageKey
	seen := map[finding.ImageKey]bool{}
	for _, p := range sums {
		if key := (finding.ImageKey{Repo: p.Repo, Digest: p.Digest}); !seen[key] && !rule.Exempts(p.Identity) {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	keys, err := s.judgedBy(ctx, rule, keys)
	if err != nil {
		return nil, 0, err
	}
	reasons := map[finding.ImageKey]string{}
	j := judge{s.packages, s.images, s.advisories, s.registry}
	for batch := range slices.Chunk(keys, checkBatch) {
		verdicts, err := j.judgements(ctx, batch, []vuln.PullRule{rule}, asOf)
		if err != nil {
			return nil, 0, err
		}
		for key, v := range verdicts {
			if reasons[key] = v.reasons[rule.UID]; v.unrated {
				unrated++
			}
		}
	}
	for _, p := range sums {
		if why := reasons[finding.ImageKey{Repo: p.Repo, Digest: p.Digest}]; why != "" && !rule.Exempts(p.Identity) {
			refused = append(refused, RefusedPull{PullSum: p, Reason: why})
		}
	}
	return refused, unrated, nil
}

// judgedBy returns the keys of those images to which a rule applies.
func (s *Service) judgedBy(
	ctx context.Context, rule vuln.PullRule, keys []finding.ImageKey,
) ([]finding.ImageKey, error) {
	switch {
	case rule.Unsigned && len(keys) > maxVerified:
		return nil, fault.Unmet("TOO_MANY_IMAGES",
			"there are more than %d images; check a rule with a smaller target", maxVerified)
	case rule.Unsigned, rule.RefuseUnknown: // otherwise an index would count as unsigned and as unknown
		return s.onlyRunning(ctx, keys)
	}
	return keys, nil
}

// onlyRunning returns the keys of those manifests that a client may run. Deleted manifests are left out.
func (s *Service) onlyRunning(ctx context.Context, keys []finding.ImageKey) (running []finding.ImageKey, _ error) {
	for _, key := range keys {
		m, err := s.repoStore.Manifest(ctx, key.Repo, key.Digest)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		runs := m.Runs()
		if !runs {
			runs, err = s.registry.DescribesImage(ctx, key.Repo, m, true)
		}
		if err != nil {
			return nil, err
		}
		if runs {
			running = append(running, key)
		}
	}
	return running, nil
}

// addPaths sets the paths of the repos.
func (s *Service) addPaths(ctx context.Context, pulls []RefusedPull) error {
	var repos []resource.UID
	for _, p := range pulls {
		repos = append(repos, p.Repo)
	}
	paths, err := s.registry.Paths(ctx, repos)
	for i := range pulls {
		pulls[i].Path = paths[pulls[i].Repo]
	}
	return err
}
