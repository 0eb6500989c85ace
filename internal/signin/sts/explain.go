package sts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	maxExplained = 20  // greatest number of identities in the result
	maxCompared  = 500 // greatest number of compared identities per spelling of the issuer

	// explainSteps bounds the total cost of matching the patterns of all identities. The worst allowed patterns take
	// one or two seconds. Usual patterns take a tenth of that time.
	explainSteps = 50_000_000
)

// An Explanation is the result of comparing a token with one identity.
type Explanation struct {
	Identity resource.Identity
	Accepted bool
	Checks   []resource.Check // failed checks first

	principal *principal
}

// Explain compares a token with an identity. If uid is "", it compares the token
// with similar identities and returns the best match first. The caller needs
// identity.list on the identities. Explain issues and stores nothing. complete is
// false if there are more identities than it compared. Explain returns
// fault.InvalidArgument if raw is not a token.
func (s *Service) Explain(
	ctx context.Context, uid resource.UID, raw string,
) (explained []Explanation, complete bool, _ error) {
	raw = strings.TrimSpace(raw)
	candidates, tok, complete, err := s.candidates(ctx, uid, raw)
	if err != nil {
		return nil, false, err
	}
	principals, within := s.withinBudget(candidates, tok)
	complete = complete && within
	signature := s.signature(ctx, principals, raw, tok)
	for _, p := range principals {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		checks := s.compare(p, tok, s.signatureFor(p, tok, signature), true)
		explained = append(explained, Explanation{p.identity, failures(checks) == 0, checks, p})
	}
	slices.SortStableFunc(explained, func(a, b Explanation) int {
		return cmp.Compare(failures(a.Checks), failures(b.Checks))
	})
	if len(explained) > maxExplained {
		explained, complete = explained[:maxExplained], false
	}
	for _, e := range explained {
		e.principal.addCauses(e.Checks)
		truncateReceived(e.Checks)
	}
	return explained, complete, nil
}

// withinBudget returns principals for as many of the candidates as explainSteps
// allows for this token. complete reports whether it returns all of them.
func (s *Service) withinBudget(
	candidates []resource.Identity, tok *issuers.Token,
) (principals []*principal, complete bool) {
	steps := 0
	for _, i := range candidates {
		p := newPrincipal(i, s.audiences)
		if p.matcher != nil {
			steps += p.matcher.Steps(credential(tok))
		}
		if steps > explainSteps {
			return principals, false
		}
		principals = append(principals, p)
	}
	return principals, true
}

func failures(checks []resource.Check) (n int) {
	for _, c := range checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// candidates returns the identities to compare a token with. It checks first that the caller may list them, so that
// other callers learn nothing about the token.
func (s *Service) candidates(
	ctx context.Context, uid resource.UID, raw string,
) (_ []resource.Identity, _ *issuers.Token, complete bool, err error) {
	var reach []resource.UID
	if uid != "" {
		err = s.authz.Require(ctx, resource.IdentityList, uid)
	} else {
		reach, err = s.authz.Reach(ctx, resource.IdentityList)
	}
	if err != nil {
		return nil, nil, false, err
	}
	tok, err := issuers.Parse(raw)
	if err != nil {
		return nil, nil, false, fault.Field("token", "%s", err.Error())
	}
	if uid != "" {
		i, err := s.store.Identity(ctx, uid)
		return []resource.Identity{i}, tok, true, err
	}
	similar, complete, err := s.similarIdentities(ctx, store.Reach{Under: reach}, tok)
	return similar, tok, complete, err
}

// similarIdentities returns the identities within reach that trust the issuer of a
// token, an issuer with almost the same spelling, or a pattern of issuers.
func (s *Service) similarIdentities(
	ctx context.Context, r store.Reach, tok *issuers.Token,
) (similar []resource.Identity, complete bool, _ error) {
	complete = true
	iss := tok.Issuer
	issuers := []string{iss, strings.TrimSuffix(iss, "/"), iss + "/", strings.ToLower(iss), ""}
	slices.Sort(issuers)
	for _, issuer := range slices.Compact(issuers) {
		found, isAll, err := s.store.IdentitiesOf(ctx, r, issuer, maxCompared)
		if err != nil {
			return nil, false, err
		}
		similar = append(similar, found...)
		complete = complete && isAll
	}
	return similar, complete, nil
}

// signature checks the signature of a token. It fetches the keys of the issuer
// only if one of the principals trusts it.
func (s *Service) signature(ctx context.Context, principals []*principal, raw string, tok *issuers.Token) error {
	var quota *issuers.QuotaKey
	for _, p := range principals {
		trusts := p.identity.Relationship.ClaimMatch != nil && p.matcher != nil && p.matcher.AcceptsIssuer(tok.Issuer)
		if trusts && (quota == nil || p.quota.Reason < quota.Reason) {
			quota = &p.quota
		}
	}
	switch {
	case quota == nil:
		return errNotFetched
	case tok.Issuer == s.issuer.Address():
		_, err := s.verifyOwn(ctx, raw)
		return err
	}
	return s.trust.Verify(ctx, *quota, tok)
}

var errNotFetched = errors.New("the keys of the issuer were not fetched, because no identity here trusts it")

// signatureFor returns the error of checking the signature for one principal. A
// principal with static keys checks the signature with them.
func (s *Service) signatureFor(p *principal, tok *issuers.Token, signature error) error {
	if p.identity.Relationship.StaticKeys != nil {
		return p.keys.Verify(tok)
	}
	return signature
}

// compare returns all checks of a token against a principal, failed ones first and
// without probable causes. signature is the error of checking the signature. The
// patterns of the identity are compared only if patterns is true.
func (s *Service) compare(p *principal, tok *issuers.Token, signature error, patterns bool) []resource.Check {
	if p.tooLarge {
		return []resource.Check{{
			Claim: "identity", Expected: "patterns that are not too large",
			Cause: "the patterns of this identity are too large, so no token is compared with them: " +
				"shorten them or use fewer repetitions",
		}}
	}
	if p.matcher == nil {
		return []resource.Check{{
			Claim: "identity", Expected: "a relationship that a token can match",
			Cause: "no token can match this identity",
		}}
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

// truncateReceived shortens received values to the length that is shown or stored.
func truncateReceived(checks []resource.Check) {
	for i := range checks {
		checks[i].Received = truncated(checks[i].Received)
	}
}

func (s *Service) compareKey(p *principal, tok *issuers.Token, signature error) []resource.Check {
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
		Claim: "signature", Expected: "by a key of the issuer",
		Received: "by key " + truncated(tok.KeyID()) + " with " + tok.Algorithm(),
		OK:       signature == nil, Cause: signatureCause(signature),
	})
}

func signatureCause(err error) string {
	switch away, ok := errors.AsType[*issuers.Unreachable](err); {
	case err == nil:
		return ""
	case ok:
		return "the issuer's keys cannot be fetched: " + away.Reason()
	case errors.Is(err, issuers.ErrUnknownKey):
		return "the issuer has no such key: the token is from another issuer, or the issuer has replaced its keys"
	case errors.Is(err, issuers.ErrSignature):
		return "the token was changed after it was signed, or its issuer has replaced the key"
	case errors.Is(err, errNotFetched):
		return err.Error()
	}
	return "the signature could not be checked"
}

// likelySkew is the largest difference of times for which a wrong clock is the
// likely cause.
const likelySkew = 5 * time.Minute

func (s *Service) compareTimes(tok *issuers.Token) []resource.Check {
	asOf := s.now().UTC()
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	exp := resource.Check{
		Claim: "exp", Expected: "after " + text(asOf), Received: text(tok.Expiry), OK: asOf.Before(tok.Expiry),
	}
	if !exp.OK {
		exp.Cause = "the token has expired: get a new one, right before it is exchanged"
		if asOf.Sub(tok.Expiry) < likelySkew {
			exp.Cause = "the token has expired a moment ago: get a new one, or compare the clocks"
		}
	}
	checks := []resource.Check{exp}
	for claim, claimed := range map[string]time.Time{"nbf": tok.NotBefore, "iat": tok.Issued} {
		if asOf.Add(leeway).Before(claimed) {
			checks = append(checks, resource.Check{
				Claim: claim, Expected: "not after " + text(asOf.Add(leeway)), Received: text(claimed),
				Cause: "the clock of the issuer is ahead of ours by " + claimed.Sub(asOf).Round(time.Second).String(),
			})
		}
	}
	return checks
}
