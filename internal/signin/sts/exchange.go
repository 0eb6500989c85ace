package sts

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// leeway allows for a clock that is behind the clock of the issuer. It does not
// apply to expiry.
const leeway = time.Minute

// A Request asks to exchange a credential for a token.
type Request struct {
	TokenParams
	Bearer   string // the credential
	Identity string // identity to assume; "" is the person that the token is about
	// Organization is the organization of the identity to assume, if Identity is "". Exactly one of its identities must
	// trust the credential.
	Organization resource.UID
	Provider     string // identity provider that issued the token, or ""; ignored if Identity is set
}

// Exchange returns a token for a credential. It returns fault.InvalidArgument if a
// parameter is not allowed, fault.Unauthenticated if the credential is invalid,
// fault.PermissionDenied with the name of a claim if the credential does not match
// the identity, and fault.Unavailable if the keys of its issuer cannot be fetched.
func (s *Service) Exchange(ctx context.Context, r Request) (Token, error) {
	t, err := s.exchange(ctx, r)
	s.count(t, r.Bearer, err)
	return t, err
}

func (s *Service) exchange(ctx context.Context, r Request) (Token, error) {
	claims, err := s.claims(r.TokenParams)
	if err != nil {
		return Token{}, err
	}
	for _, given := range [][2]string{{"identity", r.Identity}, {"identity_provider", r.Provider}} {
		if given[1] == "" {
			continue
		}
		if _, err := resource.ParseUID(given[0], given[1]); err != nil {
			return Token{}, err
		}
	}
	resource.ClaimFrom(ctx).Asked = resource.UID(r.Identity)
	if r.Bearer == "" {
		return Token{}, refused("", "a bearer token is required")
	}
	if err := s.authz.EnsureCurrent(ctx); err != nil { // afterwards the cache of principals is as recent as the grants
		return Token{}, err
	}
	if r.Identity != "" {
		return s.assume(ctx, resource.UID(r.Identity), r.Bearer, claims)
	}
	if r.Organization != "" {
		return s.assumeIn(ctx, r.Organization, r.Bearer, claims)
	}
	if r.Provider != "" {
		return s.exchangeViaProvider(ctx, resource.UID(r.Provider), r.Bearer, claims)
	}
	tok, err := parse(r.Bearer)
	if err != nil {
		return Token{}, err
	}
	if tok.Issuer == s.issuer.Address() {
		return s.reissue(ctx, r.Bearer, tok, claims)
	}
	uid, err := s.personOfIssuer(ctx, tok)
	if err != nil {
		return Token{}, err
	}
	return s.assume(ctx, uid, r.Bearer, claims)
}

// personOfIssuer returns the UID of the person whom the issuer of a token knows by its subject. People who signed in
// before the operator trusted their provider have kept their UIDs, which are not derived from the issuer. If nobody is
// registered, it returns the UID that a person would get.
func (s *Service) personOfIssuer(ctx context.Context, tok *issuers.Token) (resource.UID, error) {
	if !resource.Storable(tok.Issuer) || !resource.Storable(tok.Subject) { // a database cannot look for it
		return resource.UserUID(tok.Issuer, tok.Subject), nil
	}
	i, err := s.person(ctx, tok.Issuer, tok.Subject)
	if errors.Is(err, fault.NotFound) {
		return resource.UserUID(tok.Issuer, tok.Subject), nil
	}
	return i.UID, err
}

func parse(bearer string) (*issuers.Token, error) {
	tok, err := issuers.Parse(bearer)
	if bad, ok := errors.AsType[*issuers.Malformed](err); ok {
		return nil, refused(bad.Claim, bad.Reason)
	}
	return tok, err
}

// assume returns a token of an identity if the credential matches the identity.
func (s *Service) assume(ctx context.Context, uid resource.UID, bearer string, claims token.Claims) (Token, error) {
	p, from, err := s.acceptLatest(ctx, uid, bearer)
	if errors.Is(err, fault.NotFound) {
		// The error is the same as for an identity that trusts another issuer.
		return Token{}, s.denied(ctx, "iss")
	}
	if err != nil && p != nil {
		err = s.recordDenial(ctx, p, bearer, err)
	}
	if err != nil {
		return Token{}, err
	}
	s.recordUse(ctx, p)
	claims.Subject, claims.Act, claims.Session, claims.Voucher = uid, from.act, from.session, from.voucher
	claims.Email = p.identity.Email
	t, err := s.mint(ctx, claims, from.until)
	if err == nil {
		s.recordExchange(ctx, p, from, claims.Audience)
	}
	t.class = s.classOf(from.act.Issuer)
	if p.identity.Relationship.AWS != nil {
		t.class = metric.AWS
	}
	return t, err
}

// A provenance is the credential that a new token is derived from, and the
// conditions that limit the new token.
type provenance struct {
	act     *resource.Upstream
	session string           // session of the credential; the new token becomes void when it ends
	voucher resource.Voucher // voucher of the credential; the new token becomes void with it
	until   time.Time        // latest expiry of the new token; zero if the credential is from another issuer
}

// acceptLatest returns the identity uid, and the provenance of a credential that matches it. If the identity changes
// during the comparison, acceptLatest compares again. It also returns the identity if the credential does not match.
func (s *Service) acceptLatest(
	ctx context.Context, uid resource.UID, bearer string,
) (p *principal, from provenance, _ error) {
	p, cached, err := s.principal(ctx, uid)
	for err == nil {
		from, denied := s.accept(ctx, p, bearer)
		latest := p
		if denied == nil || cached && errors.Is(denied, fault.PermissionDenied) {
			latest, err = s.latest(ctx, p, denied == nil)
		}
		if err == nil && latest == p {
			return p, from, denied
		}
		p, cached = latest, false
	}
	return nil, from, err
}

// principal returns an identity from the cache or from the store.
func (s *Service) principal(ctx context.Context, uid resource.UID) (p *principal, cached bool, _ error) {
	p, generation := s.principals.get(uid)
	if p != nil {
		return p, true, nil
	}
	i, err := s.store.Identity(ctx, uid)
	if err != nil {
		return nil, false, err
	}
	p = newPrincipal(i, s.audiences)
	s.principals.put(p, generation)
	return p, false, nil
}

// latest returns the principal of an identity that may have changed while a credential was compared with p, for example
// while the keys of the issuer were fetched. It returns p if the identity trusts the same credentials as before. After
// a denial, it does not use the cache, because another replica may have just changed the identity.
func (s *Service) latest(ctx context.Context, p *principal, accepted bool) (*principal, error) {
	if accepted {
		if err := s.authz.EnsureCurrent(ctx); err != nil {
			return nil, err
		}
		if s.principals.has(p) {
			return p, nil
		}
	}
	return s.reload(ctx, p)
}

// reload reads the identity of p from the store again. It returns p itself if the
// relationship has not changed, so that invalid credentials do not cause patterns
// to be compiled again.
func (s *Service) reload(ctx context.Context, p *principal) (*principal, error) {
	i, err := s.store.Identity(ctx, p.identity.UID)
	if err == nil && i.Realm == p.identity.Realm && reflect.DeepEqual(i.Relationship, p.identity.Relationship) {
		return p, nil
	}
	s.principals.invalidate(p.identity.UID)
	if err != nil {
		return nil, err
	}
	p, _, err = s.principal(ctx, i.UID)
	return p, err
}

// accept returns the provenance of a credential, if the credential matches p.
func (s *Service) accept(ctx context.Context, p *principal, bearer string) (provenance, error) {
	if p.matcher == nil {
		return provenance{}, s.denied(ctx, "identity")
	}
	if p.identity.Relationship.AWS != nil {
		act, err := s.acceptAWS(ctx, p, bearer)
		return provenance{act: act}, err
	}
	tok, err := parse(bearer)
	if err != nil {
		return provenance{}, err
	}
	c := credential(tok)
	if !p.matcher.AcceptsIssuer(c.Issuer) {
		return provenance{}, s.denied(ctx, "iss")
	}
	out := provenance{act: &resource.Upstream{Issuer: c.Issuer, Subject: c.Subject, Audience: c.Audience}}
	switch match := p.identity.Relationship.ClaimMatch; {
	case match == nil:
		out.act.Issuer = "" // the identity's static keys verified the token, not its issuer
		err = s.verify(ctx, p, tok)
	case tok.Issuer == s.issuer.Address():
		err = s.chain(ctx, match, bearer, &out)
	default:
		err = s.verify(ctx, p, tok)
	}
	if err != nil {
		return provenance{}, err
	}
	if err := s.checkTimes(tok); err != nil {
		return provenance{}, err
	}
	if claim := p.matcher.Mismatch(c); claim != "" {
		return provenance{}, s.denied(ctx, claim)
	}
	return out, nil
}

// maxChain is the greatest number of identities through which a token can be assumed.
const maxChain = 8

// chain accepts one of our own tokens for another identity. The identity must name
// our issuer and the subject exactly, because authz.RequireBecome follows such
// identities and cannot follow a pattern. All conditions that limit the presented
// token also limit the new token.
func (s *Service) chain(ctx context.Context, match *resource.ClaimMatch, bearer string, out *provenance) error {
	switch {
	case match.Issuer == "":
		return s.denied(ctx, "iss")
	case match.Subject == "":
		return s.denied(ctx, "sub")
	}
	caller, err := s.verifyOwn(ctx, bearer)
	if err != nil {
		return err
	}
	if !caller.Narrowing().IsZero() { // the token's identity may do more than the token
		return refused("", "a narrowed token cannot be exchanged for a token of another identity")
	}
	out.act.Act, out.session, out.voucher, out.until = caller.Act, caller.Session, caller.Voucher, caller.Expires
	depth := 0
	for act := out.act; act != nil; act = act.Act {
		depth++
	}
	if depth > maxChain {
		return refused("act", "the token was assumed through too many identities")
	}
	return nil
}

// credential returns the claims of a token in the form that a resource.Matcher compares.
func credential(tok *issuers.Token) resource.Credential {
	return resource.Credential{Issuer: tok.Issuer, Subject: tok.Subject, Audience: tok.Audience, Claim: tok.Claim}
}

// verify checks the signature of a token from another issuer that p trusts.
func (s *Service) verify(ctx context.Context, p *principal, tok *issuers.Token) error {
	var err error
	switch {
	case p.identity.Relationship.StaticKeysExpired(s.now()):
		return s.denied(ctx, "key")
	case p.identity.Relationship.StaticKeys != nil:
		err = p.keys.Verify(tok)
	default:
		err = s.trust.Verify(ctx, p.quota, tok)
	}
	switch _, away := errors.AsType[*issuers.Unreachable](err); {
	case errors.Is(err, issuers.ErrUnknownKey):
		return refused("kid", "the token is signed with a key that its issuer does not have")
	case errors.Is(err, issuers.ErrSignature):
		return refused("signature", "the signature of the token is wrong")
	case away:
		return &fault.Error{
			Code: fault.Unavailable, Cause: err,
			Message: "Unavailable: the keys of the token's issuer cannot be fetched now",
		}
	}
	return err
}

// checkTimes checks that a token is valid now.
func (s *Service) checkTimes(tok *issuers.Token) error {
	asOf := s.now()
	switch {
	case !asOf.Before(tok.Expiry):
		return refused("exp", "the token has expired")
	case asOf.Add(leeway).Before(tok.NotBefore):
		return refused("nbf", "the token is not valid yet")
	case asOf.Add(leeway).Before(tok.Issued):
		return refused("iat", "the token is from the future")
	}
	return nil
}

// denied returns the error for a credential that does not match the identity. It
// names the claim but not the expected value.
func (s *Service) denied(ctx context.Context, claim string) error {
	return &fault.Error{
		Code:     fault.PermissionDenied,
		Message:  "Permission denied: invalid \"" + claim + "\" (" + reference(ctx) + ")",
		Metadata: map[string]string{"claim": claim},
	}
}

// reference returns the ids of the request and its trace, for an error.
func reference(ctx context.Context) string {
	return "request " + trace.Reference(ctx, resource.ActorFrom(ctx).RequestID)
}

// recordUse records that an identity was used, at most once a minute.
func (s *Service) recordUse(ctx context.Context, p *principal) {
	used := s.now()
	if !p.useDue(used) {
		return
	}
	if err := s.store.RecordLastSeen(ctx, p.identity.UID, used); err != nil {
		s.log.WarnContext(ctx, "record the last use of an identity", "identity", p.identity.UID, "err", err)
	}
}

// exchangeViaProvider returns a token for the person whom a token of an identity provider identifies.
func (s *Service) exchangeViaProvider(
	ctx context.Context, uid resource.UID, bearer string, claims token.Claims,
) (Token, error) {
	tok, err := parse(bearer)
	if err != nil {
		return Token{}, err
	}
	idp, err := s.store.Provider(ctx, uid)
	if errors.Is(err, fault.NotFound) || err == nil && idp.Disabled {
		return Token{}, s.denied(ctx, "iss")
	}
	if err != nil {
		return Token{}, err
	}
	subject, err := s.providerSubject(ctx, idp, tok, bearer)
	if err != nil {
		return Token{}, err
	}
	person, err := s.person(ctx, idp.Realm, subject)
	if err == nil || errors.Is(err, fault.NotFound) {
		if err := s.users.RequireListed(ctx, uid, person.UID); err != nil {
			return Token{}, err
		}
	}
	if errors.Is(err, fault.NotFound) {
		return Token{}, fault.New(fault.NotFound,
			"Not found: this person has not been registered; sign in with a browser or an invite first")
	}
	if err != nil {
		return Token{}, err
	}
	if known, _, err := s.principal(ctx, person.UID); err == nil {
		s.recordUse(ctx, known)
	}
	claims.Subject, claims.Voucher = person.UID, idp.Voucher()
	claims.Act = &resource.Upstream{Issuer: tok.Issuer, Subject: tok.Subject, Audience: tok.Audience}
	claims.Email, claims.EmailVerified = person.Email, person.Email != "" && idp.Trusted
	t, err := s.mint(ctx, claims, time.Time{})
	if err != nil {
		return Token{}, err
	}
	if s.authz.Disabled(uid, claims.Issued) { // while the exchange waited for the keys of the provider
		return Token{}, s.denied(ctx, "iss")
	}
	t.class = s.classOf(tok.Issuer)
	return t, nil
}

// person returns the identity of a subject in a realm, or fault.NotFound. It uses the cache if the UID of the identity
// is derived from the realm and the subject, which is the case for almost all people.
func (s *Service) person(ctx context.Context, realm, subject string) (resource.Identity, error) {
	p, _, err := s.principal(ctx, resource.UserUID(realm, subject))
	if err == nil && p.identity.Realm == realm && p.identity.Relationship.Subject() == subject {
		return p.identity, nil
	}
	return s.store.Person(ctx, realm, subject)
}

// providerSubject returns the subject that a provider uses for the person of a
// token. It returns fault.PermissionDenied unless the token is from the provider's
// issuer and for its client.
func (s *Service) providerSubject(
	ctx context.Context, idp resource.IdentityProvider, tok *issuers.Token, bearer string,
) (string, error) {
	trusted := resource.Identity{Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{
		Issuer: idp.OIDC.Issuer, Subject: tok.Subject, Audience: idp.OIDC.ClientID,
	}}}
	if tok.Issuer == s.issuer.Address() { // our own issuer is never a provider
		return "", s.denied(ctx, "iss")
	}
	p := newPrincipal(trusted, s.audiences)
	p.quota = issuers.QuotaKey{Tenant: string(idp.UID.Root()), Reason: issuers.Named}
	if _, err := s.accept(ctx, p, bearer); err != nil {
		return "", err
	}
	if !idp.OIDC.ByObjectID() {
		return tok.Subject, nil
	}
	subject, ok := tok.Claim("oid")
	if !ok {
		return "", s.denied(ctx, "oid")
	}
	return subject, nil
}

// reissue exchanges one of our tokens for a token that has another audience or is narrower. The new token expires no
// later than the presented one, so that repeated exchanges do not extend the life of a token.
func (s *Service) reissue(ctx context.Context, bearer string, tok *issuers.Token, claims token.Claims) (Token, error) {
	caller, err := s.verifyOwn(ctx, bearer)
	if err != nil {
		return Token{}, err
	}
	claims.Subject, claims.Act = caller.Identity, caller.Act
	claims.Session, claims.Voucher = caller.Session, caller.Voucher
	claims.Email, claims.EmailVerified = caller.Email, caller.EmailVerified
	if err := narrow(&claims, caller.Narrowing()); err != nil {
		return Token{}, err
	}
	t, err := s.mint(ctx, claims, tok.Expiry)
	t.class = metric.Own
	return t, err
}

// narrow restricts claims to an earlier narrowing. It returns fault.InvalidArgument if claims contain a scope
// outside of that narrowing.
func narrow(claims *token.Claims, to resource.Narrowing) (err error) {
	if to.Caps != nil {
		left := *to.Caps
		if claims.Caps != nil {
			left = left.Without(left.Without(*claims.Caps))
		}
		claims.Caps = &left
	}
	if to.Scopes != nil {
		claims.Scopes, err = within(to.Scopes, claims.Scopes)
	}
	return err
}

// verifyOwn returns the caller of one of our own tokens for the API.
func (s *Service) verifyOwn(ctx context.Context, bearer string) (authz.Caller, error) {
	return s.issuer.Authenticate(ctx, bearer, s.cfg.BaseURL, s.authz)
}

// within returns the requested scopes if the presented token covers them.
func within(have, asked []resource.UID) ([]resource.UID, error) {
	if asked == nil {
		return have, nil
	}
	for _, scope := range asked {
		if !slices.ContainsFunc(have, func(h resource.UID) bool { return h.Covers(scope) }) {
			return nil, fault.Field("scope", "the token presented is narrowed to other groups")
		}
	}
	return asked, nil
}
