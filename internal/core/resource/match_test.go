package resource_test

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

var usual = []string{"https://auth.example", "auth.example"}

// judge compares a verified credential and returns the checks with their causes.
func judge(m *resource.Matcher, c resource.Credential) []resource.Check {
	all := m.Compare(c, true)
	for i := range all {
		all[i].Cause = m.Cause(all[i])
	}
	return all
}

// cred returns the credential of a build job, changed by change.
func cred(change func(*resource.Credential)) resource.Credential {
	c := resource.Credential{
		Issuer: "https://token.example", Subject: "repo:org/app:ref:refs/heads/main",
		Audience: []string{"https://auth.example"},
		Claim: func(name string) (string, bool) {
			v, ok := map[string]string{"env": "prod", "run": "7"}[name]
			return v, ok
		},
	}
	if change != nil {
		change(&c)
	}
	return c
}

func matcher(t testing.TB, c resource.ClaimMatch) *resource.Matcher {
	t.Helper()
	m, err := resource.NewMatcher(resource.Relationship{ClaimMatch: &c}, usual)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMatcher(t *testing.T) {
	exact := resource.ClaimMatch{Issuer: "https://token.example", Subject: "repo:org/app:ref:refs/heads/main"}
	with := func(change func(*resource.ClaimMatch)) resource.ClaimMatch {
		c := exact
		change(&c)
		return c
	}
	pattern := func(p string) resource.ClaimMatch {
		return with(func(c *resource.ClaimMatch) { c.Subject, c.SubjectPattern = "", p })
	}
	for name, tt := range map[string]struct {
		match    resource.ClaimMatch
		change   func(*resource.Credential)
		mismatch string // the claim that does not match; "" if all match
		cause    string // text that the cause must contain
	}{
		"exactly": {match: exact},
		"another issuer": {exact, func(c *resource.Credential) { c.Issuer = "https://other.example" },
			"iss", ""},
		"a slash too many": {exact, func(c *resource.Credential) { c.Issuer += "/" }, "iss", "slash"},
		"another scheme": {exact, func(c *resource.Credential) { c.Issuer = "http://token.example" },
			"iss", "scheme"},
		"another subject": {exact, func(c *resource.Credential) { c.Subject = "x" }, "sub", ""},
		"another case": {exact,
			func(c *resource.Credential) { c.Subject = strings.ToUpper(c.Subject) }, "sub", "upper and lower case"},
		"spaces": {exact, func(c *resource.Credential) { c.Subject += " " }, "sub", "spaces"},
		"GitHub's newer subject": {exact,
			func(c *resource.Credential) { c.Subject = "repo:org@1/app@2:ref:refs/heads/main" }, "sub",
			"newer subject"},
		"another branch": {exact,
			func(c *resource.Credential) { c.Subject = "repo:org/app:ref:refs/heads/dev" }, "sub",
			"a ref, an environment"},
		"the host as audience": {exact,
			func(c *resource.Credential) { c.Audience = []string{"auth.example"} }, "", ""},
		"both as audience": {exact, func(c *resource.Credential) { c.Audience = usual }, "", ""},
		"another audience": {exact, func(c *resource.Credential) { c.Audience = []string{"x"} }, "aud",
			"another audience"},
		"us and others": {exact,
			func(c *resource.Credential) { c.Audience = []string{"https://auth.example", "x"} }, "aud", "others too"},
		"nobody": {exact, func(c *resource.Credential) { c.Audience = nil }, "aud",
			"no claim aud"},
		"an audience of its own": {with(func(c *resource.ClaimMatch) { c.Audience = "me" }),
			func(c *resource.Credential) { c.Audience = []string{"me"} }, "", ""},
		"its own and not the usual": {with(func(c *resource.ClaimMatch) { c.Audience = "me" }), nil, "aud",
			"another audience"},
		"an audience by pattern": {with(func(c *resource.ClaimMatch) { c.AudiencePattern = "m." }),
			func(c *resource.Credential) { c.Audience = []string{"me", "my"} }, "", ""},
		"not all by pattern": {with(func(c *resource.ClaimMatch) { c.AudiencePattern = "m." }),
			func(c *resource.Credential) { c.Audience = []string{"me", "you"} }, "aud", "others too"},
		"a pattern":              {match: pattern("repo:org/app:.*")},
		"a pattern of the whole": {pattern("org/app"), nil, "sub", ""},
		"a pattern and a line": {pattern("repo:org/app:ref:refs/heads/main"),
			func(c *resource.Credential) { c.Subject += "\n" }, "sub", ""},
		"a choice of the whole": {pattern("x|repo:org/app:ref:refs/heads/main"),
			func(c *resource.Credential) { c.Subject += "x" }, "sub", ""},
		"both forms": {match: pattern(`repo:org(@\d+)?/app(@\d+)?:ref:refs/heads/main`)},
		"both forms, the newer": {pattern(`repo:org(@\d+)?/app(@\d+)?:ref:refs/heads/main`),
			func(c *resource.Credential) { c.Subject = "repo:org@1/app@2:ref:refs/heads/main" }, "", ""},
		"the newer form only": {pattern(`repo:org@\d+/app@\d+:ref:refs/heads/main`), nil, "sub",
			"older subject"},
		"a pattern in another case": {pattern("repo:ORG/APP:.*"), nil, "sub", "upper and lower case"},
		"a claim": {match: with(func(c *resource.ClaimMatch) {
			c.Claims = map[string]string{"env": "prod"}
		})},
		"another value": {with(func(c *resource.ClaimMatch) {
			c.Claims = map[string]string{"env": "test"}
		}), nil, "env", ""},
		"a claim that is missing": {with(func(c *resource.ClaimMatch) {
			c.Claims = map[string]string{"none": "x"}
		}), nil, "none", "no claim none"},
		"a claim by pattern": {match: with(func(c *resource.ClaimMatch) {
			c.ClaimPatterns = map[string]string{"run": `\d+`}
		})},
		"a claim not by pattern": {with(func(c *resource.ClaimMatch) {
			c.ClaimPatterns = map[string]string{"env": `\d+`}
		}), nil, "env", ""},
		"a claim by both": {match: with(func(c *resource.ClaimMatch) {
			c.Claims, c.ClaimPatterns = map[string]string{"env": "prod"}, map[string]string{"env": "p.*"}
		})},
		"a claim by its value alone": {with(func(c *resource.ClaimMatch) {
			c.Claims, c.ClaimPatterns = map[string]string{"env": "prod"}, map[string]string{"env": "t.*"}
		}), nil, "env", ""},
		"a claim by its pattern alone": {with(func(c *resource.ClaimMatch) {
			c.Claims, c.ClaimPatterns = map[string]string{"env": "pre"}, map[string]string{"env": "p.*"}
		}), nil, "env", ""},
		"a missing claim, any pattern": {with(func(c *resource.ClaimMatch) {
			c.ClaimPatterns = map[string]string{"none": ".*"}
		}), nil, "none", "no claim none"},
	} {
		t.Run(name, func(t *testing.T) {
			m := matcher(t, tt.match)
			c := cred(tt.change)
			if got := m.Mismatch(c); got != tt.mismatch {
				t.Errorf("mismatch = %q, want %q", got, tt.mismatch)
			}
			first := judge(m, c)[0]
			if first.OK != (tt.mismatch == "") || !first.OK && first.Claim != tt.mismatch ||
				!strings.Contains(first.Cause, tt.cause) {
				t.Errorf("judged %+v, want a cause like %q", first, tt.cause)
			}
			if got, want := m.AcceptsIssuer(c.Issuer), tt.mismatch != "iss"; got != want {
				t.Errorf("accepts the issuer: %v, want %v", got, want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	const github = "https://token.actions.githubusercontent.com"
	for name, tt := range map[string]struct {
		issuer, subject, pattern, warns string
	}{
		"the older form":            {github, "repo:org/app:ref:refs/heads/main", "", "only GitHub's older"},
		"the newer form":            {github, "repo:org@1/app@2:ref:refs/heads/main", "", "only GitHub's newer"},
		"another issuer":            {"https://gitlab.example", "repo:org/app:ref:refs/heads/main", "", ""},
		"no repository":             {github, "something", "", ""},
		"a pattern of both":         {github, "", `repo:org(@\d+)?/app(@\d+)?:ref:refs/heads/main`, ""},
		"a pattern of the older":    {github, "", `repo:org/app:.*`, "only GitHub's older"},
		"a pattern of the newer":    {github, "", `repo:org@1/app@2:.+`, "only GitHub's newer"},
		"a pattern of either":       {github, "", `repo:org/app:.*|repo:org@\d+/app@\d+:.*`, ""},
		"a pattern of pinned ids":   {github, "", `repo:org(@7)?/app(@9)?:.*`, ""},
		"a choice of pinned ids":    {github, "", `repo:org/app:.*|repo:org@7/app@9:.*`, ""},
		"a pattern of an owner":     {github, "", `repo:org/.*`, "only GitHub's older"},
		"a pattern that is no path": {github, "", `.*:environment:prod`, ""},
	} {
		i := resource.Identity{Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{
			Issuer: tt.issuer, Subject: tt.subject, SubjectPattern: tt.pattern,
		}}}
		got := strings.Join(i.Warnings(), "; ")
		if (got == "") != (tt.warns == "") || !strings.Contains(got, tt.warns) {
			t.Errorf("%s: warns %q, want %q", name, got, tt.warns)
		}
	}
}

// FuzzMatcher compares random credentials with random relationships. It checks
// that a credential that matches also matches in every single check, and that a
// pattern matches a whole claim.
func FuzzMatcher(f *testing.F) {
	f.Add("https://token.example", "repo:org/app:.*", "repo:org/app:x", "https://auth.example")
	f.Add("https://token.example", "a|b", "ab", "x")
	f.Add("https://token.actions.githubusercontent.com", `repo:org(@\d+)?/app:.*`, "repo:org@1/app@2:x",
		"auth.example")
	f.Fuzz(func(t *testing.T, issuer, pattern, subject, audience string) {
		rule := resource.ClaimMatch{Issuer: issuer, SubjectPattern: pattern}
		resource.Identity{Relationship: resource.Relationship{ClaimMatch: &rule}}.Warnings()
		m, err := resource.NewMatcher(resource.Relationship{ClaimMatch: &rule}, usual)
		if err != nil {
			return
		}
		c := resource.Credential{Issuer: issuer, Subject: subject, Audience: []string{audience}}
		mismatch := m.Mismatch(c)
		for _, k := range judge(m, c) {
			if !k.OK && mismatch == "" || k.OK && k.Claim == mismatch {
				t.Errorf("mismatch %q, judged %+v", mismatch, k)
			}
		}
		if mismatch == "" && (audience != usual[0] && audience != usual[1]) {
			t.Errorf("the audience %q fits", audience)
		}
	})
}
