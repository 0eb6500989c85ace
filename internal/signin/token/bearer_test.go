package token_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

func TestBearer(t *testing.T) {
	tests := map[string]struct {
		values []string
		scheme bool
		want   string
	}{
		"with its scheme":                      {[]string{"Bearer abc"}, true, "abc"},
		"in any case":                          {[]string{"bEaReR  abc "}, true, "abc"},
		"without, where that is allowed":       {[]string{"abc"}, false, "abc"},
		"with, where it could do without":      {[]string{"Bearer abc"}, false, "abc"},
		"without, where it is not":             {[]string{"abc"}, true, ""},
		"another scheme":                       {[]string{"Basic abc"}, true, ""},
		"nothing":                              {nil, false, ""},
		"nothing after the scheme":             {[]string{"Bearer "}, false, ""},
		"an empty value":                       {[]string{""}, false, ""},
		"two, of which one might be forgotten": {[]string{"Bearer abc", "Bearer def"}, true, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := token.Bearer(tt.values, tt.scheme)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, error %v, want %q", got, err, tt.want)
			}
		})
	}
}
