package resource

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An IdentityProvider lets the people of an organization sign in with the
// accounts they have already.
type IdentityProvider struct {
	UID         UID       `json:"uid"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	DefaultRole UID       `json:"defaultRole"` // what somebody gets who signs in for the first time
	OIDC        *OIDC     `json:"oidc,omitempty"`
	Disabled    bool      `json:"disabled,omitempty"` // nobody can sign in with it yet, but for trying it
	Trusted     bool      `json:"trusted,omitempty"`  // by the operator, to speak for its issuer to all organizations
	Realm       string    `json:"-"`                  // the namespace of its people's subjects
	Epoch       int64     `json:"-"`                  // how often what it believes has changed
	CreateTime  time.Time `json:"createTime"`
	UpdateTime  time.Time `json:"updateTime"`
}

// OIDC is how the service is a client of an OpenID provider.
type OIDC struct {
	Issuer           string          `json:"issuer"`
	ClientID         string          `json:"clientId"`
	ClientSecret     Secret          `json:"clientSecret,omitzero"`
	AdditionalScopes []string        `json:"additionalScopes,omitempty"`
	GroupsClaim      string          `json:"groupsClaim,omitempty"`
	CorrelationRule  CorrelationRule `json:"correlationRule,omitempty"`
	PKCE             bool            `json:"pkceEnabled,omitempty"`
}

// A CorrelationRule says which claim names a person. Its numbers are the
// wire's; it is fixed with the first value it gets.
type CorrelationRule int32

// The rules there are.
const (
	CorrelationUnspecified CorrelationRule = iota // by the subject
	CorrelationSubject
	CorrelationObjectID
)

// ByObjectID reports whether people are known by their oid and not by their sub.
func (o OIDC) ByObjectID() bool { return o.CorrelationRule == CorrelationObjectID }

// SameBeliefs reports whether two clients take the same tokens to be about the
// same people.
func (o OIDC) SameBeliefs(p OIDC) bool {
	return o.Issuer == p.Issuer && o.ClientID == p.ClientID && o.ByObjectID() == p.ByObjectID()
}

// OwnRealm returns the realm of the people that the provider alone vouches for,
// from its present epoch on.
func (p IdentityProvider) OwnRealm() string {
	if p.Epoch == 0 {
		return string(p.UID)
	}
	return fmt.Sprintf("%s#%d", p.UID, p.Epoch)
}

// IssuerRealm returns the realm of the installation's people that its issuer
// knows. It is that of the provider's people if the operator trusts it. A sub
// and an oid that are spelled alike are not the same person.
func (p IdentityProvider) IssuerRealm() string {
	if p.OIDC.ByObjectID() {
		return p.OIDC.Issuer + " oid"
	}
	return p.OIDC.Issuer
}

// A Voucher says which identity provider vouched for somebody, and in which
// epoch. "" says that none did: the person has an account, or is known to the
// installation by their issuer.
type Voucher string

// Voucher returns what the provider's word is called now.
func (p IdentityProvider) Voucher() Voucher { return NewVoucher(p.UID, p.Epoch) }

// NewVoucher returns the voucher of a provider's epoch, or "" for no provider.
func NewVoucher(provider UID, epoch int64) Voucher {
	if provider == "" {
		return ""
	}
	return Voucher(fmt.Sprintf("%s#%d", provider, epoch))
}

// Provider returns the provider that vouched, or "".
func (v Voucher) Provider() UID {
	provider, _, _ := strings.Cut(string(v), "#")
	return UID(provider)
}

// Epoch returns the epoch in which it did.
func (v Voucher) Epoch() int64 {
	_, epoch, _ := strings.Cut(string(v), "#")
	n, _ := strconv.ParseInt(epoch, 10, 64) // what is malformed is epoch 0
	return n
}

// VoucherSubject is what a voucher is called among the subjects of revocations,
// beside the UIDs of identities.
func VoucherSubject(v Voucher) UID { return UID("provider:" + string(v)) }

const maxScopes = 32

var scopePattern = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,256}$`) // RFC 6749, 3.3

// Validate reports every field a caller must fix.
func (p IdentityProvider) Validate() error {
	var bad problems
	bad.name(p.Name)
	bad.description(p.Description)
	if p.DefaultRole == "" {
		bad.add("default_role", "is required")
	}
	bad.uid("default_role", p.DefaultRole)
	if p.OIDC == nil {
		bad.add("oidc", "is required")
	} else {
		p.OIDC.validate(&bad)
	}
	return bad.err()
}

func (o OIDC) validate(p *problems) {
	p.issuer("oidc.issuer", o.Issuer)
	p.text("oidc.client_id", o.ClientID)
	if o.ClientID == "" {
		p.add("oidc.client_id", "is required")
	}
	p.text("oidc.client_secret", o.ClientSecret.Plain)
	if o.ClientSecret.Empty() && !o.PKCE {
		p.add("oidc.client_secret", "a provider needs a client secret, PKCE, or both")
	}
	if len(o.AdditionalScopes) > maxScopes {
		p.add("oidc.additional_scopes", "must have at most 32 scopes")
	}
	if slices.ContainsFunc(o.AdditionalScopes, func(s string) bool { return !scopePattern.MatchString(s) }) {
		p.add("oidc.additional_scopes", "a scope is 1 to 256 printable characters without spaces, quotes and backslashes")
	}
	p.text("oidc.groups_claim", o.GroupsClaim)
	if o.CorrelationRule < CorrelationUnspecified || o.CorrelationRule > CorrelationObjectID {
		p.add("oidc.correlation_rule", "is not a correlation rule")
	}
}

// A Secret goes in and never comes out: not into answers, events or logs. Plain
// is what a caller sent; Sealed is what is kept.
type Secret struct {
	Plain  string `json:"-"`
	Sealed []byte `json:"-"`
}

// Empty tells whether there is no secret.
func (s Secret) Empty() bool { return s.Plain == "" && len(s.Sealed) == 0 }

// IsZero leaves the secret out of JSON, whatever it holds.
func (s Secret) IsZero() bool { return true }

// String hides the secret from logs.
func (s Secret) String() string { return "(secret)" }
