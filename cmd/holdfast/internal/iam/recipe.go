package iam

import (
	"slices"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// A recipe contains the wizard's instructions for a product that is an identity provider.
// docs/identity-providers.md has the long form.
type recipe struct {
	name   string // value of --recipe, and the suggested name of the provider
	title  string
	steps  []string // steps at the provider; the redirect address is shown before them
	issuer string   // form of the issuer's address
	traps  []string

	scopes []string
	groups string // claim that lists groups
	rule   iampb.IdentityProvider_OIDC_CorrelationRule
}

var recipes = []recipe{
	{
		name: "entra", title: "Microsoft Entra ID", issuer: "https://login.microsoftonline.com/TENANT-ID/v2.0",
		steps: []string{
			"App registrations, New registration: accounts in this directory only; redirect URI of the platform Web",
			"Certificates & secrets, New client secret: copy its value, not its ID",
			"Token configuration, Add groups claim: groups assigned to the application, as group IDs",
			"Overview shows the application (client) ID and the directory (tenant) ID",
		},
		traps: []string{
			"the issuer has the ID of the directory; common and organizations do not work",
			"Entra does not say that an address is verified, so invites to an address need another way in",
		},
		groups: "groups", rule: iampb.IdentityProvider_OIDC_CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID,
	},
	{
		name: "okta", title: "Okta", issuer: "https://acme.okta.com",
		steps: []string{
			"Applications, Create App Integration: OIDC, Web Application; grant type Authorization Code",
			"Sign-in redirect URIs: the address above, and no other; then assign people or groups",
			"Sign On, OpenID Connect ID Token, Groups claim filter: groups, matches regex, .*",
			"General shows the client ID and the secret",
		},
		traps: []string{
			"a custom authorization server is another issuer: https://acme.okta.com/oauth2/default",
			"the address with -admin in it is not the issuer",
		},
		scopes: []string{"groups"}, groups: "groups",
	},
	{
		name: "google", title: "Google Workspace", issuer: "https://accounts.google.com",
		steps: []string{
			"Google Cloud console, Google Auth Platform, Audience: Internal",
			"Clients, Create client: Web application; authorized redirect URIs: the address above",
			"Copy the client ID and the secret when they are shown",
		},
		traps: []string{
			"with the audience External, everybody with a Google account can sign in and gets the default role",
			"Google tells no groups: give roles by hand or by invites",
		},
	},
	{
		name: "keycloak", title: "Keycloak", issuer: "https://sso.example.com/realms/REALM",
		steps: []string{
			"in the realm: Clients, Create client: OpenID Connect; Client authentication on; Standard flow only",
			"Valid redirect URIs: the address above, without a wildcard",
			"Client scopes, the dedicated one, Add mapper by configuration: Group Membership, claim groups, full path off",
			"Credentials shows the client secret",
		},
		traps: []string{
			"the realm is part of the issuer; before version 17 it is below /auth/realms/",
			"the issuer follows the address of the request unless the hostname of Keycloak is set",
		},
		groups: "groups",
	},
	{
		name: "gitlab", title: "GitLab", issuer: "https://gitlab.example.com",
		steps: []string{
			"Admin area, Applications (or those of a group), New application: confidential",
			"Redirect URI: the address above; scopes openid, profile and email",
			"copy the application ID and the secret",
		},
		traps: []string{
			"at gitlab.com, everybody with an account can sign in and gets the default role",
			"groups_direct has the groups somebody is a direct member of, with their full paths",
		},
		groups: "groups_direct",
	},
	{
		name: "other", title: "another OpenID Connect provider", issuer: "https://login.example.com",
		steps: []string{"register a confidential web client for the authorization code flow, with the address above"},
		traps: []string{"the issuer is the address before /.well-known/openid-configuration, character by character"},
	},
}

func recipeNames() (names []string) {
	for _, r := range recipes {
		names = append(names, r.name)
	}
	return names
}

// recipeOf returns the recipe with a name, or with a number counted from 1.
func recipeOf(text string) (recipe, bool) {
	i := slices.IndexFunc(recipes, func(r recipe) bool { return r.name == text })
	if len(text) == 1 && text[0] >= '1' && int(text[0]-'1') < len(recipes) {
		i = int(text[0] - '1')
	}
	if i < 0 {
		return recipe{}, false
	}
	return recipes[i], true
}
