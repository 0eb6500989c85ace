package filter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
)

const ada = `{"userName":"Ada@Example.com","externalId":"Ab1","active":true,"title":"Engineer","loginCount":7,
	"name":{"givenName":"Ada"},"meta":{"lastModified":"2026-01-02T03:04:05Z"},
	"emails":[{"type":"work","value":"ada@example.com","primary":true},{"type":"home","value":"ada@home.example"}],
	"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"department":"R&D","manager":{"value":"m1"}}}`

func parse(t testing.TB, body string) document.Object {
	t.Helper()
	o, err := document.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestMatches(t *testing.T) {
	const enterprise = document.EnterpriseSchema
	tests := map[string]bool{
		`userName eq "ada@example.COM"`:                     true, // capitals do not matter
		`USERNAME EQ "ada@example.com"`:                     true,
		`userName eq "ada"`:                                 false,
		`externalId eq "ab1"`:                               false, // capitals matter
		`externalId eq "Ab1"`:                               true,
		`userName ne "ada"`:                                 true,
		`nickName ne "x"`:                                   true,
		`userName co "@example"`:                            true,
		`userName sw "ada"`:                                 true,
		`userName ew ".com"`:                                true,
		`userName ew "ada"`:                                 false,
		`title pr`:                                          true,
		`nickName pr`:                                       false,
		`nickName eq null`:                                  true,
		`active eq true`:                                    true,
		`active eq "True"`:                                  true,
		`active eq False`:                                   false,
		`loginCount gt 6 and loginCount le 7`:               true,
		`loginCount lt 7`:                                   false,
		`meta.lastModified gt "2026-01-01T00:00:00Z"`:       true,
		`meta.lastModified ge "2026-01-02T04:04:05+01:00"`:  true, // the same moment
		`meta.lastModified lt "2026-01-01T00:00:00Z"`:       false,
		`title eq "Engineer" and userName sw "x"`:           false,
		`title eq "x" or userName sw "ada"`:                 true,
		`title pr or title pr and nickName pr`:              true, // and binds more than or
		`(title pr or title pr) and nickName pr`:            false,
		`not (nickName pr)`:                                 true,
		`not(title pr)`:                                     false,
		`emails eq "ada@home.example"`:                      true,
		`emails.value eq "ada@home.example"`:                true,
		`emails.type eq "other"`:                            false,
		`emails[type eq "work"]`:                            true,
		`emails[type eq "work" and value co "@home"]`:       false,
		`emails[type eq "work"].value eq "ada@example.com"`: true,
		`emails[type eq "home"].primary eq true`:            false,
		`emails[not (type eq "work")]`:                      true,
		`name.givenName eq "ada"`:                           true,
		enterprise + `:department eq "r&d"`:                 true,
		enterprise + `:manager.value eq "m1"`:               true,
		document.UserSchema + `:userName sw "ada"`:          true,
		`urn:example:other:thing eq "x"`:                    false,
		` userName   eq   "ada@example.com" `:               true,
		`title eq "Eng\u0069neer"`:                          true,
		`title eq "a\" or title pr or title eq \"b"`:        false, // quotes in a value end nothing
		`userName eq "x" or (emails[type eq "home"] and not (active eq false))`: true,
	}
	o := parse(t, ada)
	for text, want := range tests {
		f, err := filter.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := f.Matches(o); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":             ``,
		"a name only":         `userName`,
		"no value":            `userName eq`,
		"no operator":         `userName "x"`,
		"an unknown operator": `userName is "x"`,
		"no quotes":           `userName eq x`,
		"an open quote":       `userName eq "x`,
		"an object":           `userName eq {"a":1}`,
		"an open parenthesis": `(userName pr`,
		"a closed one":        `userName pr)`,
		"an open bracket":     `emails[type pr`,
		"two sub-attributes":  `name.given.name pr`,
		"a name like a digit": `1a pr`,
		"co with a number":    `userName co 1`,
		"gt with a boolean":   `active gt true`,
		"a dangling and":      `userName pr and`,
		"not without a term":  `not`,
		"an empty path":       `.x pr`,
		"two values":          `userName eq "x" "y"`,
		"too long":            `userName eq "` + strings.Repeat("x", filter.MaxLength) + `"`,
		"too deep":            strings.Repeat("(", filter.MaxDepth+1) + `title pr` + strings.Repeat(")", filter.MaxDepth+1),
		"too deep with not": strings.Repeat("not (", filter.MaxDepth+1) + `title pr` +
			strings.Repeat(")", filter.MaxDepth+1),
		"too deep in values": strings.Repeat("a[", filter.MaxDepth+1) + `a pr` + strings.Repeat("]", filter.MaxDepth+1),
		"too many terms":     strings.Repeat("a pr or ", filter.MaxTerms) + `a pr`,
	}
	for name, text := range tests {
		_, err := filter.Parse(text)
		if f := (*document.Error)(nil); !errors.As(err, &f) || f.Type != document.InvalidFilter || f.Status != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
	atLimit := strings.Repeat("(", filter.MaxDepth-1) + `title pr` + strings.Repeat(")", filter.MaxDepth-1)
	if _, err := filter.Parse(atLimit); err != nil {
		t.Error(err)
	}
}

func TestParsePath(t *testing.T) {
	tests := map[string]filter.Path{
		`userName`:                              {Attribute: "userName"},
		`USERNAME`:                              {Attribute: "userName"},
		`name.givenName`:                        {Attribute: "name", Sub: "givenName"},
		document.UserSchema + `:name.givenName`: {Attribute: "name", Sub: "givenName"},
		document.EnterpriseSchema:               {Schema: document.EnterpriseSchema},
		document.EnterpriseSchema + `:manager`:  {Schema: document.EnterpriseSchema, Attribute: "manager"},
	}
	for text, want := range tests {
		if got, err := filter.ParsePath(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	got, err := filter.ParsePath(`emails[type eq "work"].value`)
	if err != nil || got.Attribute != "emails" || got.Values == nil || got.Sub != "value" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{``, `emails[`, `emails[]`, `emails.value[type pr]`, `emails[type pr]x`, `a b`, `a.b.c`,
		document.UserSchema, `emails[type pr].`, strings.Repeat("a", filter.MaxLength+1)} {
		_, err := filter.ParsePath(text)
		if f := (*document.Error)(nil); !errors.As(err, &f) || f.Type != document.InvalidPath {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// TestRequired checks that only parts which every match satisfies can use an index.
func TestRequired(t *testing.T) {
	tests := map[string]string{
		`userName eq "a"`:                           "a",
		`userName eq "a" and active eq true`:        "a",
		`active eq true and (userName eq "a")`:      "a",
		`userName eq "a" or active eq true`:         "",
		`not (userName eq "a")`:                     "",
		`userName ne "a"`:                           "",
		`userName.x eq "a"`:                         "",
		`urn:x:y:userName eq "a"`:                   "",
		`emails[userName eq "a"]`:                   "",
		document.UserSchema + `:userName eq "a"`:    "a",
		`(userName eq "a" or title pr) and name pr`: "",
	}
	for text, want := range tests {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, part := range f.Required() {
			if v, ok := part.EqualTo("userName", ""); ok {
				got = v
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// FuzzParse checks that every filter that is accepted can be evaluated, and that a refusal is explicit.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`userName eq "a"`, `emails[type eq "work" and not (value co "x")].value sw "y" or (a.b pr)`, `((((a pr))))`,
		`urn:a:b:c.d ge 1e9`, `a eq "\ud800"`, "a eq \"\x00", `not not (a pr)`, `a eq nul`,
	} {
		f.Add(text)
	}
	o := parse(f, ada)
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := filter.Parse(text)
		if refusal := (*document.Error)(nil); err != nil && !errors.As(err, &refusal) {
			t.Fatalf("%q: %v", text, err)
		}
		if err == nil {
			matched := parsed.Matches(o)
			inverted := &filter.Filter{Op: filter.Not, Left: parsed}
			if inverted.Matches(o) == matched {
				t.Fatalf("%q and its negation are both %v", text, matched)
			}
		}
		if path, err := filter.ParsePath(text); err == nil && path == (filter.Path{}) {
			t.Fatalf("%q is an empty path", text)
		}
	})
}
