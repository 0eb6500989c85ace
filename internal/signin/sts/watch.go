package sts

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	watchEvery          = time.Hour
	maxConcurrentChecks = 8
	maxChecksPerDomain  = 256 // issuers of one domain in one round
	checkTimeout        = 15 * time.Second
	maxIssuers          = 1000 // in one answer
	maxCounted          = 1000 // identities counted per issuer
	maxLookedAt         = 20_000
	maxEndanger         = 50
	endangeredIn        = 30 * 24 * time.Hour // keys that expire within this time are reported
)

// Run writes denials and monitors issuers until ctx ends, and then writes what
// is left in the queue.
func (s *Service) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.writeRecent(ctx) })
	every := cmp.Or(s.cfg.WatchEvery, watchEvery)
	tick := time.NewTicker(max(every/12, time.Second)) // issuers that failed are checked again sooner
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C: // also the first time, so that a server that keeps restarting does not ask everybody
		}
		if err := s.checkIssuers(ctx, every); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "issuers cannot be watched", "err", err)
		}
	}
}

// checkIssuers checks the issuers that are due. Of several replicas, one
// checks each.
func (s *Service) checkIssuers(ctx context.Context, every time.Duration) error {
	all, err := s.dueIssuers(ctx, every)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(maxConcurrentChecks)
	for _, d := range all {
		group.Go(func() error { return s.checkIssuer(ctx, d) })
	}
	return errors.Join(group.Wait(), s.store.DropIssuers(ctx))
}

// A dueIssuer is to be checked unless another replica has done so after since.
type dueIssuer struct {
	name  string
	since time.Time
}

// dueIssuers returns the issuers that are due, alternating between domains, so
// that a domain with many that do not answer delays the others little. At most
// maxChecksPerDomain of a domain are returned; the rest stay due.
func (s *Service) dueIssuers(ctx context.Context, every time.Duration) ([]dueIssuer, error) {
	rounds := make([][]dueIssuer, 1, maxChecksPerDomain)
	count := map[issuers.QuotaKey]int{}
	for issuer := ""; ; {
		next, err := s.store.NextIssuer(ctx, issuer)
		if err != nil {
			return nil, err
		}
		if next == "" {
			return slices.Concat(rounds...), nil
		}
		issuer = next
		state, err := s.store.IssuerState(ctx, issuer)
		if err != nil {
			return nil, err
		}
		d := dueIssuer{issuer, s.now().Add(-every)}
		if state.Problem != "" {
			d.since = s.now().Add(-every / 12)
		}
		domain := personQuota(issuer)
		round := count[domain]
		if state.CheckTime.After(d.since) || round == maxChecksPerDomain {
			continue
		}
		if count[domain]++; round == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], d)
	}
}

func (s *Service) checkIssuer(ctx context.Context, d dueIssuer) error {
	if claimed, err := s.store.ClaimIssuer(ctx, d.name, d.since); err != nil || !claimed {
		return err
	}
	ctx, span := trace.Begin(ctx, "check an issuer", "")
	defer span.End(nil)
	keys, err := s.fetchKeys(ctx, d.name)
	if ctx.Err() != nil {
		return nil
	}
	state := resource.IssuerState{Issuer: d.name, CheckTime: s.now()}
	if away, ok := errors.AsType[*issuers.Unreachable](err); ok {
		state.Problem = away.Reason()
	} else {
		state.Problem = outbound.Reason(err)
	}
	for _, k := range keys {
		state.Keys = append(state.Keys, resource.IssuerKey(k))
	}
	if err := s.store.NoteIssuer(ctx, state); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "the state of an issuer was not kept", "issuer", d.name, "err", err)
	}
	return nil
}

// fetchKeys asks an issuer for its keys. Our own are here, and our address may be one that we cannot reach ourselves.
func (s *Service) fetchKeys(ctx context.Context, issuer string) ([]issuers.Key, error) {
	if issuer == s.issuer.Address() {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	// Which identities name it is not known here.
	quota := issuers.QuotaKey{Tenant: personQuota(issuer).Tenant, Reason: issuers.Named}
	return s.trust.FetchKeys(bounded, quota, issuer)
}

// A Dependence is an issuer and how many identities depend on it.
type Dependence struct {
	resource.IssuerState
	Identities int // maxCounted means at least that many
	Endangered []Endangered
}

// An Endangered identity no longer matches any token, or soon will not.
type Endangered struct {
	Identity resource.Identity
	Reason   string
}

// Issuers returns the issuers trusted by identities below a group, or anywhere
// if below is "", that the caller may list. The caller needs identity.list.
func (s *Service) Issuers(ctx context.Context, below resource.UID) (all []Dependence, complete bool, _ error) {
	under, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return nil, false, err
	}
	if below != "" {
		if err := s.authz.Require(ctx, resource.IdentityList, below); err != nil {
			return nil, false, err
		}
		under = []resource.UID{below}
	}
	reach := store.Reach{Under: under}
	looked, issuer := 0, ""
	for len(all) < maxIssuers && looked < maxLookedAt {
		if issuer, err = s.store.NextIssuer(ctx, issuer); err != nil {
			return nil, false, err
		}
		if issuer == "" {
			given, err := s.unnamedIssuers(ctx, reach)
			return append(all, given...), true, err
		}
		d, err := s.dependence(ctx, reach, issuer)
		if err != nil {
			return nil, false, err
		}
		looked += d.Identities + 1
		if d.Identities > 0 {
			all = append(all, d)
		}
	}
	return all, false, nil
}

func (s *Service) dependence(ctx context.Context, r store.Reach, issuer string) (Dependence, error) {
	found, _, err := s.store.IdentitiesOf(ctx, r, issuer, maxCounted)
	if err != nil || len(found) == 0 {
		return Dependence{}, err
	}
	state, err := s.store.IssuerState(ctx, issuer)
	d := Dependence{IssuerState: state}
	for _, i := range found {
		s.addTo(&d, i)
	}
	return d, err
}

// addTo counts an identity that depends on an issuer.
func (s *Service) addTo(d *Dependence, i resource.Identity) {
	d.Identities++
	if reason := s.riskOf(d.IssuerState, i); reason != "" && len(d.Endangered) < maxEndanger {
		d.Endangered = append(d.Endangered, Endangered{i, reason})
	}
}

// riskOf returns why an identity will stop matching, or "".
func (s *Service) riskOf(state resource.IssuerState, i resource.Identity) string {
	k := i.Relationship.StaticKeys
	switch {
	case k != nil && !s.now().Before(k.ExpirationTime):
		return "its keys expired on " + k.ExpirationTime.UTC().Format(time.DateOnly)
	case k != nil && s.now().Add(endangeredIn).After(k.ExpirationTime):
		return "its keys expire on " + k.ExpirationTime.UTC().Format(time.DateOnly)
	case state.Problem != "" && state.SuccessTime.IsZero():
		return "the issuer has never been reached: " + state.Problem
	case state.Problem != "":
		return "the issuer has not been reached since " + state.SuccessTime.UTC().Format(time.RFC3339) +
			": " + state.Problem
	}
	if i.Relationship.PatternsTooLarge() {
		return "its patterns are too large, so that nothing is compared with them: shorten them or repeat less"
	}
	if warnings := i.Warnings(); len(warnings) > 0 {
		return warnings[0]
	}
	return ""
}

// unnamedIssuers returns what identities trust other than an issuer by name:
// static keys and patterns. Those cannot be monitored.
func (s *Service) unnamedIssuers(ctx context.Context, r store.Reach) ([]Dependence, error) {
	found, _, err := s.store.IdentitiesOf(ctx, r, "", maxCounted)
	if err != nil {
		return nil, err
	}
	by := map[string]Dependence{}
	for _, i := range found {
		name := ""
		switch rel := i.Relationship; {
		case rel.StaticKeys != nil:
			name = rel.StaticKeys.Issuer
		case rel.ClaimMatch != nil:
			name = "/" + rel.ClaimMatch.IssuerPattern + "/"
		default:
			continue
		}
		d := by[name]
		d.Issuer = name
		s.addTo(&d, i)
		by[name] = d
	}
	return slices.SortedFunc(maps.Values(by), func(a, b Dependence) int { return cmp.Compare(a.Issuer, b.Issuer) }), nil
}
