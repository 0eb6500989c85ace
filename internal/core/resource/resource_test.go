package resource_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func fields(err error) (all []string) {
	if err == nil {
		return nil
	}
	for _, v := range fault.From(err).Fields {
		all = append(all, v.Subject)
	}
	return all
}

func TestGroupValidate(t *testing.T) {
	tests := map[string]struct {
		group resource.Group
		bad   string
	}{
		"plain":                   {resource.Group{Name: "dev"}, ""},
		"one character":           {resource.Group{Name: "a"}, ""},
		"every kind of character": {resource.Group{Name: "a0 ._-z"}, ""},
		"as long as can be":       {resource.Group{Name: strings.Repeat("a", 128)}, ""},
		"no name":                 {resource.Group{}, "name"},
		"capitals":                {resource.Group{Name: "Dev"}, "name"},
		"a line break at the end": {resource.Group{Name: "dev\n"}, "name"},
		"a slash":                 {resource.Group{Name: "a/b"}, "name"},
		"too long":                {resource.Group{Name: strings.Repeat("a", 129)}, "name"},
		"a tab in the text":       {resource.Group{Name: "a", Description: "a\tb"}, "description"},
		"too much text":           {resource.Group{Name: "a", Description: strings.Repeat("ä", 513)}, "description"},
		"as much as can be":       {resource.Group{Name: "a", Description: strings.Repeat("ä", 512)}, ""},
		"a NUL":                   {resource.Group{Name: "a", Description: "a\x00b"}, "description"},
		"not UTF-8":               {resource.Group{Name: "a", Description: "\xff"}, "description"},
		"no such kind":            {resource.Group{Name: "a", Kind: 6}, "kind"},
		"name and text":           {resource.Group{Description: "\n"}, "name,description"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(fields(tt.group.Validate()), ","); got != tt.bad {
				t.Errorf("violations of %q, want %q", got, tt.bad)
			}
		})
	}
}

func TestMissingNameIsTheSpecsSentence(t *testing.T) {
	const want = `Invalid argument: name: name must match the pattern ^[a-z0-9 ._-]{1,}$`
	if err := (resource.Group{}).Validate(); err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

var now = time.UnixMilli(1_800_000_000_123).UTC()

const publicKeys = `{"keys":[{"kty":"EC","crv":"P-256",` +
	`"x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`

func match(change func(*resource.ClaimMatch)) resource.Relationship {
	c := &resource.ClaimMatch{Issuer: "https://issuer.example", Subject: "me"}
	change(c)
	return resource.Relationship{ClaimMatch: c}
}

func keys(change func(*resource.StaticKeys)) resource.Relationship {
	k := &resource.StaticKeys{Issuer: "https://issuer.example", Subject: "me", IssuerKeys: publicKeys,
		ExpirationTime: now.Add(time.Hour)}
	change(k)
	return resource.Relationship{StaticKeys: k}
}

func aws(a resource.AWSIdentity) resource.Relationship { return resource.Relationship{AWS: &a} }

func TestRelationshipValidate(t *testing.T) {
	tests := map[string]struct {
		r   resource.Relationship
		bad string
	}{
		"exact": {match(func(*resource.ClaimMatch) {}), ""},
		"patterns": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"repo:org/.*"
		}), ""},
		"none":       {resource.Relationship{}, "relationship"},
		"no issuer":  {match(func(c *resource.ClaimMatch) { c.Issuer = "" }), "claim_match.issuer"},
		"no subject": {match(func(c *resource.ClaimMatch) { c.Subject = "" }), "claim_match.subject"},
		"issuer twice": {match(func(c *resource.ClaimMatch) { c.IssuerPattern = "https://a\\.example" }),
			"claim_match.issuer"},
		"issuer not an address": {match(func(c *resource.ClaimMatch) { c.Issuer = "issuer.example" }),
			"claim_match.issuer"},
		"issuer with a query": {match(func(c *resource.ClaimMatch) { c.Issuer += "?a=b" }),
			"claim_match.issuer"},
		"issuer with a password": {match(func(c *resource.ClaimMatch) { c.Issuer = "https://a:b@issuer.example" }),
			"claim_match.issuer"},
		"pattern for every subject": {match(func(c *resource.ClaimMatch) { c.Subject, c.SubjectPattern = "", ".*" }),
			"claim_match.subject_pattern"},
		"the same, in more letters": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"(?s)^(.|\\s)+$"
		}), "claim_match.subject_pattern"},
		"all but short subjects": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				".{2,}"
		}), "claim_match.subject_pattern"},
		"all but long subjects": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"[^ ]{1,40}"
		}), "claim_match.subject_pattern"},
		"all long subjects": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				`\S{50,}`
		}), "claim_match.subject_pattern"},
		"subjects without a slash": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"[^/]+"
		}), ""},
		"subjects that are numbers": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"[0-9]+"
		}), ""},
		"out of our anchors": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"a)|(?:b"
		}), "claim_match.subject_pattern"},
		"every audience": {match(func(c *resource.ClaimMatch) { c.AudiencePattern = ".*" }),
			"claim_match.audience_pattern"},
		"every address as audience": {match(func(c *resource.ClaimMatch) { c.AudiencePattern = "https://.*" }),
			"claim_match.audience_pattern"},
		"some audiences": {match(func(c *resource.ClaimMatch) {
			c.AudiencePattern = `api|https://(a|b)\.acme\.example`
		}), ""},
		"an audience out of them": {match(func(c *resource.ClaimMatch) { c.AudiencePattern = "a)|(?:b" }),
			"claim_match.audience_pattern"},
		"a claim out of them": {match(func(c *resource.ClaimMatch) {
			c.ClaimPatterns = map[string]string{"a": ")|(?:"}
		}), "claim_match.claim_patterns"},
		"every https issuer": {match(func(c *resource.ClaimMatch) {
			c.Issuer, c.IssuerPattern = "",
				"https?://.*"
		}), "claim_match.issuer_pattern"},
		"every host": {match(func(c *resource.ClaimMatch) {
			c.Issuer, c.IssuerPattern = "",
				"https://[^/]+"
		}), "claim_match.issuer_pattern"},
		"every host with a path": {match(func(c *resource.ClaimMatch) {
			c.Issuer, c.IssuerPattern = "",
				"https://[^/]+/.+"
		}), "claim_match.issuer_pattern"},
		"issuers of a domain": {match(func(c *resource.ClaimMatch) {
			c.Issuer, c.IssuerPattern = "",
				`https://[a-z]+\.acme\.example(/.*)?`
		}), ""},
		"issuers of clusters": {match(func(c *resource.ClaimMatch) {
			c.Issuer, c.IssuerPattern = "", `https://oidc\.eks\..*\.amazonaws\.com/id/.*`
		}), ""},
		"pattern for every issuer": {match(func(c *resource.ClaimMatch) { c.Issuer, c.IssuerPattern = "", ".+" }),
			"claim_match.issuer_pattern"},
		"a NUL in a pattern": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"a\x00b"
		}), "claim_match.subject_pattern"},
		"a NUL in a subject": {match(func(c *resource.ClaimMatch) { c.Subject = "a\x00b" }),
			"claim_match.subject"},
		"not RE2": {match(func(c *resource.ClaimMatch) {
			c.Subject, c.SubjectPattern = "",
				"(?=a)"
		}), "claim_match.subject_pattern"},
		"audience twice": {match(func(c *resource.ClaimMatch) { c.Audience, c.AudiencePattern = "a", "a" }),
			"claim_match.audience"},
		"a claim": {match(func(c *resource.ClaimMatch) { c.Claims = map[string]string{"ref": "main"} }), ""},
		"a reserved claim": {match(func(c *resource.ClaimMatch) { c.Claims = map[string]string{"sub": "x"} }),
			"claim_match.claims"},
		"a claim without value": {match(func(c *resource.ClaimMatch) { c.Claims = map[string]string{"ref": ""} }),
			"claim_match.claims"},
		"a claim twice": {match(func(c *resource.ClaimMatch) {
			c.Claims, c.ClaimPatterns = map[string]string{"a": "b"}, map[string]string{"a": "b"}
		}), ""},
		"a claim's pattern broken": {match(func(c *resource.ClaimMatch) {
			c.ClaimPatterns = map[string]string{"a": "["}
		}), "claim_match.claim_patterns"},
		"static keys": {keys(func(*resource.StaticKeys) {}), ""},
		"keys for a year": {keys(func(k *resource.StaticKeys) {
			k.ExpirationTime = now.Add(365 * 24 * time.Hour)
		}), ""},
		"keys for longer": {keys(func(k *resource.StaticKeys) {
			k.ExpirationTime = now.Add(366 * 24 * time.Hour)
		}), "static_keys.expiration_time"},
		"keys expired": {keys(func(k *resource.StaticKeys) {
			k.ExpirationTime = now.Add(-time.Second)
		}), "static_keys.expiration_time"},
		"keys that are not": {keys(func(k *resource.StaticKeys) { k.IssuerKeys = "{" }),
			"static_keys.issuer_keys"},
		"no keys": {keys(func(k *resource.StaticKeys) { k.IssuerKeys = `{"keys":[]}` }),
			"static_keys.issuer_keys"},
		"a private key": {keys(func(k *resource.StaticKeys) {
			k.IssuerKeys = `{"keys":[{"kty":"EC","d":"x"}]}`
		}), "static_keys.issuer_keys"},
		"half a key": {keys(func(k *resource.StaticKeys) {
			k.IssuerKeys = `{"keys":[{"kty":"EC","crv":"P-256","x":"x"}]}`
		}), "static_keys.issuer_keys"},
		"a private factor": {keys(func(k *resource.StaticKeys) {
			k.IssuerKeys = `{"keys":[{"kty":"RSA","n":"x","e":"AQAB","q":"x"}]}`
		}), "static_keys.issuer_keys"},
		"a shared secret": {keys(func(k *resource.StaticKeys) {
			k.IssuerKeys = `{"keys":[{"kty":"oct","k":"x"}]}`
		}), "static_keys.issuer_keys"},
		"two audiences": {keys(func(k *resource.StaticKeys) { k.Audiences = []string{"a", "b"} }),
			"static_keys.audiences"},
		"no static subject": {keys(func(k *resource.StaticKeys) { k.Subject = "" }), "static_keys.subject"},
		"AWS by ARN": {aws(resource.AWSIdentity{Account: "123456789012",
			ARN: "arn:aws:sts::123456789012:assumed-role/r/s"}), ""},
		"AWS by patterns": {aws(resource.AWSIdentity{Account: "123456789012", ARNPattern: "^arn:aws:sts.*",
			UserIDPattern: "^AROA.*"}), ""},
		"AWS account too short": {aws(resource.AWSIdentity{Account: "1", ARN: "a"}), "aws_identity.aws_account"},
		"AWS account alone":     {aws(resource.AWSIdentity{Account: "123456789012"}), "aws_identity.arn"},
		"AWS, anybody": {aws(resource.AWSIdentity{Account: "123456789012", ARNPattern: ".*"}),
			"aws_identity.arn_pattern"},
		"AWS, any ARN": {aws(resource.AWSIdentity{Account: "123456789012", ARNPattern: "arn:aws:.*"}),
			"aws_identity.arn_pattern"},
		"AWS, any ARN and id": {aws(resource.AWSIdentity{Account: "123456789012",
			ARNPattern: "arn:.*:123456789012:.*", UserIDPattern: "A.*"}), "aws_identity.arn_pattern"},
		"AWS, any ARN, one id": {aws(resource.AWSIdentity{Account: "123456789012", ARNPattern: "arn:.*",
			UserID: "AIDAEXAMPLE"}), ""},
		"AWS, any role": {aws(resource.AWSIdentity{Account: "123456789012",
			ARNPattern: "arn:aws:sts::123456789012:assumed-role/.*"}), ""},
		"AWS both ways": {aws(resource.AWSIdentity{Account: "123456789012", ARN: "a", ARNPattern: "a"}),
			"aws_identity.arn"},
		"a service":                  {resource.Relationship{ServicePrincipal: 13}, ""},
		"a service there is none of": {resource.Relationship{ServicePrincipal: 14}, "service_principal"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := resource.Identity{Name: "x", Relationship: tt.r}.Validate(now)
			if got := strings.Join(fields(err), ","); got != tt.bad {
				t.Errorf("violations of %q, want %q (%v)", got, tt.bad, err)
			}
		})
	}
}

func TestPatternsAreAnchored(t *testing.T) {
	re, err := resource.Anchored("a|b")
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]bool{"a": true, "b": true, "ab": false, "xa": false, "b\n": false, "": false} {
		if re.MatchString(s) != want {
			t.Errorf("%q matches: want %v", s, want)
		}
	}
}

func TestStaticKeysLastAYear(t *testing.T) {
	i := resource.Identity{Name: "x",
		Relationship: keys(func(k *resource.StaticKeys) { k.ExpirationTime = time.Time{} })}
	i.Complete(now)
	if got := i.Relationship.StaticKeys.ExpirationTime; !got.Equal(now.Add(365 * 24 * time.Hour)) {
		t.Errorf("they expire at %v", got)
	}
}

func TestRoleValidate(t *testing.T) {
	list := resource.CapabilitySet("groups.list")
	admin := resource.CapabilitySet("repo.internal.admin")
	tests := map[string]struct {
		role resource.Role
		bad  string
	}{
		"plain":           {resource.Role{Name: "r", Capabilities: list}, ""},
		"nothing allowed": {resource.Role{Name: "r"}, "capabilities"},
		"internal only":   {resource.Role{Name: "r", Capabilities: admin}, "capabilities"},
		"internal, as it must be": {resource.Role{Name: "r",
			Capabilities: admin.Union(resource.CapabilitySet("internal"))}, ""},
		"no name and nothing allowed": {resource.Role{}, "name,capabilities"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(fields(tt.role.Validate()), ","); got != tt.bad {
				t.Errorf("violations of %q, want %q", got, tt.bad)
			}
		})
	}
}

func TestCapabilities(t *testing.T) {
	s := resource.CapabilitySet("groups.list", "actions.list", "registry.overlays.edit")
	b, err := json.Marshal(s)
	if err != nil || string(b) != `["groups.list","registry.overlays.edit","actions.list"]` {
		t.Errorf("JSON = %s, %v", b, err)
	}
	var back resource.Capabilities
	if err := json.Unmarshal([]byte(`["groups.list","no.such.thing"]`), &back); err != nil ||
		back != resource.CapabilitySet("groups.list") {
		t.Errorf("an unknown name is %v, %v", back, err)
	}
	if len(s.All()) != 3 || !s.Has(resource.GroupsList) || len(s.Without(back).All()) != 2 || !s.Intersects(back) ||
		len(back.Without(s).All()) != 0 {
		t.Error("the sets do not add up")
	}
	if c, ok := resource.CapabilityNumbered(103); !ok || c != resource.GroupsList || c.Number() != 103 ||
		c.String() != "groups.list" {
		t.Error("number 103 is not groups.list")
	}
	if _, ok := resource.CapabilityNumbered(1601); ok {
		t.Error("a reserved number means something")
	}
}

func TestFilterValidate(t *testing.T) {
	tests := map[string]struct {
		filter resource.Filter
		bad    bool
	}{
		"none": {resource.Filter{}, false},
		"every place": {resource.Filter{UIDs: resource.UIDFilter{AncestorsOf: leaf, DescendantsOf: root,
			ChildrenOf: child, IDs: []resource.UID{leaf}}}, false},
		"no uid":            {resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: "x"}}, true},
		"no uid among them": {resource.Filter{UIDs: resource.UIDFilter{IDs: []resource.UID{root, "x"}}}, true},
		"too many":          {resource.Filter{UIDs: resource.UIDFilter{IDs: make([]resource.UID, 1001)}}, true},
		"identity":          {resource.Filter{Identity: "x"}, true},
		"relationship":      {resource.Filter{Relationship: 5}, true},
		"name":              {resource.Filter{Name: "\xff"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.filter.Validate(); errors.Is(err, fault.InvalidArgument) != tt.bad || !tt.bad && err != nil {
				t.Errorf("error = %v, want one: %v", err, tt.bad)
			}
		})
	}
}

func FuzzPattern(f *testing.F) {
	f.Add(".*")
	f.Add("repo:[a-z]+/x")
	f.Add("some)|(?:part")
	f.Fuzz(func(t *testing.T, pattern string) {
		i := resource.Identity{Name: "x",
			Relationship: match(func(c *resource.ClaimMatch) { c.Subject, c.SubjectPattern = "", pattern })}
		if i.Validate(now) != nil {
			return
		}
		re, err := resource.Anchored(pattern)
		if err != nil {
			t.Fatalf("%q is valid and does not compile: %v", pattern, err)
		}
		const long = "some-subject-that-is-only-a-part"
		if m := re.FindString(long); m != "" && m != long {
			t.Fatalf("%q matches %q, a part", pattern, m)
		}
	})
}
