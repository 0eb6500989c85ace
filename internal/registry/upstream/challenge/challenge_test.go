package challenge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/upstream/challenge"
)

func TestRealm(t *testing.T) {
	for header, want := range map[string]string{
		`Bearer realm="https://a.example/token",service="a",scope="x"`: "https://a.example/token?scope=s&service=a",
		`bearer service=a,realm=https://a.example/token?x=1`:           "https://a.example/token?scope=s&service=a&x=1",
		`Bearer realm="https://a.example/token"`:                       "https://a.example/token?scope=s",
		`Bearer realm="https://u:p@a.example/token"`:                   "",
		`Bearer realm="/token"`:                                        "",
		`Basic realm="https://a.example/token"`:                        "",
		`Bearer`:                                                       "",
		``:                                                             "",
	} {
		c, got := challenge.Parse(header), ""
		if realm, ok := c.Realm(); ok {
			got = c.Address(realm, "s")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
}

func TestReadToken(t *testing.T) {
	for text, want := range map[string]challenge.Token{
		`{"token":"a","expires_in":300}`:         {Text: "a", Life: 5 * time.Minute},
		`{"access_token":"b"}`:                   {Text: "b", Life: time.Minute},
		`{"token":"a","expires_in":-5}`:          {Text: "a", Life: time.Minute},
		`{"token":"a","expires_in":1e30}`:        {Text: "a", Life: 24 * time.Hour},
		`{"token":""}`:                           {},
		`{"token":"a\r\nX-Evil: 1"}`:             {},
		`<html>`:                                 {},
		`{"token":"` + strings.Repeat("a", 2000): {},
	} {
		got, err := challenge.ReadToken(strings.NewReader(text), 1000)
		if got != want || (err == nil) != (want.Text != "") {
			t.Errorf("%.50s: %+v, %v", text, got, err)
		}
	}
}

// FuzzChallenge checks that no header makes the parser panic or loop.
func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer realm="https://a.example/token",service="a",scope="repository:x:pull"`)
	f.Add(`Basic realm=x, charset="UTF-8"`)
	f.Add(`Bearer ="=,"`)
	f.Fuzz(func(t *testing.T, text string) {
		c := challenge.Parse(text)
		if len(c.Scheme) > 3*len(text) {
			t.Errorf("scheme = %q", c.Scheme)
		}
		if realm, ok := c.Realm(); ok {
			c.Address(realm, "s")
		}
	})
}
