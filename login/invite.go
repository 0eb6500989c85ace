package login

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// readInvite decodes the code of an invite, which package iam encodes.
func readInvite(code string) (p resource.Presented, _ error) {
	bad := fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	if len(code) > 1024 {
		return p, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(code))
	if err != nil {
		return p, bad
	}
	var c struct {
		Invite string `json:"invite"`
		Secret []byte `json:"secret"`
	}
	if json.Unmarshal(b, &c) != nil {
		return p, bad
	}
	if p.UID, err = resource.ParseUID("invite", c.Invite); err != nil {
		return p, bad
	}
	sum := sha256.Sum256(c.Secret)
	p.Digest = sum[:]
	return p, nil
}

// joinGroup returns the group that somebody signs in for: that of their
// invite, or the organization they chose. The providers of that group and of
// those above it can be used.
func (f *flow) joinGroup() resource.UID {
	if p, err := readInvite(f.Invite); err == nil && p.UID.Root() == f.Organization {
		return p.UID.Parent()
	}
	return f.Organization
}
