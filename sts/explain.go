package sts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/trust"
)

const (
	explained = 20  // identities that are told about
	compared  = 500 // identities that are looked at, of each sort

	// explainSteps bounds what the patterns of all identities together may cost:
	// a second or two if they are the worst that is allowed, and ten times what
	// usual ones need.
	explainSteps = 50_000_000
)

// An Explanation is how a token fares with one identity.
type Explanation struct {
	Identity resource.Identity
	Accepted bool
	Checks   []resource.Check // those that do not fit first
}

// Explain says how a token fares with an identity, or, for "", with the
// identities within the caller's reach that come near it, best first. The caller
// needs identity.list on them. It issues nothing and keeps nothing. complete is
// false if there were more identities than it looked at. It returns
// fault.InvalidArgument for a text that is no token.
func (s *Service) Explain(ctx context.Context, uid resource.UID, raw string) (all []Explanation, complete bool, _ error) {
	raw = strings.TrimSpace(raw)
	candidates, tok, complete, err := s.candidates(ctx, uid, raw)
	if err != nil {
		return nil, false, err
	}
	parties, within := s.affordable(candidates, tok)
	complete = complete && within
	signature := s.signature(ctx, parties, raw, tok)
	by := map[resource.UID]*party{}
	for _, p := range parties {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		by[p.identity.UID] = p
		checks := s.compare(p, tok, s.signatureFor(p, tok, signature), true)
		all = append(all, Explanation{p.identity, failures(checks) == 0, checks})
	}
	slices.SortStableFunc(all, func(a, b Explanation) int { return cmp.Compare(failures(a.Checks), failures(b.Checks)) })
	if len(all) > explained {
		all, complete = all[:explained], false
	}
	for _, e := range all {
		by[e.Identity.UID].addCauses(e.Checks)
		shorten(e.Checks)
	}
	return all, complete, nil
}

// affordable returns the identities, ready to be compared with a token, as far as
// explainSteps allows, and whether those are all.
func (s *Service) affordable(candidates []resource.Identity, tok *trust.Token) (all []*party, complete bool) {
	steps := 0
	for _, i := range candidates {
		p := newParty(i, s.audiences)
		if p.matcher != nil {
			steps += p.matcher.Steps(credential(tok))
		}
		if steps > explainSteps {
			return all, false
		}
		all = append(all, p)
	}
	return all, true
}

func failures(checks []resource.Check) (n int) {
	for _, c := range checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// candidates returns the identities to hold a token against. The caller's right
// to read them comes before anything is said about the token.
func (s *Service) candidates(ctx context.Context, uid resource.UID, raw string) ([]resource.Identity, *trust.Token, bool, error) {
	var reach []resource.UID
	var err error
	if uid != "" {
		err = s.authz.Require(ctx, resource.IdentityList, uid)
	} else {
		reach, err = s.authz.Reach(ctx, resource.IdentityList)
	}
	if err != nil {
		return nil, nil, false, err
	}
	tok, err := trust.Parse(raw)
	if err != nil {
		return nil, nil, false, fault.Field("token", "%s", err.Error())
	}
	if uid != "" {
		i, err := s.store.Identity(ctx, uid)
		return []resource.Identity{i}, tok, true, err
	}
	all, complete, err := s.near(ctx, store.Reach{Under: reach}, tok)
	return all, tok, complete, err
}

// near returns the identities within reach that trust the issuer of a token, or
// one that is written almost like it, or any of a pattern.
func (s *Service) near(ctx context.Context, r store.Reach, tok *trust.Token) (all []resource.Identity, complete bool, _ error) {
	complete = true
	issuers := []string{tok.Issuer, strings.TrimSuffix(tok.Issuer, "/"), tok.Issuer + "/", strings.ToLower(tok.Issuer), ""}
	slices.Sort(issuers)
	for _, issuer := range slices.Compact(issuers) {
		found, whole, err := s.store.IdentitiesOf(ctx, r, issuer, compared)
		if err != nil {
			return nil, false, err
		}
		all = append(all, found...)
		complete = complete && whole
	}
	return all, complete, nil
}

// signature tells what is wrong with the signature of a token, and asks its
// issuer only if one of the identities trusts it.
func (s *Service) signature(ctx context.Context, parties []*party, raw string, tok *trust.Token) error {
	var asker *trust.Asker
	for _, p := range parties {
		if p.identity.Relationship.ClaimMatch != nil && p.matcher != nil && p.matcher.AcceptsIssuer(tok.Issuer) && (asker == nil || p.asker.Reason < asker.Reason) {
			asker = &p.asker
		}
	}
	switch {
	case asker == nil:
		return errNotAsked
	case tok.Issuer == s.issuer.Address():
		_, err := s.own(ctx, raw)
		return err
	}
	return s.trust.Verify(ctx, *asker, tok)
}

var errNotAsked = errors.New("the issuer was not asked, because no identity here trusts it")

// signatureFor is what is wrong with a signature in the eyes of one identity.
func (s *Service) signatureFor(p *party, tok *trust.Token, signature error) error {
	if p.identity.Relationship.StaticKeys != nil {
		return p.keys.Verify(tok)
	}
	return signature
}

// compare returns how a token fares with an identity in every respect, without
// what is probably wrong with its claims. signature is what is wrong with its
// signature. The patterns of the identity are compared only if that is asked for.
func (s *Service) compare(p *party, tok *trust.Token, signature error, patterns bool) []resource.Check {
	if p.tooLarge {
		return []resource.Check{{
			Claim: "identity", Expected: "patterns that are not too large",
			Cause: "the patterns of this identity are too large, so no token is compared with them: shorten them or repeat less",
		}}
	}
	if p.matcher == nil {
		return []resource.Check{{Claim: "identity", Expected: "a relationship that tokens can stand for", Cause: "no token stands for this identity"}}
	}
	var checks []resource.Check
	if p.identity.Relationship.AWS == nil {
		checks = append(checks, s.compareKey(p, tok, signature)...)
		checks = append(checks, s.compareTimes(tok)...)
	}
	checks = append(checks, p.matcher.Compare(credential(tok), patterns)...)
	slices.SortStableFunc(checks, func(a, b resource.Check) int {
		return cmp.Compare(failures([]resource.Check{b}), failures([]resource.Check{a}))
	})
	return checks
}

// shorten cuts what was received to what is told or kept.
func shorten(checks []resource.Check) {
	for i := range checks {
		checks[i].Received = shortened(checks[i].Received)
	}
}

func (s *Service) compareKey(p *party, tok *trust.Token, signature error) []resource.Check {
	var checks []resource.Check
	if k := p.identity.Relationship.StaticKeys; k != nil {
		c := resource.Check{
			Claim: "key", Expected: "trusted until " + k.ExpirationTime.UTC().Format(time.RFC3339),
			Received: s.now().UTC().Format(time.RFC3339), OK: !p.identity.Relationship.StaticKeysExpired(s.now()),
		}
		if !c.OK {
			c.Cause = "the keys of this identity have expired: give it new ones"
		}
		checks = append(checks, c)
	}
	return append(checks, resource.Check{
		Claim: "signature", Expected: "by a key of the issuer", Received: "by key " + shortened(tok.KeyID()) + " with " + tok.Algorithm(),
		OK: signature == nil, Cause: signatureCause(signature),
	})
}

func signatureCause(err error) string {
	var away *trust.Unreachable
	switch {
	case err == nil:
		return ""
	case errors.As(err, &away):
		return "the issuer's keys cannot be had: " + away.Reason()
	case errors.Is(err, trust.ErrUnknownKey):
		return "the issuer has no such key: the token is from another issuer, or its keys have changed since"
	case errors.Is(err, trust.ErrSignature):
		return "the token was changed after it was signed, or its issuer has changed its key"
	case errors.Is(err, errNotAsked):
		return err.Error()
	}
	return "the signature could not be checked"
}

// skewed is how far a time may be off for clocks to be the likely cause.
const skewed = 5 * time.Minute

func (s *Service) compareTimes(tok *trust.Token) []resource.Check {
	now := s.now().UTC()
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	exp := resource.Check{Claim: "exp", Expected: "after " + text(now), Received: text(tok.Expiry), OK: now.Before(tok.Expiry)}
	if !exp.OK {
		exp.Cause = "the token has expired: get a new one, right before it is exchanged"
		if now.Sub(tok.Expiry) < skewed {
			exp.Cause = "the token has expired a moment ago: get a new one, or compare the clocks"
		}
	}
	checks := []resource.Check{exp}
	for claim, at := range map[string]time.Time{"nbf": tok.NotUntil, "iat": tok.Issued} {
		if now.Add(leeway).Before(at) {
			checks = append(checks, resource.Check{
				Claim: claim, Expected: "not after " + text(now.Add(leeway)), Received: text(at),
				Cause: "the clock of the issuer is ahead of ours by " + at.Sub(now).Round(time.Second).String(),
			})
		}
	}
	return checks
}
