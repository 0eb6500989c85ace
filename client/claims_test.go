package client_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/client"
)

func unsigned(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestServes(t *testing.T) {
	now := time.Unix(1000, 0)
	tests := map[string]struct {
		token string
		want  bool
	}{
		"good":                   {unsigned(`{"aud":"a","exp":2000}`), true},
		"one of its audiences":   {unsigned(`{"aud":["b","a"],"exp":2000}`), true},
		"for somebody else":      {unsigned(`{"aud":"b","exp":2000}`), false},
		"nearly expired":         {unsigned(`{"aud":"a","exp":1059}`), false},
		"over":                   {unsigned(`{"aud":"a","exp":1}`), false},
		"without an expiry":      {unsigned(`{"aud":"a"}`), false},
		"claims of a wrong type": {unsigned(`{"aud":1,"exp":2000}`), false},
		"two parts":              {"e30.e30", false},
		"no base64":              {"a.b!.c", false},
		"nothing":                {"", false},
		"an impossible expiry":   {unsigned(`{"aud":"a","exp":9223372036854775807}`), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := client.Serves(tt.token, "a", now); got != tt.want {
				t.Errorf("serves = %v, want %v", got, tt.want)
			}
		})
	}
}

func FuzzClaims(f *testing.F) {
	for _, s := range []string{
		"", "a.b.c", unsigned(`{"aud":["a"],"exp":1}`), unsigned(`{"aud":null,"act":{}}`), unsigned(`[]`),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		c, ok := client.ReadClaims(token)
		if !ok && (c.Subject != "" || len(c.Audience) > 0) {
			t.Errorf("claims of a text that is not a token: %+v", c)
		}
		client.Serves(token, "a", time.Unix(0, 0))
	})
}
