// Package recipe has the instructions of the wizard for products that are identity providers.
package recipe

import (
	"slices"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// A Recipe contains the wizard's instructions for a product that is an identity provider.
// docs/identity-providers.md has the long form.
type Recipe struct {
	Name   string // value of --recipe, and the suggested name of the provider
	Title  string
	Steps  []string // steps at the provider; the redirect address is shown before them
	Issuer string   // form of the issuer's address
	Traps  []string

	Scopes []string
	Groups string // claim that lists groups
	Rule   iampb.IdentityProvider_OIDC_CorrelationRule
}

// All are all recipes, in the order of the wizard.
var All = []Recipe{
	{
		Name: "entra", Title: "Microsoft Entra ID", Issuer: "https://login.microsoftonline.com/TENANT-ID/v2.0",
		Steps: []string{
			"App registrations, New registration: accounts in this directory only; redirect URI of the platform Web",
			"Certificates & secrets, New client secret: copy its value, not its ID",
			"Token configuration, Add groups claim: groups assigned to the application, as group IDs",
			"Overview shows the application (client) ID and the directory (tenant) ID",
		},
		Traps: []string{
			"the issuer has the ID of the directory; common and organizations do not work",
			"Entra does not say that an address is verified, so invites to an address need another way in",
		},
		Groups: "groups", Rule: iampb.IdentityProvider_OIDC_CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID,
	},
	{
		Name: "okta", Title: "Okta", Issuer: "https://acme.okta.com",
		Steps: []string{
			"Applications, Create App Integration: OIDC, Web Application; grant type Authorization Code",
			"Sign-in redirect URIs: the address above, and no other; then assign people or groups",
			"Sign On, OpenID Connect ID Token, Groups claim filter: groups, matches regex, .*",
			"General shows the client ID and the secret",
		},
		Traps: []string{
			"a custom authorization server is another issuer: https://acme.okta.com/oauth2/default",
			"the address with -admin in it is not the issuer",
		},
		Scopes: []string{"groups"}, Groups: "groups",
	},
	{
		Name: "google", Title: "Google Workspace", Issuer: "https://accounts.google.com",
		Steps: []string{
			"Google Cloud console, Google Auth Platform, Audience: Internal",
			"Clients, Create client: Web application; authorized redirect URIs: the address above",
			"Copy the client ID and the secret when they are shown",
		},
		Traps: []string{
			"with the audience External, everybody with a Google account can sign in and gets the default role",
			"Google tells no groups: give roles by hand or by invites",
		},
	},
	{
		Name: "keycloak", Title: "Keycloak", Issuer: "https://sso.example.com/realms/REALM",
		Steps: []string{
			"in the realm: Clients, Create client: OpenID Connect; Client authentication on; Standard flow only",
			"Valid redirect URIs: the address above, without a wildcard",
			"Client scopes, the dedicated one, Add mapper by configuration: Group Membership, claim groups, full path off",
			"Credentials shows the client secret",
		},
		Traps: []string{
			"the realm is part of the issuer; before version 17 it is below /auth/realms/",
			"the issuer follows the address of the request unless the hostname of Keycloak is set",
		},
		Groups: "groups",
	},
	{
		Name: "gitlab", Title: "GitLab", Issuer: "https://gitlab.example.com",
		Steps: []string{
			"Admin area, Applications (or those of a group), New application: confidential",
			"Redirect URI: the address above; scopes openid, profile and email",
			"copy the application ID and the secret",
		},
		Traps: []string{
			"at gitlab.com, everybody with an account can sign in and gets the default role",
			"groups_direct has the groups somebody is a direct member of, with their full paths",
		},
		Groups: "groups_direct",
	},
	{
		Name: "other", Title: "another OpenID Connect provider", Issuer: "https://login.example.com",
		Steps: []string{"register a confidential web client for the authorization code flow, with the address above"},
		Traps: []string{"the issuer is the address before /.well-known/openid-configuration, character by character"},
	},
}

// Names returns the names of all recipes.
func Names() (names []string) {
	for _, r := range All {
		names = append(names, r.Name)
	}
	return names
}

// Find returns the recipe with a name, or with a number counted from 1.
func Find(text string) (Recipe, bool) {
	i := slices.IndexFunc(All, func(r Recipe) bool { return r.Name == text })
	if len(text) == 1 && text[0] >= '1' && int(text[0]-'1') < len(All) {
		i = int(text[0] - '1')
	}
	if i < 0 {
		return Recipe{}, false
	}
	return All[i], true
}
