package sts

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/trust"
)

const (
	denialsWaiting = 1024 // to be written; more are dropped
	denialsBatch   = 100
	denialsEvery   = time.Second
	flushLimit     = 5 * time.Second
)

// Denials returns what an identity was refused for lately, newest first. The
// caller needs identity.list on it.
func (s *Service) Denials(ctx context.Context, uid resource.UID) ([]resource.Denial, error) {
	if err := s.authz.Require(ctx, resource.IdentityList, uid); err != nil {
		return nil, err
	}
	i, err := s.store.Identity(ctx, uid)
	if err != nil {
		return nil, err
	}
	all, err := s.store.Denials(ctx, uid)
	if err != nil {
		return nil, err
	}
	p := newParty(i, s.audiences)
	for _, d := range all {
		p.addCauses(d.Checks)
	}
	return all, nil
}

// addCauses says of claims that did not fit what is probably wrong with them, as
// far as the identity still expects the same. It is done when somebody reads the
// denials and not when they are recorded, since strangers cause those.
func (p *party) addCauses(checks []resource.Check) {
	for i, c := range checks {
		if p.matcher != nil && c.Cause == "" {
			checks[i].Cause = p.matcher.Cause(c)
		}
	}
}

// record keeps why a credential was refused for those who may read the identity,
// and returns the error. Whoever sends many bad ones does not make us write as
// many: what does not fit the queue is dropped.
func (s *Service) record(ctx context.Context, p *party, bearer string, err error) error {
	f := fault.From(err)
	if f.Code != fault.PermissionDenied && f.Code != fault.Unauthenticated {
		return err
	}
	actor := resource.ActorFrom(ctx)
	d := resource.Denial{
		Identity: p.identity.UID, Time: s.now().UTC(), RequestID: actor.RequestID, Message: f.Message, Remote: actor.Remote,
	}
	var refusal *awsRefusal
	if errors.As(err, &refusal) {
		d.Checks, d.Verified = refusal.checks, refusal.verified
	} else if tok, perr := trust.Parse(bearer); perr == nil {
		signature := s.signatureKnown(p, tok)
		d.Checks = s.compare(p, tok, signature, signature == nil)
		d.Verified = signature == nil
		shorten(d.Checks)
	}
	select {
	case s.denials <- d:
	default:
	}
	return err
}

// signatureKnown tells what is wrong with a signature, with the keys that are
// known now. Nobody is asked because a credential was refused.
func (s *Service) signatureKnown(p *party, tok *trust.Token) error {
	switch {
	case p.matcher == nil:
		return errNotAsked
	case p.identity.Relationship.StaticKeys != nil:
		return p.keys.Verify(tok)
	case p.identity.Relationship.ClaimMatch == nil || tok.Issuer == s.issuer.Address() || !p.matcher.AcceptsIssuer(tok.Issuer):
		return errNotAsked
	}
	return s.trust.VerifyKnown(tok)
}

// keepDenials writes denials a second's worth at a time, and at the end what is
// left.
func (s *Service) keepDenials(ctx context.Context) {
	tick := time.NewTicker(denialsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
			defer cancel()
			s.flushDenials(rest)
			return
		case <-tick.C:
			s.flushDenials(ctx)
		}
	}
}

func (s *Service) flushDenials(ctx context.Context) {
	for {
		var batch []resource.Denial
		for len(batch) < denialsBatch {
			select {
			case d := <-s.denials:
				batch = append(batch, d)
				continue
			default:
			}
			break
		}
		if len(batch) == 0 {
			return
		}
		if err := s.store.RecordDenials(ctx, batch); err != nil {
			s.log.WarnContext(ctx, "denials were not kept", "count", len(batch), "err", err)
			return
		}
	}
}
