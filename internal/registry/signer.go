package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Signer is a trusted signer of images: the holder of the private key to a public key, or an
// identity to which an authority issued a certificate. It belongs to a group. For an image, the
// signers of the nearest group with signers are trusted.
//
// A signer cannot be changed. To replace one, add a new signer and delete the old one.
type Signer struct {
	UID            resource.UID `json:"uid"`
	Name           string       `json:"name"`
	Description    string       `json:"description,omitempty"`
	Key            string       `json:"key,omitempty"`            // public key in PEM; "" for an identity
	Issuer         string       `json:"issuer,omitempty"`         // issuer of the identity
	Subject        string       `json:"subject,omitempty"`        // exact subject of the identity
	SubjectPattern string       `json:"subjectPattern,omitempty"` // pattern of subjects, instead of Subject
	Root           string       `json:"root,omitempty"`           // a trusted_root.json; "" means the server's root
	CreateTime     time.Time    `json:"createTime"`
	UpdateTime     time.Time    `json:"updateTime"`
}

// MaxSigners is the largest number of signers of one group. It is limited because every signer is
// compared with every signature of an image.
const MaxSigners = 20

const (
	maxSignerKey  = 8 << 10
	maxSignerRoot = 64 << 10
)

// Validate reports every field a caller must fix. It does not parse the key and the root.
func (s Signer) Validate() error {
	var p problems
	p.Name(s.Name)
	p.Description(s.Description)
	p.LongText("key", s.Key, maxSignerKey)
	p.LongText("trusted_root", s.Root, maxSignerRoot)
	if s.Key != "" {
		if s.Issuer != "" || s.Subject != "" || s.SubjectPattern != "" || s.Root != "" {
			p.Add("key", "a signer has a key or an identity, but not both")
		}
		return p.Err()
	}
	if s.Issuer == "" {
		p.Add("key", "a signer has a key, or an issuer and a subject")
		return p.Err()
	}
	p.Issuer("issuer", s.Issuer)
	p.Either("subject", s.Subject, s.SubjectPattern, true)
	return p.Err()
}

// Home returns the group that the signer belongs to.
func (s Signer) Home() resource.UID { return s.UID.Parent() }

// Is reports whether the signer is an identity that has this issuer and subject. It is false for a signer with a key.
func (s Signer) Is(issuer, subject string) bool {
	if s.Key != "" || issuer == "" || s.Issuer != issuer {
		return false
	}
	if s.SubjectPattern == "" {
		return s.Subject != "" && s.Subject == subject
	}
	if len(subject) > resource.MaxMatched {
		return false
	}
	re, err := resource.Anchored(s.SubjectPattern)
	return err == nil && re.MatchString(subject)
}
