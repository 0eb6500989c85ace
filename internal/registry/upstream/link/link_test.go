package link_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry/upstream/link"
)

func TestNext(t *testing.T) {
	for name, tt := range map[string]struct {
		headers []string
		query   string
		ok      bool
	}{
		"none":                     {nil, "", false},
		"as the specification has": {[]string{`</v2/a/referrers/x?n=2&last=b>; rel="next"`}, "n=2&last=b", true},
		"an address elsewhere":     {[]string{`<https://evil.example/x?last=b>; rel="next"`}, "last=b", true},
		"without quotes":           {[]string{`<?last=b>;rel=next`}, "last=b", true},
		"with other words":         {[]string{`<?last=b>; title="a, b; c"; REL="last Next"`}, "last=b", true},
		"after another":            {[]string{`<?first>; rel="first", <?last=b>; rel="next"`}, "last=b", true},
		"in another header":        {[]string{`<?first>; rel="first"`, `<?last=b>; rel="next"`}, "last=b", true},
		"another relation":         {[]string{`<?last=b>; rel="prev"`}, "", false},
		"a relation like it":       {[]string{`<?last=b>; rel="nextish"`}, "", false},
		"no relation":              {[]string{`<?last=b>`}, "", false},
		"in the address alone":     {[]string{`<?x;rel=next>; rel="prev"`}, "", false},
		"a line of a request":      {[]string{`<?a HTTP/1.1>; rel="next"`}, "a%20HTTP/1.1", true},
		"without a query":          {[]string{`</v2/a>; rel="next"`}, "", true},
		"no address":               {[]string{"<%zz>; rel=next"}, "", true},
		"nonsense":                 {[]string{`next`, `;rel=next`[1:], `<`, `<<>>`, `,,,`, `<a`}, "", false},
	} {
		query, ok := link.Next(http.Header{"Link": tt.headers})
		if query != tt.query || ok != tt.ok {
			t.Errorf("%s: %q, %v", name, query, ok)
		}
	}
}

// FuzzNext checks that no header makes the parser panic or loop, and that the result contains only characters that
// are valid in a query.
func FuzzNext(f *testing.F) {
	f.Add(`</v2/a/tags/list?n=2&last=b>; rel="next"`, `<?x>; rel=prev, <https://a.example/?y>; title=","; rel="a next"`)
	f.Fuzz(func(t *testing.T, one, two string) {
		query, ok := link.Next(http.Header{"Link": {one, two}})
		if !ok && query != "" {
			t.Errorf("%q without a page", query)
		}
		for _, c := range query {
			if c == '#' || c <= ' ' {
				t.Errorf("%q is no query", query)
			}
		}
	})
}
