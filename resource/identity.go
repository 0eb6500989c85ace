package resource

import "time"

// An Identity is somebody or something that can act: a person known by an
// issuer and a subject, or a workload known by one relationship.
type Identity struct {
	UID             UID            `json:"uid"`
	Name            string         `json:"name"`
	Description     string         `json:"description,omitempty"`
	Email           string         `json:"email,omitempty"`           // verified
	EmailUnverified string         `json:"emailUnverified,omitempty"` // claimed
	Company         string         `json:"company,omitempty"`
	LastSeenTime    time.Time      `json:"lastSeenTime"` // the last exchange, or the creation
	CreateTime      time.Time      `json:"createTime"`
	UpdateTime      time.Time      `json:"updateTime"`
	Relationship    Relationship   `json:"relationship,omitzero"`
	Metadata        map[string]any `json:"metadata,omitempty"` // what a person told us about themselves
	Realm           string         `json:"realm,omitempty"`    // where a person's subject is unique; "" for workloads
	Provider        UID            `json:"provider,omitempty"` // that vouches for the person; "" if none does
}

// A Relationship says which credentials stand for an identity. Exactly one
// member is set.
type Relationship struct {
	ClaimMatch       *ClaimMatch  `json:"claimMatch,omitempty"`
	StaticKeys       *StaticKeys  `json:"staticKeys,omitempty"`
	AWS              *AWSIdentity `json:"awsIdentity,omitempty"`
	ServicePrincipal int32        `json:"servicePrincipal,omitempty"`
}

// A RelationshipType names the member of a Relationship. Its numbers are the
// wire's; 0 is none.
type RelationshipType int32

// The types of relationship.
const (
	RelationshipNone RelationshipType = iota
	RelationshipClaimMatch
	RelationshipStaticKeys
	RelationshipAWS
	RelationshipServicePrincipal
)

// A ClaimMatch accepts tokens by their claims. Of each pair one member is set;
// a pattern is RE2 and must match the whole value.
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

// StaticKeys accept tokens signed by keys that are given, not discovered.
type StaticKeys struct {
	Issuer         string    `json:"issuer"`
	Subject        string    `json:"subject"`
	IssuerKeys     string    `json:"issuerKeys"` // a JSON Web Key Set, public keys only
	ExpirationTime time.Time `json:"expirationTime"`
	Audiences      []string  `json:"audiences,omitempty"`
}

// An AWSIdentity accepts what an AWS account says of its caller.
type AWSIdentity struct {
	Account       string `json:"awsAccount"`
	ARN           string `json:"arn,omitempty"`
	ARNPattern    string `json:"arnPattern,omitempty"`
	UserID        string `json:"userId,omitempty"`
	UserIDPattern string `json:"userIdPattern,omitempty"`
}

// Type returns which member is set.
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

// Issuer is the exact issuer of the claim match, or "".
func (r Relationship) Issuer() string {
	if r.ClaimMatch == nil {
		return ""
	}
	return r.ClaimMatch.Issuer
}

// Subject is the exact subject of the claim match, or "".
func (r Relationship) Subject() string {
	if r.ClaimMatch == nil {
		return ""
	}
	return r.ClaimMatch.Subject
}

// UserUID returns the UID of the person that a realm knows by subject. It is
// derived, so that a binding can be made before the first sign-in. A realm is the
// address of an issuer, or the realm of an identity provider.
func UserUID(realm, subject string) UID {
	if realm == "accounts.google.com" { // the one issuer that leaves its scheme out
		realm = "https://" + realm
	}
	return DerivedUID("identity", realm, subject)
}

// OfInstallation reports whether the issuer alone vouches for a person: no
// organization's provider does. The operator named them, or trusts the provider.
func (i Identity) OfInstallation() bool {
	return i.UID.IsRoot() && i.Realm == i.Relationship.Issuer()
}

// staticKeyLife is the longest a static key may be trusted.
const staticKeyLife = 365 * 24 * time.Hour

// Complete fills in what a relationship leaves to the service at time now.
func (i *Identity) Complete(now time.Time) {
	if k := i.Relationship.StaticKeys; k != nil && k.ExpirationTime.IsZero() {
		k.ExpirationTime = now.Add(staticKeyLife).UTC().Truncate(time.Millisecond)
	}
}
