package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Signer is somebody whose signatures of images count: whoever has the private key of a
// public one, or an identity that an authority has given a certificate. It is in a group.
// The signers of the nearest group that has any count, for what is in that group and below.
//
// A signer never changes. Whoever wants another one adds it, and deletes the old one.
type Signer struct {
	UID            resource.UID `json:"uid"`
	Name           string       `json:"name"`
	Description    string       `json:"description,omitempty"`
	Key            string       `json:"key,omitempty"`            // in PEM; otherwise an identity
	Issuer         string       `json:"issuer,omitempty"`         // of the identity
	Subject        string       `json:"subject,omitempty"`        // exactly,
	SubjectPattern string       `json:"subjectPattern,omitempty"` // or as a pattern
	Root           string       `json:"root,omitempty"`           // trusted_root.json; "" is that of the server
	CreateTime     time.Time    `json:"createTime"`
	UpdateTime     time.Time    `json:"updateTime"`
}

// MaxSigners is how many signers one group has at most: each may have to be compared with
// each signature of an image.
const MaxSigners = 20

const (
	maxSignerKey  = 8 << 10
	maxSignerRoot = 64 << 10
)

// Validate reports every field a caller must fix, except what only those can tell who read
// the key and the root.
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

// Home returns the group that the signer is in.
func (s Signer) Home() resource.UID { return s.UID.Parent() }

// Is reports whether the signer is an identity: the subject of a token of an issuer.
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
