package client

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Claims are the claims of a token that the server issued. They are not verified here,
// because the server verifies them.
type Claims struct {
	Issuer   string    `json:"iss"`
	Subject  string    `json:"sub"` // UID of the identity
	Audience Audiences `json:"aud"`
	Expiry   int64     `json:"exp"` // expiry time, in seconds since 1970
	Email    string    `json:"email"`
	Voucher  string    `json:"idp"` // identity provider that authenticated the person, and its epoch
	Actor    struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	} `json:"act"` // issuer and subject of the original proof
}

// Audiences is a list of audiences. In JSON it is a list or a single string.
type Audiences []string

// UnmarshalJSON reads either form.
func (a *Audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = Audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// ReadClaims reads the claims of a token and reports whether it succeeded.
func ReadClaims(token string) (c Claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return Claims{}, false
	}
	return c, true
}

// Expires returns the expiry of the token.
func (c Claims) Expires() time.Time { return time.Unix(c.Expiry, 0).UTC() }

// tokenMargin is the validity that a token must have left, because a call takes time and
// clocks differ.
const tokenMargin = time.Minute

// Serves reports whether token is for the audience and stays valid long enough to be
// sent.
func Serves(token, audience string, now time.Time) bool {
	c, ok := ReadClaims(token)
	return ok && slices.Contains(c.Audience, audience) && c.Expires().Sub(now) > tokenMargin
}

// IsToken reports whether text can be sent as a token: it is not empty and contains only
// printable ASCII characters other than spaces.
func IsToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
