package resource

import (
	"strings"
	"time"
)

// An Identity is a person, who is identified by an issuer and a subject, or a workload, which
// is identified by a relationship.
type Identity struct {
	UID  UID    `json:"uid"`
	Name string `json:"name"`
	// name that the person entered or that came from the provider
	DisplayName     string         `json:"displayName,omitempty"`
	Description     string         `json:"description,omitempty"`
	Email           string         `json:"email,omitempty"`           // verified address
	EmailUnverified string         `json:"emailUnverified,omitempty"` // address that the provider has not verified
	Company         string         `json:"company,omitempty"`
	LastSeenTime    time.Time      `json:"lastSeenTime"` // time of the last exchange, or of the creation
	CreateTime      time.Time      `json:"createTime"`
	UpdateTime      time.Time      `json:"updateTime"`
	Relationship    Relationship   `json:"relationship,omitzero"`
	Metadata        map[string]any `json:"metadata,omitempty"` // data that a person entered
	// Realm is the namespace in which a person's subject is unique; "" for workloads.
	Realm    string `json:"realm,omitempty"`
	Provider UID    `json:"provider,omitempty"` // provider that authenticates the person; "" if none does
	// Maker is the person who created a pull token, and therefore had its password; "" for other identities.
	Maker UID `json:"maker,omitempty"`
}

// pullTokens is the suffix of the issuer of every pull token.
const pullTokens = "/pull-tokens"

// IsPullToken reports whether the identity is a pull token: a password with which programs pull images.
func (i Identity) IsPullToken() bool {
	k := i.Relationship.StaticKeys
	return k != nil && strings.HasSuffix(k.Issuer, pullTokens)
}

// A Relationship determines with which credentials callers can assume an identity. Exactly one
// field is set.
type Relationship struct {
	ClaimMatch       *ClaimMatch  `json:"claimMatch,omitempty"`
	StaticKeys       *StaticKeys  `json:"staticKeys,omitempty"`
	AWS              *AWSIdentity `json:"awsIdentity,omitempty"`
	ServicePrincipal int32        `json:"servicePrincipal,omitempty"`
}

// A RelationshipType is the field of a Relationship that is set. Its values are the same as
// in the API.
type RelationshipType int32

// These are the types of relationships.
const (
	RelationshipNone RelationshipType = iota
	RelationshipClaimMatch
	RelationshipStaticKeys
	RelationshipAWS
	RelationshipServicePrincipal
)

// A ClaimMatch accepts tokens by their claims. In each pair of a value and a pattern, exactly
// one is set. A pattern is an RE2 expression and must match the whole value.
type ClaimMatch struct {
	Issuer          string            `json:"issuer,omitempty"`
	IssuerPattern   string            `json:"issuerPattern,omitempty"`
	Subject         string            `json:"subject,omitempty"`
	SubjectPattern  string            `json:"subjectPattern,omitempty"`
	Audience        string            `json:"audience,omitempty"`
	AudiencePattern string            `json:"audiencePattern,omitempty"`
	Claims          map[string]string `json:"claims,omitempty"`
	ClaimPatterns   map[string]string `json:"claimPatterns,omitempty"`
}

// StaticKeys accepts tokens signed with the given keys.
type StaticKeys struct {
	Issuer         string    `json:"issuer"`
	Subject        string    `json:"subject"`
	IssuerKeys     string    `json:"issuerKeys"` // a JSON Web Key Set, public keys only
	ExpirationTime time.Time `json:"expirationTime"`
	Audiences      []string  `json:"audiences,omitempty"`
}

// An AWSIdentity accepts callers of an AWS account.
type AWSIdentity struct {
	Account       string `json:"awsAccount"`
	ARN           string `json:"arn,omitempty"`
	ARNPattern    string `json:"arnPattern,omitempty"`
	UserID        string `json:"userId,omitempty"`
	UserIDPattern string `json:"userIdPattern,omitempty"`
}

// Type returns the type of the field that is set.
func (r Relationship) Type() RelationshipType {
	switch {
	case r.ClaimMatch != nil:
		return RelationshipClaimMatch
	case r.StaticKeys != nil:
		return RelationshipStaticKeys
	case r.AWS != nil:
		return RelationshipAWS
	case r.ServicePrincipal != 0:
		return RelationshipServicePrincipal
	}
	return RelationshipNone
}

// Issuer returns the exact issuer in the claim match, or "" if there is none.
func (r Relationship) Issuer() string {
	if r.ClaimMatch == nil {
		return ""
	}
	return r.ClaimMatch.Issuer
}

// Subject returns the exact subject in the claim match, or "" if there is none.
func (r Relationship) Subject() string {
	if r.ClaimMatch == nil {
		return ""
	}
	return r.ClaimMatch.Subject
}

// UserUID returns the UID of the person with that subject in a realm. The realm is the address of an issuer or
// the realm of an identity provider. The UID is derived from both, so that a binding can be created before the
// person's first sign-in.
func UserUID(realm, subject string) UID {
	if realm == "accounts.google.com" { // the only issuer without a scheme
		realm = "https://" + realm
	}
	return DerivedUID("identity", realm, subject)
}

// OfInstallation reports whether the issuer alone authenticates a person, and not an
// organization's provider. That is so if the operator named the person, or trusts the
// provider.
func (i Identity) OfInstallation() bool {
	return i.UID.IsRoot() && i.Realm == i.Relationship.Issuer()
}

// staticKeyLife is how long a static key may be trusted.
const staticKeyLife = 365 * 24 * time.Hour

// Complete sets the defaults in the relationship of the identity.
func (i *Identity) Complete(now time.Time) {
	if k := i.Relationship.StaticKeys; k != nil && k.ExpirationTime.IsZero() {
		k.ExpirationTime = now.Add(staticKeyLife).UTC().Truncate(time.Millisecond)
	}
}
