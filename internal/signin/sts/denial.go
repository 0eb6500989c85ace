package sts

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

const (
	denialsWaiting = 1024            // length of the queue; further denials are dropped
	denialsBatch   = 100             // greatest number of denials per write
	recentEvery    = time.Second     // interval between two writes
	flushLimit     = 5 * time.Second // timeout of the last write
)

// Denials returns the recent refusals of credentials for an identity, newest first. The caller needs identity.list on
// it.
func (s *Service) Denials(ctx context.Context, uid resource.UID) ([]resource.Denial, error) {
	if err := s.authz.Require(ctx, resource.IdentityList, uid); err != nil {
		return nil, err
	}
	i, err := s.store.Identity(ctx, uid)
	if err != nil {
		return nil, err
	}
	recent, err := s.records.Denials(ctx, uid)
	if err != nil {
		return nil, err
	}
	p := newPrincipal(i, s.audiences)
	for _, d := range recent {
		p.addCauses(d.Checks)
	}
	return recent, nil
}

// addCauses adds the probable cause to each failed check whose expected value is
// still current. It runs when denials are read and not when they are recorded,
// because any stranger can cause a denial.
func (p *principal) addCauses(checks []resource.Check) {
	for i, c := range checks {
		if p.matcher != nil && c.Cause == "" {
			checks[i].Cause = p.matcher.Cause(c)
		}
	}
}

// recordDenial queues the reason why a credential was refused, and returns err. It
// drops the record if the queue is full, so that a client that sends many invalid
// credentials does not cause as many writes.
func (s *Service) recordDenial(ctx context.Context, p *principal, bearer string, err error) error {
	f := fault.From(err)
	if f.Code != fault.PermissionDenied && f.Code != fault.Unauthenticated {
		return err
	}
	actor := resource.ActorFrom(ctx)
	d := resource.Denial{
		Identity: p.identity.UID, Time: s.now().UTC(), Message: f.Message,
		RequestID: actor.RequestID, Remote: actor.Remote,
	}
	if refusal, ok := errors.AsType[*awsRefusal](err); ok {
		d.Checks, d.Verified = refusal.checks, refusal.verified
	} else if tok, perr := issuers.Parse(bearer); perr == nil {
		signature := s.verifyCached(p, tok)
		d.Checks = s.compare(p, tok, signature, signature == nil)
		d.Verified = signature == nil
		truncateReceived(d.Checks)
	}
	select {
	case s.denials <- d:
	default:
	}
	return err
}

// verifyCached checks a signature with the cached keys, because a refused
// credential must not cause a request to its issuer.
func (s *Service) verifyCached(p *principal, tok *issuers.Token) error {
	switch {
	case p.matcher == nil:
		return errNotFetched
	case p.identity.Relationship.StaticKeys != nil:
		return p.keys.Verify(tok)
	case p.identity.Relationship.ClaimMatch == nil, tok.Issuer == s.issuer.Address(),
		!p.matcher.AcceptsIssuer(tok.Issuer):
		return errNotFetched
	}
	return s.trust.VerifyCached(tok)
}

// writeRecent writes the recent exchanges and denials once a second, and the
// remaining ones when ctx ends.
func (s *Service) writeRecent(ctx context.Context) {
	tick := time.NewTicker(recentEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
			defer cancel()
			s.flushExchanges(rest)
			s.flushDenials(rest)
			return
		case <-tick.C:
			s.flushExchanges(ctx)
			s.flushDenials(ctx)
		}
	}
}

func (s *Service) flushDenials(ctx context.Context) {
	for {
		var batch []resource.Denial
		for range min(len(s.denials), denialsBatch) { // does not block, because no other goroutine receives
			batch = append(batch, <-s.denials)
		}
		if len(batch) == 0 {
			return
		}
		if err := s.records.RecordDenials(ctx, batch); err != nil {
			s.log.WarnContext(ctx, "write denials", "count", len(batch), "err", err)
			return
		}
	}
}
