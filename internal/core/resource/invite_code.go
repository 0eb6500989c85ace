package resource

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// The code of an invite is the UID of the invite and a secret. It begins with a byte for the form of the code, so that
// it never begins like the longer codes of version 0.1, which are JSON.
const (
	inviteForm   = 1
	inviteSecret = 16 // length of the secret in bytes
	maxInvite    = 1024
)

// NewInviteCode returns the code of an invite with a secret.
func NewInviteCode(invite UID, secret [inviteSecret]byte) string {
	digits, err := hex.DecodeString(strings.ReplaceAll(string(invite), "/", ""))
	if err != nil {
		panic(err) // the UID is not well-formed, which is a bug
	}
	code := append([]byte{inviteForm}, digits...)
	return base64.RawURLEncoding.EncodeToString(append(code, secret[:]...))
}

// A longInviteCode is the content of a code of version 0.1, in JSON.
type longInviteCode struct {
	Invite string `json:"invite"`
	KeyID  string `json:"keyId"`
	Secret []byte `json:"secret"`
}

// LongInviteCode returns the code of an invite in the form that version 0.1 can read.
func LongInviteCode(invite UID, keyID string, secret [inviteSecret]byte) string {
	b, err := json.Marshal(longInviteCode{string(invite), keyID, secret[:]})
	if err != nil {
		panic(err) // texts and bytes can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ReadInviteCode returns the invite that a code presents. ok is false if the code is malformed.
func ReadInviteCode(code string) (p Presented, ok bool) {
	if len(code) > maxInvite {
		return p, false
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(code))
	if err != nil {
		return p, false
	}
	uid, secret := readShortInvite(b)
	if secret == nil {
		var c longInviteCode
		if json.Unmarshal(b, &c) != nil {
			return p, false
		}
		uid, secret = c.Invite, c.Secret
	}
	if p.UID, err = ParseUID("invite", uid); err != nil {
		return p, false
	}
	sum := sha256.Sum256(secret)
	p.Digest = sum[:]
	return p, true
}

// readShortInvite returns the parts of a code that NewInviteCode has made. secret is nil if b is no such code.
func readShortInvite(b []byte) (uid string, secret []byte) {
	const root, segment = rootDigits / 2, segmentDigits / 2
	n := len(b) - 1 - inviteSecret - root // length of the segments after the root
	if n < 0 || n%segment != 0 || b[0] != inviteForm {
		return "", nil
	}
	digits := hex.EncodeToString(b[1 : len(b)-inviteSecret])
	uid, digits = digits[:rootDigits], digits[rootDigits:]
	for ; digits != ""; digits = digits[segmentDigits:] {
		uid += "/" + digits[:segmentDigits]
	}
	return uid, b[len(b)-inviteSecret:]
}
