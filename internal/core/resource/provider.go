package resource

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An IdentityProvider lets the people of an organization sign in with their existing accounts.
type IdentityProvider struct {
	UID            UID       `json:"uid"`
	Name           string    `json:"name"`
	Description    string    `json:"description,omitempty"`
	DefaultRole    UID       `json:"defaultRole"` // role of a person who signs in for the first time
	OIDC           *OIDC     `json:"oidc,omitempty"`
	Disabled       bool      `json:"disabled,omitempty"`       // it can be tested, but not used to sign in
	Trusted        bool      `json:"trusted,omitempty"`        // the operator trusts it for all organizations
	SharedRedirect bool      `json:"sharedRedirect,omitempty"` // uses the redirect address that providers share
	DirectoryRoles bool      `json:"directoryRoles,omitempty"` // mappings apply to teams of the directory, not to claims
	Realm          string    `json:"-"`                        // namespace of the subjects of its people
	Epoch          int64     `json:"-"`                        // how often the fields in SameBeliefs have changed
	CreateTime     time.Time `json:"createTime"`
	UpdateTime     time.Time `json:"updateTime"`
}

// OIDC configures the service as a client of an OpenID provider.
type OIDC struct {
	Issuer           string          `json:"issuer"`
	ClientID         string          `json:"clientId"`
	ClientSecret     Secret          `json:"clientSecret,omitzero"`
	AdditionalScopes []string        `json:"additionalScopes,omitempty"`
	GroupsClaim      string          `json:"groupsClaim,omitempty"`
	CorrelationRule  CorrelationRule `json:"correlationRule,omitempty"`
	PKCE             bool            `json:"pkceEnabled,omitempty"`
}

// A CorrelationRule determines which claim identifies a person. Its values are the same as
// in the API. It cannot be changed once it is set.
type CorrelationRule int32

// These are the correlation rules.
const (
	CorrelationUnspecified CorrelationRule = iota // the claim sub
	CorrelationSubject
	CorrelationObjectID
)

// ByObjectID reports whether people are identified by the claim oid and not by sub.
func (o OIDC) ByObjectID() bool { return o.CorrelationRule == CorrelationObjectID }

// SameBeliefs reports whether a token identifies the same person with both clients.
func (o OIDC) SameBeliefs(p OIDC) bool {
	return o.Issuer == p.Issuer && o.ClientID == p.ClientID && o.ByObjectID() == p.ByObjectID()
}

// OwnRealm returns the realm for the people that only this provider authenticates, in its current
// epoch.
func (p IdentityProvider) OwnRealm() string {
	if p.Epoch == 0 {
		return string(p.UID)
	}
	return fmt.Sprintf("%s#%d", p.UID, p.Epoch)
}

// IssuerRealm returns the realm for the people that the issuer authenticates for the whole
// installation. It is the realm of the provider's people if the operator trusts the provider. A
// sub and an oid with the same value are different people.
func (p IdentityProvider) IssuerRealm() string {
	if p.OIDC.ByObjectID() {
		return p.OIDC.Issuer + " oid"
	}
	return p.OIDC.Issuer
}

// A Voucher is the identity provider that has authenticated a person, with its epoch. It is
// "" if no provider has: the person has an account, or belongs to the installation.
type Voucher string

// Voucher returns the voucher for the provider's current epoch.
func (p IdentityProvider) Voucher() Voucher { return NewVoucher(p.UID, p.Epoch) }

// NewVoucher returns the voucher for an epoch of a provider, or "" if provider is "".
func NewVoucher(provider UID, epoch int64) Voucher {
	if provider == "" {
		return ""
	}
	return Voucher(fmt.Sprintf("%s#%d", provider, epoch))
}

// Provider returns the provider of the voucher, or "" if the voucher is empty.
func (v Voucher) Provider() UID {
	provider, _, _ := strings.Cut(string(v), "#")
	return UID(provider)
}

// Epoch returns the epoch of the voucher, or 0 if the voucher is malformed.
func (v Voucher) Epoch() int64 {
	_, epoch, _ := strings.Cut(string(v), "#")
	n, _ := strconv.ParseInt(epoch, 10, 64)
	return n
}

// VoucherSubject returns the subject for the revocation of all tokens and sessions that
// have a voucher. Other subjects are the UIDs of identities.
func VoucherSubject(v Voucher) UID { return UID("provider:" + string(v)) }

// DisabledSubject returns the subject of a revocation that refuses the exchanges which began before a provider was
// disabled. Tokens that were returned before stay valid.
func DisabledSubject(provider UID) UID { return "disabled:" + provider }

const maxScopes = 32

var scopePattern = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,256}$`) // RFC 6749, 3.3

// Validate reports every field that a caller must fix.
func (p IdentityProvider) Validate() error {
	var bad Problems
	bad.Name(p.Name)
	bad.Description(p.Description)
	bad.RequiredUID("default_role", p.DefaultRole)
	if p.OIDC == nil {
		bad.Add("oidc", "is required")
	} else {
		p.OIDC.validate(&bad)
	}
	return bad.Err()
}

func (o OIDC) validate(p *Problems) {
	p.Issuer("oidc.issuer", o.Issuer)
	p.Text("oidc.client_id", o.ClientID)
	p.Required("oidc.client_id", o.ClientID)
	p.Text("oidc.client_secret", o.ClientSecret.Plain)
	if o.ClientSecret.Empty() && !o.PKCE {
		p.Add("oidc.client_secret", "a provider needs a client secret, PKCE, or both")
	}
	p.AtMost("oidc.additional_scopes", len(o.AdditionalScopes), maxScopes, "scopes")
	if slices.ContainsFunc(o.AdditionalScopes, func(s string) bool { return !scopePattern.MatchString(s) }) {
		p.Add("oidc.additional_scopes",
			"a scope is 1 to 256 printable characters without spaces, quotes and backslashes")
	}
	p.Text("oidc.groups_claim", o.GroupsClaim)
	Within(p, "oidc.correlation_rule", o.CorrelationRule, CorrelationUnspecified, CorrelationObjectID,
		"is not a correlation rule")
}

// A Secret is never part of a response, an event or a log. Plain is the text that a caller
// sent, and Sealed is the encrypted form that is stored.
type Secret struct {
	Plain  string `json:"-"`
	Sealed []byte `json:"-"`
}

// Empty reports whether there is no secret.
func (s Secret) Empty() bool { return s.Plain == "" && len(s.Sealed) == 0 }

// IsZero always returns true, so that JSON with the option omitzero never contains the secret.
func (s Secret) IsZero() bool { return true }

// String hides the secret from logs.
func (s Secret) String() string { return "(secret)" }
