package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func identities() noun {
	return noun{
		use: "identities", one: "identity",
		about: "Identities are who can hold roles: people, who appear when they sign in, and workloads, which are created\n" +
			"here with a rule for the tokens that prove them.",
		example: "  holdfast iam identities create ci --parent acme/platform \\\n" +
			"    --issuer https://token.actions.githubusercontent.com --subject repo:acme/web:ref:refs/heads/main\n" +
			"  holdfast iam identities create pods --parent acme/platform --issuer https://cluster.example.com \\\n" +
			"    --subject-pattern 'system:serviceaccount:prod:.*' --claim environment=prod",
		message:  messageOf(&iampb.Identity{}),
		argument: "name",
		fields:   identityFields(),
		filters: []field{
			{flag: "type", path: "relationship_type", help: "only identities proven by a `KIND` of rule: claim-match, static, aws-identity or service-principal"},
		},
		columns: []column{
			{name: "name", path: "name"}, {name: "uid", path: "uid"}, {name: "proof", text: proofOf},
		},
		wide:    columnsOf("description", "email", "lastSeenTime", "createTime", "updateTime"),
		flagsOf: map[string]string{"relationship": "--issuer and --subject, --issuer-keys-file, --aws-account or --service-principal"},
		rewrite: proofPaths,
		extra:   []func(*app) *cobra.Command{(*app).lookupIdentity, (*app).explain, (*app).denials},
		presets: identityPresets(),
	}
}

func identityFields() []field {
	return []field{
		description("identity"),
		{flag: "issuer", path: "claim_match.issuer", help: "`ADDRESS` of who signs its tokens"},
		{flag: "issuer-pattern", path: "claim_match.issuer_pattern", help: "`PATTERN` (RE2) of issuers' addresses"},
		{flag: "subject", path: "claim_match.subject", help: "`SUBJECT` of its tokens"},
		{flag: "subject-pattern", path: "claim_match.subject_pattern", help: "`PATTERN` (RE2) of subjects"},
		{flag: "audience", path: "claim_match.audience", help: "`AUDIENCE` of its tokens (this service's issuer)"},
		{flag: "audience-pattern", path: "claim_match.audience_pattern", help: "`PATTERN` (RE2) of audiences"},
		{flag: "claim", path: "claim_match.claims", help: "a further claim and its value, `KEY=VALUE`; can be repeated"},
		{flag: "claim-pattern", path: "claim_match.claim_patterns", help: "a further claim and a pattern of its value, `KEY=PATTERN`; can be repeated"},
		{flag: "issuer-keys-file", path: "static_keys.issuer_keys", file: true, help: "`FILE` of the issuer's public keys (JWKS), where it has no discovery document"},
		{flag: "keys-expire", path: "static_keys.expiration_time", help: "`TIME` when those keys stop being trusted (in a year)"},
		{flag: "aws-account", path: "aws_identity.aws_account", help: "`ID` of an AWS account, twelve digits"},
		{flag: "aws-arn", path: "aws_identity.arn", help: "`ARN` of the caller in AWS"},
		{flag: "aws-arn-pattern", path: "aws_identity.arn_pattern", help: "`PATTERN` (RE2) of ARNs"},
		{flag: "aws-user-id", path: "aws_identity.user_id", help: "user `ID` of the caller in AWS"},
		{flag: "aws-user-id-pattern", path: "aws_identity.user_id_pattern", help: "`PATTERN` (RE2) of user ids"},
		{flag: "service-principal", path: "service_principal", help: "`NAME` of the part of the service that it is for"},
	}
}

// staticPaths is where flags that claim matches and static keys share go for the
// latter.
var staticPaths = map[string]string{
	"claim_match.issuer": "static_keys.issuer", "claim_match.subject": "static_keys.subject", "claim_match.audience": "static_keys.audiences",
}

// proofPaths tells where --issuer and its neighbours belong: with keys given, or
// kept from before, to those.
func proofPaths(ctx context.Context, a *app, cmd *cobra.Command, uid string) (func(string) string, error) {
	static := cmd.Flags().Changed("issuer-keys-file")
	shared := slices.ContainsFunc([]string{"issuer", "subject", "audience"}, cmd.Flags().Changed)
	if !static && shared && uid != "" {
		m, err := a.get(ctx, identities(), uid)
		if err != nil {
			return nil, err
		}
		static = m.Has(m.Descriptor().Fields().ByName("static_keys"))
	}
	return func(path string) string {
		if to, ok := staticPaths[path]; static && ok {
			return to
		}
		return path
	}, nil
}

// proofOf says in one cell how an identity is proven.
func proofOf(m protoreflect.Message) string {
	i, ok := m.Interface().(*iampb.Identity)
	if !ok {
		return ""
	}
	switch r := i.GetRelationship().(type) {
	case *iampb.Identity_ClaimMatch_:
		return eitherOf(r.ClaimMatch.GetSubject(), r.ClaimMatch.GetSubjectPattern()) + " at " +
			eitherOf(r.ClaimMatch.GetIssuer(), r.ClaimMatch.GetIssuerPattern()) + furtherClaims(r.ClaimMatch)
	case *iampb.Identity_StaticKeys_:
		return r.StaticKeys.GetSubject() + " at " + r.StaticKeys.GetIssuer() + ", by keys until " +
			shortTime(r.StaticKeys.GetExpirationTime().AsTime())
	case *iampb.Identity_AwsIdentity:
		who := eitherOf(r.AwsIdentity.GetArn(), r.AwsIdentity.GetArnPattern())
		if who == "" {
			who = eitherOf(r.AwsIdentity.GetUserId(), r.AwsIdentity.GetUserIdPattern())
		}
		return fmt.Sprintf("%s in AWS account %s", who, r.AwsIdentity.GetAwsAccount())
	case *iampb.Identity_ServicePrincipal:
		return "service " + strings.ToLower(strings.TrimPrefix(r.ServicePrincipal.String(), "SERVICE_PRINCIPAL_"))
	}
	return ""
}

// furtherClaims are those beside the usual ones.
func furtherClaims(m *iampb.Identity_ClaimMatch) string {
	var all []string
	for claim, value := range m.GetClaims() {
		all = append(all, claim+"="+value)
	}
	for claim, pattern := range m.GetClaimPatterns() {
		all = append(all, claim+"=/"+pattern+"/")
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return " with " + strings.Join(all, ", ")
}

// eitherOf is an exact value, or a pattern between slashes.
func eitherOf(exact, pattern string) string {
	if exact == "" && pattern != "" {
		return "/" + pattern + "/"
	}
	return exact
}

func (a *app) lookupIdentity() *cobra.Command {
	var issuer, subject string
	cmd := &cobra.Command{
		Use: "lookup --issuer ADDRESS --subject SUBJECT", Short: "Print the uid of a person, who need not have signed in yet",
		Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			req := &iampb.LookupIdentityRequest{Issuer: issuer, Subject: subject}
			m, err := call(ctx, iampb.NewIdentitiesServiceClient(a).LookupIdentity, req,
				map[string]string{"issuer": "--issuer", "subject": "--subject"})
			if err != nil {
				return err
			}
			fmt.Fprintln(a.out, m.GetUid())
			return nil
		}),
	}
	cmd.Flags().StringVar(&issuer, "issuer", "", "`ADDRESS` of the issuer they sign in with")
	cmd.Flags().StringVar(&subject, "subject", "", "`SUBJECT` the issuer knows them by")
	return cmd
}
