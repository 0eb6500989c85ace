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
	maxChecksPerDomain  = 256 // greatest number of issuers of one domain that are checked in one round
	checkTimeout        = 15 * time.Second
	maxIssuers          = 1000                // greatest number of issuers in one result
	maxCounted          = 1000                // greatest number of identities that are counted per issuer
	maxLookedAt         = 20_000              // greatest number of issuers and identities that are read for one result
	maxEndanger         = 50                  // greatest number of endangered identities that are listed per issuer
	endangeredIn        = 30 * 24 * time.Hour // keys that expire within this time are reported
)

// Run writes exchanges and denials and monitors issuers until ctx ends. Then it
// writes the remaining queue and returns nil.
func (s *Service) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.writeRecent(ctx) })
	every := cmp.Or(s.cfg.WatchEvery, watchEvery)
	tick := time.NewTicker(max(every/12, time.Second)) // short, so that issuers that failed are checked again sooner
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C: // the first round also waits, so that a server in a restart loop does not check all issuers
		}
		if err := s.checkIssuers(ctx, every); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "check issuers", "err", err)
		}
	}
}

// checkIssuers checks the issuers that must be checked now. Each issuer is checked by one replica.
func (s *Service) checkIssuers(ctx context.Context, every time.Duration) error {
	due, err := s.dueIssuers(ctx, every)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(maxConcurrentChecks)
	for _, d := range due {
		group.Go(func() error { return s.checkIssuer(ctx, d) })
	}
	return errors.Join(group.Wait(), s.records.DropIssuers(ctx))
}

// A dueIssuer is an issuer that must be checked, unless another replica has checked it after the time since.
type dueIssuer struct {
	name  string
	since time.Time
}

// dueIssuers returns the issuers that must be checked now. It alternates between domains, so that a domain with many
// unresponsive issuers hardly delays other domains. It returns at most maxChecksPerDomain issuers of a domain; later
// calls return the rest.
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
		state, err := s.records.IssuerState(ctx, issuer)
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
	if claimed, err := s.records.ClaimIssuer(ctx, d.name, d.since); err != nil || !claimed {
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
	if err := s.records.NoteIssuer(ctx, state); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "store the state of an issuer", "issuer", d.name, "err", err)
	}
	return nil
}

// fetchKeys fetches the keys of an issuer. It fetches nothing from our own issuer,
// because this process knows its own keys, and it may not be able to reach its own
// address.
func (s *Service) fetchKeys(ctx context.Context, issuer string) ([]issuers.Key, error) {
	if issuer == s.issuer.Address() {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	// The quota is per domain, because the identities that name the issuer are not known here.
	quota := issuers.QuotaKey{Tenant: personQuota(issuer).Tenant, Reason: issuers.Named}
	return s.trust.FetchKeys(bounded, quota, issuer)
}

// A Dependence is an issuer and the identities that depend on it.
type Dependence struct {
	resource.IssuerState
	Identities int // number of identities; maxCounted if there are that many or more
	Endangered []Endangered
}

// An Endangered is an identity that no longer matches any token, or soon will not.
type Endangered struct {
	Identity resource.Identity
	Reason   string
}

// Issuers returns the issuers that identities below a group trust. If below is "",
// it returns the issuers of all identities that the caller may list. The caller needs
// identity.list. complete is false if there are more issuers than it returns.
func (s *Service) Issuers(ctx context.Context, below resource.UID) (trusted []Dependence, complete bool, _ error) {
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
	for len(trusted) < maxIssuers && looked < maxLookedAt {
		if issuer, err = s.store.NextIssuer(ctx, issuer); err != nil {
			return nil, false, err
		}
		if issuer == "" {
			given, err := s.unnamedIssuers(ctx, reach)
			return append(trusted, given...), true, err
		}
		d, err := s.dependence(ctx, reach, issuer)
		if err != nil {
			return nil, false, err
		}
		looked += d.Identities + 1
		if d.Identities > 0 {
			trusted = append(trusted, d)
		}
	}
	return trusted, false, nil
}

func (s *Service) dependence(ctx context.Context, r store.Reach, issuer string) (Dependence, error) {
	found, _, err := s.store.IdentitiesOf(ctx, r, issuer, maxCounted)
	if err != nil || len(found) == 0 {
		return Dependence{}, err
	}
	state, err := s.records.IssuerState(ctx, issuer)
	d := Dependence{IssuerState: state}
	for _, i := range found {
		s.addTo(&d, i)
	}
	return d, err
}

// addTo adds an identity to the issuer on which it depends.
func (s *Service) addTo(d *Dependence, i resource.Identity) {
	d.Identities++
	if reason := s.riskOf(d.IssuerState, i); reason != "" && len(d.Endangered) < maxEndanger {
		d.Endangered = append(d.Endangered, Endangered{i, reason})
	}
}

// riskOf returns the reason why an identity may stop matching tokens, or "".
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
		return "its patterns are too large, so no token is compared with them: shorten them or use fewer repetitions"
	}
	if warnings := i.Warnings(); len(warnings) > 0 {
		return warnings[0]
	}
	return ""
}

// unnamedIssuers returns the static keys and issuer patterns that identities trust.
// They cannot be monitored, because they name no issuer.
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
