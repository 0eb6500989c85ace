package main

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// claims are what this program reads in a token of the server's. It does not
// verify them: the server does.
type claims struct {
	Issuer   string    `json:"iss"`
	Subject  string    `json:"sub"`
	Audience audiences `json:"aud"`
	Expiry   int64     `json:"exp"`
	Email    string    `json:"email"`
	Actor    struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	} `json:"act"`
}

// audiences are a list in JSON, or one text.
type audiences []string

// UnmarshalJSON reads either form.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// claimsOf reads a token's claims; false stands for no token.
func claimsOf(token string) (c claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return claims{}, false
	}
	return c, true
}

func (c claims) expires() time.Time { return time.Unix(c.Expiry, 0).UTC() }

// tokenMargin is how long a token must still be good to be used: a call takes a
// while, and clocks differ.
const tokenMargin = time.Minute

// serves tells whether a token is for an audience, and still will be when the
// server reads it.
func serves(token, audience string, now time.Time) bool {
	c, ok := claimsOf(token)
	return ok && slices.Contains(c.Audience, audience) && c.expires().Sub(now) > tokenMargin
}

// isToken tells whether a text can be sent as a token.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
