package e2e_test

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func badIdentities(x things) map[string]badRequest {
	create := func(i *iampb.Identity) proto.Message {
		return &iampb.CreateIdentityRequest{Parent: x.folder, Identity: i}
	}
	update := func(i *iampb.Identity, paths ...string) proto.Message {
		i.Uid = x.identity
		return &iampb.UpdateIdentityRequest{Identity: i, UpdateMask: mask(paths...)}
	}
	table := map[string]badRequest{
		"create with no identity": {"name", &iampb.CreateIdentityRequest{Parent: x.folder}},
		"create of nothing":       {"relationship", create(&iampb.Identity{Name: "x"})},
		"create of an empty match": {
			"claim_match.issuer",
			create(&iampb.Identity{
				Name: "x", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{}},
			}),
		},
		"create of no principal": {
			"relationship", create(&iampb.Identity{Name: "x", Relationship: &iampb.Identity_ServicePrincipal{}}),
		},
		"create of an unknown one": {
			"service_principal",
			create(&iampb.Identity{Name: "x", Relationship: &iampb.Identity_ServicePrincipal{ServicePrincipal: 99}}),
		},
		"create of a negative one": {
			"service_principal",
			create(&iampb.Identity{Name: "x", Relationship: &iampb.Identity_ServicePrincipal{ServicePrincipal: -1}}),
		},
		"update to nothing":    {"relationship", update(&iampb.Identity{}, "claim_match")},
		"update to no issuer":  {"claim_match.issuer", update(&iampb.Identity{}, "claim_match.issuer")},
		"lookup of nobody":     {"issuer", &iampb.LookupIdentityRequest{}},
		"lookup of no issuer":  {"issuer", &iampb.LookupIdentityRequest{Subject: "x"}},
		"lookup of no subject": {"subject", &iampb.LookupIdentityRequest{Issuer: "https://x.example"}},
		"lookup of an endless subject": {
			"subject", &iampb.LookupIdentityRequest{Issuer: "https://x.example", Subject: strings.Repeat("x", 2049)},
		},
		"lookup of an endless issuer": {
			"issuer", &iampb.LookupIdentityRequest{Issuer: "https://" + strings.Repeat("x", 2049), Subject: "x"},
		},
		"list of no known relationship": {"relationship_type", &iampb.ListIdentitiesRequest{RelationshipType: 99}},
		"list of a negative one":        {"relationship_type", &iampb.ListIdentitiesRequest{RelationshipType: -1}},
	}
	for value, name := range badNames {
		table["create with "+value] = badRequest{"name", create(workload(name))}
		table["update to "+value] = badRequest{"name", update(&iampb.Identity{Name: name}, "name")}
	}
	for value, text := range badDescriptions {
		i := workload("x")
		i.Description = text
		table["create described by "+value] = badRequest{"description", create(i)}
	}
	for value, text := range badTexts {
		table["update to company of "+value] = badRequest{"company", update(&iampb.Identity{Company: text}, "company")}
	}
	return table
}

func badClaims(x things) map[string]badRequest {
	match := func(change func(*iampb.Identity_ClaimMatch)) proto.Message {
		i := workload("x")
		change(i.GetClaimMatch())
		return &iampb.CreateIdentityRequest{Parent: x.folder, Identity: i}
	}
	issuer := func(s string) proto.Message {
		return match(func(c *iampb.Identity_ClaimMatch) { c.Iss = &iampb.Identity_ClaimMatch_Issuer{Issuer: s} })
	}
	subject := func(s string) proto.Message {
		return match(func(c *iampb.Identity_ClaimMatch) { c.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: s} })
	}
	issuers := func(s string) proto.Message {
		return match(func(c *iampb.Identity_ClaimMatch) {
			c.Iss = &iampb.Identity_ClaimMatch_IssuerPattern{IssuerPattern: s}
		})
	}
	subjects := func(s string) proto.Message {
		return match(func(c *iampb.Identity_ClaimMatch) {
			c.Sub = &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: s}
		})
	}
	audiences := func(s string) proto.Message {
		return match(func(c *iampb.Identity_ClaimMatch) {
			c.Aud = &iampb.Identity_ClaimMatch_AudiencePattern{AudiencePattern: s}
		})
	}
	claims := func(exact, patterns map[string]string) proto.Message {
		return match(func(c *iampb.Identity_ClaimMatch) { c.Claims, c.ClaimPatterns = exact, patterns })
	}
	many := map[string]string{}
	for n := range 33 {
		many[fmt.Sprint("c", n)] = "x"
	}
	table := map[string]badRequest{
		"issuer that is no address":    {"claim_match.issuer", issuer("ci.example")},
		"issuer of another scheme":     {"claim_match.issuer", issuer("ftp://ci.example")},
		"issuer without a host":        {"claim_match.issuer", issuer("https://")},
		"issuer with a query":          {"claim_match.issuer", issuer("https://ci.example?x")},
		"issuer with a fragment":       {"claim_match.issuer", issuer("https://ci.example#x")},
		"issuer with a password":       {"claim_match.issuer", issuer("https://u:p@ci.example")},
		"issuer with a NUL":            {"claim_match.issuer", issuer("https://ci.example/\x00")},
		"issuer without end":           {"claim_match.issuer", issuer("https://ci.example/" + strings.Repeat("x", 2049))},
		"no issuer":                    {"claim_match.issuer", issuer("")},
		"no subject":                   {"claim_match.subject", subject("")},
		"subject without end":          {"claim_match.subject", subject(strings.Repeat("x", 2049))},
		"subject with a NUL":           {"claim_match.subject", subject("a\x00")},
		"pattern with a NUL":           {"claim_match.subject_pattern", subjects("repo:\x00")},
		"pattern without end":          {"claim_match.subject_pattern", subjects(strings.Repeat("x", 1025))},
		"issuers that are no pattern":  {"claim_match.issuer_pattern", issuers("https://(")},
		"all issuers":                  {"claim_match.issuer_pattern", issuers(".*")},
		"all issuers there can be":     {"claim_match.issuer_pattern", issuers("https?://.*")},
		"subjects beside our anchors":  {"claim_match.subject_pattern", subjects("repo:a)|(?:b")},
		"nearly all subjects":          {"claim_match.subject_pattern", subjects(".{2,}")},
		"all audiences":                {"claim_match.audience_pattern", audiences(".+")},
		"subjects that are no pattern": {"claim_match.subject_pattern", subjects("repo:[")},
		"a pattern that looks ahead":   {"claim_match.subject_pattern", subjects("repo:(?=x)")},
		"a pattern that refers back":   {"claim_match.subject_pattern", subjects(`(a)\1`)},
		"audiences that are none":      {"claim_match.audience_pattern", audiences("*")},
		"too many claims":              {"claim_match.claims", claims(many, nil)},
		"claim without a name":         {"claim_match.claims", claims(map[string]string{"": "x"}, nil)},
		"claim without a value":        {"claim_match.claims", claims(map[string]string{"x": ""}, nil)},
		"claim of the subject":         {"claim_match.claims", claims(map[string]string{"sub": "x"}, nil)},
		"claim pattern of the issuer":  {"claim_match.claim_patterns", claims(nil, map[string]string{"iss": "x"})},
		"claim pattern that is none":   {"claim_match.claim_patterns", claims(nil, map[string]string{"x": "("})},
		"claim without end": {
			"claim_match.claims", claims(map[string]string{"x": strings.Repeat("x", 2049)}, nil),
		},
	}
	for _, pattern := range []string{
		".*", ".+", "(.*)", "^.*$", "(?s:.*)", `[\s\S]*`, "a|.*", ".{1,}", `\A.*\z`, "(?:)|.+", ".*.*",
	} {
		table["all subjects as "+pattern] = badRequest{"claim_match.subject_pattern", subjects(pattern)}
	}
	return table
}

func badKeys(x things) map[string]badRequest {
	keys := func(change func(*iampb.Identity_StaticKeys)) proto.Message {
		k := &iampb.Identity_StaticKeys{Issuer: "https://cluster.example", Subject: "robot", IssuerKeys: publicKeys}
		change(k)
		return &iampb.CreateIdentityRequest{Parent: x.folder, Identity: &iampb.Identity{
			Name: "x", Relationship: &iampb.Identity_StaticKeys_{StaticKeys: k},
		}}
	}
	set := func(text string) badRequest {
		return badRequest{"static_keys.issuer_keys", keys(func(k *iampb.Identity_StaticKeys) { k.IssuerKeys = text })}
	}
	until := func(when *timestamppb.Timestamp) badRequest {
		return badRequest{"static_keys.expiration_time", keys(func(k *iampb.Identity_StaticKeys) { k.ExpirationTime = when })}
	}
	aws := func(field string, a *iampb.Identity_AWSIdentity) badRequest {
		return badRequest{"aws_identity." + field, &iampb.CreateIdentityRequest{Parent: x.folder, Identity: &iampb.Identity{
			Name: "x", Relationship: &iampb.Identity_AwsIdentity{AwsIdentity: a},
		}}}
	}
	arn := &iampb.Identity_AWSIdentity_Arn{Arn: "arn:aws:iam::123456789012:user/x"}
	arns := func(p string) *iampb.Identity_AWSIdentity_ArnPattern {
		return &iampb.Identity_AWSIdentity_ArnPattern{ArnPattern: p}
	}
	table := map[string]badRequest{
		"keys of no issuer":  {"static_keys.issuer", keys(func(k *iampb.Identity_StaticKeys) { k.Issuer = "" })},
		"keys of no subject": {"static_keys.subject", keys(func(k *iampb.Identity_StaticKeys) { k.Subject = "" })},
		"keys for two audiences": {"static_keys.audiences", keys(func(k *iampb.Identity_StaticKeys) {
			k.Audiences = []string{"a", "b"}
		})},
		"keys for an empty one": {"static_keys.audiences", keys(func(k *iampb.Identity_StaticKeys) {
			k.Audiences = []string{""}
		})},
		"no keys":               set(""),
		"keys that are no JSON": set("{"),
		"keys that are a list":  set("[]"),
		"keys that are none":    set(`{"keys":[]}`),
		"keys of no type":       set(`{"keys":[{}]}`),
		"keys of a secret":      set(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`),
		"a private EC key": set(strings.Replace(publicKeys, `"kid"`,
			`"d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI","kid"`, 1)),
		"a private RSA key":  set(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","d":"AQAB"}]}`),
		"too many keys":      set(`{"keys":[` + strings.Repeat(`{"kty":"EC"},`, 16) + `{"kty":"EC"}]}`),
		"endless keys":       set(strings.Repeat(" ", 64<<10) + publicKeys),
		"keys of yesterday":  until(timestamppb.New(time.Now().Add(-24 * time.Hour))),
		"keys for two years": until(timestamppb.New(time.Now().Add(2 * 365 * 24 * time.Hour))),
		"no account":         aws("aws_account", &iampb.Identity_AWSIdentity{AwsArn: arn}),
		"eleven digits":      aws("aws_account", &iampb.Identity_AWSIdentity{AwsAccount: "12345678901", AwsArn: arn}),
		"thirteen digits":    aws("aws_account", &iampb.Identity_AWSIdentity{AwsAccount: "1234567890123", AwsArn: arn}),
		"letters":            aws("aws_account", &iampb.Identity_AWSIdentity{AwsAccount: "12345678901a", AwsArn: arn}),
		"a line break":       aws("aws_account", &iampb.Identity_AWSIdentity{AwsAccount: "123456789012\n", AwsArn: arn}),
		"a whole account":    aws("arn", &iampb.Identity_AWSIdentity{AwsAccount: "123456789012"}),
		"a pattern that is none": aws("arn_pattern", &iampb.Identity_AWSIdentity{
			AwsAccount: "123456789012", AwsArn: arns("("),
		}),
		"every caller": aws("arn_pattern", &iampb.Identity_AWSIdentity{AwsAccount: "123456789012", AwsArn: arns(".*")}),
		"every ARN": aws("arn_pattern", &iampb.Identity_AWSIdentity{
			AwsAccount: "123456789012", AwsArn: arns("arn:aws:.*"),
		}),
		"an endless ARN": aws("arn", &iampb.Identity_AWSIdentity{
			AwsAccount: "123456789012", AwsArn: &iampb.Identity_AWSIdentity_Arn{Arn: strings.Repeat("x", 2049)},
		}),
		"no pattern of a user": aws("user_id_pattern", &iampb.Identity_AWSIdentity{
			AwsAccount: "123456789012", AwsArn: arn, AwsUserId: &iampb.Identity_AWSIdentity_UserIdPattern{UserIdPattern: "["},
		}),
	}
	return table
}

func badMetadata(things) map[string]badRequest {
	update := func(m *iampb.IdentityMetadata, paths ...string) proto.Message {
		return &iampb.UpdateIdentityMetadataRequest{IdentityMetadata: m, UpdateMask: mask(paths...)}
	}
	long := strings.Repeat("x", 2049)
	return map[string]badRequest{
		"none":                {"identity_metadata", &iampb.UpdateIdentityMetadataRequest{}},
		"an endless company":  {"company", update(&iampb.IdentityMetadata{Company: long})},
		"an endless job":      {"jobTitle", update(&iampb.IdentityMetadata{JobTitle: long})},
		"an endless address":  {"latestFormSubmitUrl", update(&iampb.IdentityMetadata{LatestFormSubmitUrl: long})},
		"a NUL in the job":    {"jobTitle", update(&iampb.IdentityMetadata{JobTitle: "a\x00"})},
		"an unknown field":    {"update_mask", update(&iampb.IdentityMetadata{}, "salary")},
		"a field of a string": {"update_mask", update(&iampb.IdentityMetadata{}, "company.name")},
	}
}
