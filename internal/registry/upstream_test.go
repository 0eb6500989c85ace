package registry_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

func TestUpstreamFetches(t *testing.T) {
	tests := map[string]struct {
		names    []string
		yes, not []string
	}{
		"everything": {nil, []string{"a", "library/alpine", "a/b/c"}, nil},
		"one part": {
			[]string{"library/*"}, []string{"library/alpine"},
			[]string{"library", "library/a/b", "other/alpine", "alpine"},
		},
		"all parts":          {[]string{"acme/**"}, []string{"acme/a", "acme/a/b"}, []string{"acme", "acmes/a"}},
		"two parts and more": {[]string{"acme/t*/**"}, []string{"acme/team/a/b"}, []string{"acme/team", "acme/other/a"}},
		"all but one":        {[]string{"!acme/secret"}, []string{"a", "acme/open"}, []string{"acme/secret"}},
		"some but one of them": {
			[]string{"acme/**", "!acme/secret/**"}, []string{"acme/a"}, []string{"acme/secret/a", "other"},
		},
		"really everything": {[]string{"**"}, []string{"a", "a/b"}, nil},
	}
	for name, tt := range tests {
		u := registry.Upstream{Names: tt.names}
		for _, repo := range tt.yes {
			if !u.Fetches(repo) {
				t.Errorf("%s: %s is not fetched", name, repo)
			}
		}
		for _, repo := range tt.not {
			if u.Fetches(repo) {
				t.Errorf("%s: %s is fetched", name, repo)
			}
		}
	}
}
