package client

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Claims are the claims of a token of the server. They are not verified, because the
// server does that.
type Claims struct {
	Issuer   string    `json:"iss"`
	Subject  string    `json:"sub"` // uid of the identity
	Audience Audiences `json:"aud"`
	Expiry   int64     `json:"exp"` // seconds since 1970
	Email    string    `json:"email"`
	Voucher  string    `json:"idp"` // the identity provider that vouched for a person, and its epoch
	Actor    struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	} `json:"act"` // who the identity was proven to be elsewhere
}

// Audiences are a list in JSON, or one text.
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

// ReadClaims reads the claims of a token, and reports whether it could.
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

// Expires returns when the token expires.
func (c Claims) Expires() time.Time { return time.Unix(c.Expiry, 0).UTC() }

// tokenMargin is how long a token must still be valid, because a call takes time and
// clocks differ.
const tokenMargin = time.Minute

// Serves reports whether a token is for an audience, and is valid for long enough to
// be sent.
func Serves(token, audience string, now time.Time) bool {
	c, ok := ReadClaims(token)
	return ok && slices.Contains(c.Audience, audience) && c.Expires().Sub(now) > tokenMargin
}

// IsToken reports whether a text can be sent as a token.
func IsToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
