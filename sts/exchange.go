package sts

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/token"
	"github.com/holdfast-dev/holdfast/trust"
)

// leeway is for clocks that run behind the issuer's; there is none when a token
// ends.
const leeway = time.Minute

// A Request asks for a token in exchange for a credential.
type Request struct {
	Wish
	Bearer   string // the credential
	Identity string // whom to assume; "" is the person whose token it is
	Provider string // the identity provider that issued the token, or ""
}

// Exchange returns a token for a credential. It returns fault.InvalidArgument for
// a wish that cannot be, fault.Unauthenticated for a credential that is not
// good, fault.PermissionDenied, with the claim to blame, for one that does not
// stand for the identity, and fault.Unavailable if its issuer cannot be asked.
func (s *Service) Exchange(ctx context.Context, r Request) (Token, error) {
	claims, err := s.claims(r.Wish)
	if err != nil {
		return Token{}, err
	}
	if r.Bearer == "" {
		return Token{}, refused("", "a bearer token is required")
	}
	if err := s.authz.Confirm(ctx); err != nil { // what is remembered of identities is as new as the grants
		return Token{}, err
	}
	switch {
	case r.Identity != "":
		uid, err := resource.ParseUID("identity", r.Identity)
		if err != nil {
			return Token{}, err
		}
		return s.assume(ctx, uid, r.Bearer, claims)
	case r.Provider != "":
		uid, err := resource.ParseUID("identity_provider", r.Provider)
		if err != nil {
			return Token{}, err
		}
		return s.viaProvider(ctx, uid, r.Bearer, claims)
	}
	tok, err := parse(r.Bearer)
	if err != nil {
		return Token{}, err
	}
	if tok.Issuer == s.issuer.Address() {
		return s.again(ctx, r.Bearer, tok, claims)
	}
	return s.assume(ctx, resource.UserUID(tok.Issuer, tok.Subject), r.Bearer, claims)
}

func parse(bearer string) (*trust.Token, error) {
	tok, err := trust.Parse(bearer)
	var bad *trust.Malformed
	if errors.As(err, &bad) {
		return nil, refused(bad.Claim, bad.Reason)
	}
	return tok, err
}

// assume returns a token of an identity, if the bearer stands for it.
func (s *Service) assume(ctx context.Context, uid resource.UID, bearer string, claims token.Claims) (Token, error) {
	p, remembered, err := s.party(ctx, uid)
	if errors.Is(err, fault.NotFound) {
		// Not to be told from an identity that trusts somebody else.
		return Token{}, s.denied(ctx, "iss")
	}
	if err != nil {
		return Token{}, err
	}
	backing, err := s.accept(ctx, p, bearer)
	if remembered && errors.Is(err, fault.PermissionDenied) { // another replica may have changed it a moment ago
		changed, rerr := s.reread(ctx, p)
		if errors.Is(rerr, fault.NotFound) {
			return Token{}, s.denied(ctx, "iss")
		}
		if rerr != nil {
			return Token{}, rerr
		}
		if changed != p {
			p = changed
			backing, err = s.accept(ctx, p, bearer)
		}
	}
	if err != nil {
		return Token{}, s.record(ctx, p, bearer, err)
	}
	s.noteSeen(ctx, p)
	claims.Subject, claims.Act, claims.Session, claims.Voucher = uid, backing.act, backing.session, backing.voucher
	claims.Email = p.identity.Email
	return s.mint(ctx, claims, backing.until)
}

// A backing is what stands behind a token that is about to be made.
type backing struct {
	act     *resource.Upstream
	session string           // of a token of ours: the new one ends with it
	voucher resource.Voucher // and is void with its provider's word
	until   time.Time        // and does not outlive it; the zero time for the tokens of others
}

// party returns an identity from memory or from the store.
func (s *Service) party(ctx context.Context, uid resource.UID) (p *party, remembered bool, _ error) {
	p, mark := s.known.get(uid)
	if p != nil {
		return p, true, nil
	}
	i, err := s.store.Identity(ctx, uid)
	if err != nil {
		return nil, false, err
	}
	p = newParty(i, s.audiences)
	s.known.put(p, mark)
	return p, false, nil
}

// reread returns an identity as the store has it now, or p itself if its
// relationship has not changed: its patterns are not compiled again because
// somebody presents bad credentials.
func (s *Service) reread(ctx context.Context, p *party) (*party, error) {
	i, err := s.store.Identity(ctx, p.identity.UID)
	if err == nil && i.Realm == p.identity.Realm && reflect.DeepEqual(i.Relationship, p.identity.Relationship) {
		return p, nil
	}
	s.known.forget(p.identity.UID)
	if err != nil {
		return nil, err
	}
	p, _, err = s.party(ctx, i.UID)
	return p, err
}

// accept returns what stands behind a credential, if it stands for p.
func (s *Service) accept(ctx context.Context, p *party, bearer string) (backing, error) {
	if p.matcher == nil {
		return backing{}, s.denied(ctx, "identity")
	}
	if p.identity.Relationship.AWS != nil {
		act, err := s.acceptAWS(ctx, p, bearer)
		return backing{act: act}, err
	}
	tok, err := parse(bearer)
	if err != nil {
		return backing{}, err
	}
	c := credential(tok)
	if !p.matcher.AcceptsIssuer(c.Issuer) {
		return backing{}, s.denied(ctx, "iss")
	}
	out := backing{act: &resource.Upstream{Issuer: c.Issuer, Subject: c.Subject, Audience: c.Audience}}
	switch match := p.identity.Relationship.ClaimMatch; {
	case match == nil:
		out.act.Issuer = "" // it did not vouch: the identity's own keys did
		err = s.verify(ctx, p, tok)
	case tok.Issuer == s.issuer.Address():
		err = s.chain(ctx, match, bearer, &out)
	default:
		err = s.verify(ctx, p, tok)
	}
	if err != nil {
		return backing{}, err
	}
	if err := s.timely(tok); err != nil {
		return backing{}, err
	}
	if claim := p.matcher.Mismatch(c); claim != "" {
		return backing{}, s.denied(ctx, claim)
	}
	return out, nil
}

// maxChain is how many identities of ours one token can be assumed through.
const maxChain = 8

// chain accepts one of our own tokens for another identity. The identity must
// name our issuer and its subject exactly: what somebody may become is followed
// by these (authz.RequireBecome), and a pattern cannot be. What the token depends
// on, the new one does too.
func (s *Service) chain(ctx context.Context, match *resource.ClaimMatch, bearer string, out *backing) error {
	switch {
	case match.Issuer == "":
		return s.denied(ctx, "iss")
	case match.Subject == "":
		return s.denied(ctx, "sub")
	}
	caller, err := s.own(ctx, bearer)
	if err != nil {
		return err
	}
	if !caller.Narrowing().IsZero() { // it was made to do less than its identity may
		return refused("", "a token that is narrowed cannot stand for another identity")
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

// credential is what a token says.
func credential(tok *trust.Token) resource.Credential {
	return resource.Credential{Issuer: tok.Issuer, Subject: tok.Subject, Audience: tok.Audience, Claim: tok.Claim}
}

// verify checks the signature of a token of others whose issuer p trusts.
func (s *Service) verify(ctx context.Context, p *party, tok *trust.Token) error {
	var err error
	switch {
	case p.identity.Relationship.StaticKeysExpired(s.now()):
		return s.denied(ctx, "key")
	case p.identity.Relationship.StaticKeys != nil:
		err = p.keys.Verify(tok)
	default:
		err = s.trust.Verify(ctx, p.asker, tok)
	}
	var away *trust.Unreachable
	switch {
	case errors.Is(err, trust.ErrUnknownKey):
		return refused("kid", "the token is signed with a key that its issuer does not have")
	case errors.Is(err, trust.ErrSignature):
		return refused("signature", "the signature of the token is wrong")
	case errors.As(err, &away):
		return &fault.Error{Code: fault.Unavailable, Message: "Unavailable: the keys of the token's issuer cannot be had now", Cause: err}
	}
	return err
}

// timely checks that a token is good now.
func (s *Service) timely(tok *trust.Token) error {
	now := s.now()
	switch {
	case !now.Before(tok.Expiry):
		return refused("exp", "the token has expired")
	case now.Add(leeway).Before(tok.NotUntil):
		return refused("nbf", "the token is not valid yet")
	case now.Add(leeway).Before(tok.Issued):
		return refused("iat", "the token is from the future")
	}
	return nil
}

// denied is the error of a credential that does not stand for the identity. It
// names the claim and nothing of what is expected.
func (s *Service) denied(ctx context.Context, claim string) error {
	return &fault.Error{
		Code:     fault.PermissionDenied,
		Message:  "Permission denied: invalid \"" + claim + "\" (request " + resource.ActorFrom(ctx).RequestID + ")",
		Metadata: map[string]string{"claim": claim},
	}
}

// noteSeen notes that an identity was assumed, at most once a minute.
func (s *Service) noteSeen(ctx context.Context, p *party) {
	now := s.now()
	if !p.due(now) {
		return
	}
	if err := s.store.Seen(ctx, p.identity.UID, now); err != nil {
		s.log.WarnContext(ctx, "the last use of an identity was not noted", "identity", p.identity.UID, "err", err)
	}
}

// viaProvider returns a token of the person that an identity provider's token is
// about.
func (s *Service) viaProvider(ctx context.Context, uid resource.UID, bearer string, claims token.Claims) (Token, error) {
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
	subject, err := s.vouched(ctx, idp, tok, bearer)
	if err != nil {
		return Token{}, err
	}
	person, err := s.store.Person(ctx, idp.Realm, subject)
	if errors.Is(err, fault.NotFound) {
		return Token{}, fault.New(fault.NotFound, "Not found: this person has not been registered; sign in with a browser or an invite first")
	}
	if err != nil {
		return Token{}, err
	}
	if known, _, err := s.party(ctx, person.UID); err == nil {
		s.noteSeen(ctx, known)
	}
	claims.Subject, claims.Act = person.UID, &resource.Upstream{Issuer: tok.Issuer, Subject: tok.Subject, Audience: tok.Audience}
	claims.Voucher, claims.Email, claims.EmailVerified = idp.Voucher(), person.Email, person.Email != "" && idp.Trusted
	return s.mint(ctx, claims, time.Time{})
}

// vouched returns the subject by which a provider knows the person that a token is
// about. It returns fault.PermissionDenied if the token is not the provider's: of
// its issuer, and for its client.
func (s *Service) vouched(ctx context.Context, idp resource.IdentityProvider, tok *trust.Token, bearer string) (string, error) {
	believes := resource.Identity{Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{
		Issuer: idp.OIDC.Issuer, Subject: tok.Subject, Audience: idp.OIDC.ClientID,
	}}}
	if tok.Issuer == s.issuer.Address() { // a provider is somebody else
		return "", s.denied(ctx, "iss")
	}
	p := newParty(believes, s.audiences)
	p.asker = trust.Asker{Tenant: string(idp.UID.Root()), Reason: trust.Named}
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

// again returns a token like the one of ours that is presented, for another
// audience or narrower. It does not live longer, so that it cannot be kept alive
// by asking again and again.
func (s *Service) again(ctx context.Context, bearer string, tok *trust.Token, claims token.Claims) (Token, error) {
	caller, err := s.own(ctx, bearer)
	if err != nil {
		return Token{}, err
	}
	claims.Subject, claims.Act, claims.Session, claims.Voucher = caller.Identity, caller.Act, caller.Session, caller.Voucher
	claims.Email, claims.EmailVerified = caller.Email, caller.EmailVerified
	if err := narrow(&claims, caller.Narrowing()); err != nil {
		return Token{}, err
	}
	return s.mint(ctx, claims, tok.Expiry)
}

// narrow leaves of what a token is to be good for what an earlier narrowing
// allows. It returns fault.InvalidArgument for scopes that are outside of it.
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

// own returns whom one of our tokens for the API stands for.
func (s *Service) own(ctx context.Context, bearer string) (authz.Caller, error) {
	return s.issuer.Authenticate(ctx, bearer, s.cfg.BaseURL, s.authz)
}

// within returns the scopes that are asked for, if the token presented has them.
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
