package iam

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// Identities returns the Noun for identities.
func Identities() noun.Noun {
	return noun.Noun{
		Use: "identities", One: "identity",
		Short: "Create workloads, and find who can hold roles",
		About: "Identities can hold roles. The identity of a person is created at the first sign-in. The identity of a\n" +
			"workload is created here, with a rule for the tokens that prove it.",
		Example: "  holdfast iam identities create ci --parent acme/platform \\\n" +
			"    --issuer https://token.actions.githubusercontent.com --subject repo:acme/web:ref:refs/heads/main\n" +
			"  holdfast iam identities create pods --parent acme/platform --issuer https://cluster.example.com \\\n" +
			"    --subject-pattern 'system:serviceaccount:prod:.*' --claim environment=prod",
		Message:  noun.MessageOf(&iampb.Identity{}),
		Kind:     noun.Identities,
		Console:  identityPage,
		Argument: "name",
		Fields:   identityFields(),
		Filters: []noun.Field{
			{Flag: "type", Path: "relationship_type",
				Help: "only identities with this `KIND` of rule: claim-match, static, aws-identity or service-principal"},
		},
		ByName:  true,
		Columns: output.Columns("name", output.PathOf("path", "uid"), output.Text("proof", proofOf)),
		Wide:    output.Columns("uid", "displayName", "description", "email", "lastSeenTime", "createTime", "updateTime"),
		OtherFlags: map[string]string{"relationship": "--issuer and --subject, --issuer-keys-file, --aws-account or " +
			"--service-principal"},
		Rewrite: proofPaths,
		Extra:   []func(*noun.App) *cobra.Command{lookupIdentity, explain, exchanges, denials},
		Presets: identityPresets(),
	}
}

// identityPage returns the page of a person or a workload. Only a workload is in a group.
func identityPage(m protoreflect.Message) string {
	uid := noun.UIDOf(m)
	if noun.ParentUID(uid) == "" {
		return "/people/" + uid
	}
	return "/workloads/" + uid
}

func identityFields() []noun.Field {
	return []noun.Field{
		noun.DisplayName("identity"),
		noun.Description("identity"),
		{Flag: "issuer", Path: "claim_match.issuer", Help: "`ADDRESS` of the issuer of its tokens"},
		{Flag: "issuer-pattern", Path: "claim_match.issuer_pattern", Help: "`PATTERN` (RE2) of addresses of issuers"},
		{Flag: "subject", Path: "claim_match.subject", Help: "`SUBJECT` of its tokens"},
		{Flag: "subject-pattern", Path: "claim_match.subject_pattern", Help: "`PATTERN` (RE2) of subjects"},
		{Flag: "audience", Path: "claim_match.audience", Help: "`AUDIENCE` of its tokens (default: the server's issuer)"},
		{Flag: "audience-pattern", Path: "claim_match.audience_pattern", Help: "`PATTERN` (RE2) of audiences"},
		{Flag: "claim", Path: "claim_match.claims", Help: "another claim and its value, `KEY=VALUE`; can be repeated"},
		{Flag: "claim-pattern", Path: "claim_match.claim_patterns",
			Help: "another claim and a pattern (RE2) of its value, `KEY=PATTERN`; can be repeated"},
		{Flag: "issuer-keys-file", Path: "static_keys.issuer_keys", File: true,
			Help: "`FILE` with the public keys (JWKS) of an issuer that has no discovery document"},
		{Flag: "keys-expire", Path: "static_keys.expiration_time",
			Help: "`TIME` until which these keys are trusted (default: in a year)"},
		{Flag: "aws-account", Path: "aws_identity.aws_account", Help: "`ID` of the AWS account, twelve digits"},
		{Flag: "aws-arn", Path: "aws_identity.arn", Help: "`ARN` of the caller in AWS"},
		{Flag: "aws-arn-pattern", Path: "aws_identity.arn_pattern", Help: "`PATTERN` (RE2) of ARNs"},
		{Flag: "aws-user-id", Path: "aws_identity.user_id", Help: "user `ID` of the caller in AWS"},
		{Flag: "aws-user-id-pattern", Path: "aws_identity.user_id_pattern", Help: "`PATTERN` (RE2) of user ids"},
		{Flag: "service-principal", Help: "`NAME` of the service principal that may assume it"},
	}
}

// staticPaths maps the fields of claim matches whose flags also set static keys.
var staticPaths = map[string]string{
	"claim_match.issuer": "static_keys.issuer", "claim_match.subject": "static_keys.subject",
	"claim_match.audience": "static_keys.audiences",
}

// proofPaths decides which fields --issuer, --subject and --audience set: the fields of
// static keys, if static keys are given or the identity has them, and otherwise the
// fields of a claim match.
func proofPaths(ctx context.Context, a *noun.App, cmd *cobra.Command, uid string) (func(string) string, error) {
	static := cmd.Flags().Changed("issuer-keys-file")
	shared := slices.ContainsFunc([]string{"issuer", "subject", "audience"}, cmd.Flags().Changed)
	if !static && shared && uid != "" {
		m, err := a.Get(ctx, Identities(), uid)
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

// proofOf returns how an identity is proven.
func proofOf(i *iampb.Identity) string {
	switch r := i.GetRelationship().(type) {
	case *iampb.Identity_ClaimMatch_:
		return eitherOf(r.ClaimMatch.GetSubject(), r.ClaimMatch.GetSubjectPattern()) + " at " +
			eitherOf(r.ClaimMatch.GetIssuer(), r.ClaimMatch.GetIssuerPattern()) + furtherClaims(r.ClaimMatch)
	case *iampb.Identity_StaticKeys_:
		return r.StaticKeys.GetSubject() + " at " + r.StaticKeys.GetIssuer() + ", by keys until " +
			output.ShortTime(r.StaticKeys.GetExpirationTime().AsTime())
	case *iampb.Identity_AwsIdentity:
		caller := eitherOf(r.AwsIdentity.GetArn(), r.AwsIdentity.GetArnPattern())
		if caller == "" {
			caller = eitherOf(r.AwsIdentity.GetUserId(), r.AwsIdentity.GetUserIdPattern())
		}
		return fmt.Sprintf("%s in AWS account %s", caller, r.AwsIdentity.GetAwsAccount())
	case *iampb.Identity_ServicePrincipal:
		return "service " + strings.ToLower(strings.TrimPrefix(r.ServicePrincipal.String(), "SERVICE_PRINCIPAL_"))
	}
	return ""
}

// furtherClaims returns the required claims other than issuer, subject and audience.
func furtherClaims(m *iampb.Identity_ClaimMatch) string {
	var claims []string
	for claim, value := range m.GetClaims() {
		claims = append(claims, claim+"="+value)
	}
	for claim, pattern := range m.GetClaimPatterns() {
		claims = append(claims, claim+"=/"+pattern+"/")
	}
	if len(claims) == 0 {
		return ""
	}
	slices.Sort(claims)
	return " with " + strings.Join(claims, ", ")
}

// eitherOf returns an exact value, or a pattern between slashes.
func eitherOf(exact, pattern string) string {
	if exact == "" && pattern != "" {
		return "/" + pattern + "/"
	}
	return exact
}

func lookupIdentity(a *noun.App) *cobra.Command {
	var issuer, subject string
	cmd := &cobra.Command{
		Use: "lookup --issuer ADDRESS --subject SUBJECT", Short: "Print the uid of a person, even before the first sign-in",
		Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			req := &iampb.LookupIdentityRequest{Issuer: issuer, Subject: subject}
			m, err := signin.Call(ctx, iampb.NewIdentitiesServiceClient(a).LookupIdentity, req, "issuer=--issuer",
				"subject=--subject")
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, m.GetUid())
			return nil
		}),
	}
	cmd.Flags().StringVar(&issuer, "issuer", "", "`ADDRESS` of the issuer with which the person signs in")
	cmd.Flags().StringVar(&subject, "subject", "", "`SUBJECT` of the person at the issuer")
	return cmd
}
