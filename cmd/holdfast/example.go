package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// examples are the examples of short commands, and of commands that internal/noun makes
// from tables. The lines do not contain the name of the program.
var examples = map[string]string{
	"advisories list":                 "advisories list --parent acme --limit 20",
	"advisories get":                  "advisories get CVE-2026-1234",
	"advisories update":               "advisories update CVE-2026-1234 --help",
	"advisories delete":               "advisories delete CVE-2026-1234 --yes",
	"advisories feeds list":           "advisories feeds list --parent acme",
	"advisories feeds get":            "advisories feeds get UID",
	"advisories feeds update":         "advisories feeds update UID --help",
	"advisories feeds run":            "advisories feeds run acme/go",
	"advisories feeds delete":         "advisories feeds delete UID --yes",
	"auth configure-docker":           "auth configure-docker\nauth configure-docker --bin ~/.local/bin",
	"auth logout":                     "auth logout",
	"auth pull-token list":            "auth pull-token list --group acme/platform",
	"auth pull-token revoke":          "auth pull-token revoke acme/platform/laptop --yes",
	"config get":                      "config get api",
	"config unset":                    "config unset organization",
	"config use-dev":                  "config use-dev\nconfig use-dev /srv/holdfast/data/dev.json",
	"config view":                     "config view",
	"iam invites update":              "iam invites update UID --email ann@example.com --ttl 7d",
	"access requests approve":         "access requests approve UID",
	"access requests deny":            "access requests deny UID",
	"access requests hand-back":       "access requests hand-back UID",
	"access requests show":            "access requests show UID",
	"access rules delete":             "access rules delete UID --yes",
	"access rules list":               "access rules list --group acme",
	"operator status":                 "operator status",
	"events deliveries get":           "events deliveries get UID",
	"events deliveries list":          "events deliveries list --limit 20",
	"events subscriptions list":       "events subscriptions list --parent acme",
	"events subscriptions get":        "events subscriptions get UID",
	"events subscriptions delete":     "events subscriptions delete UID --yes",
	"iam account-associations list":   "iam account-associations list --parent acme --recursive",
	"iam account-associations get":    "iam account-associations get acme/platform",
	"iam account-associations check":  "iam account-associations check acme/platform --help",
	"iam account-associations update": "iam account-associations update acme/platform --description production",
	"iam account-associations delete": "iam account-associations delete acme/platform --yes",
	"iam accounts list":               "iam accounts list --parent acme",
	"iam accounts link":               "iam accounts link ann@example.com",
	"iam accounts delete":             "iam accounts delete ann@example.com --yes",
	"iam accounts on":                 "iam accounts on acme",
	"iam accounts off":                "iam accounts off acme",
	"iam budgets list":                "iam budgets list --parent acme --recursive",
	"iam budgets get":                 "iam budgets get acme/platform",
	"iam budgets update":              "iam budgets update acme/platform --help",
	"iam budgets delete":              "iam budgets delete acme/platform --yes",
	"iam group-mappings list":         "iam group-mappings list --parent acme --recursive",
	"iam group-mappings get":          "iam group-mappings get UID",
	"iam group-mappings delete":       "iam group-mappings delete UID --yes",
	"iam groups list":                 "iam groups list --parent acme --recursive\niam groups list --root -o id",
	"iam groups get":                  "iam groups get acme/platform -o json",
	"iam groups update": "iam groups update acme/platform --description " +
		"\"services of the platform team\"",
	"findings exceptions delete":              "findings exceptions delete 41c2bd7f0f6a2c11…/5f3c… --dry-run",
	"findings rules delete":                   "findings rules delete 41c2bd7f0f6a2c11…/5f3c…",
	"findings rules get":                      "findings rules get 41c2bd7f0f6a2c11…/5f3c…",
	"findings rules list":                     "findings rules list --parent acme",
	"findings sla delete":                     "findings sla delete acme --dry-run",
	"findings sla get":                        "findings sla get acme/platform",
	"findings rules update":                   "findings rules update 41c2bd7f0f6a2c11…/5f3c… --mode enforce",
	"iam groups delete":                       "iam groups delete acme/scratch --dry-run",
	"iam identities list":                     "iam identities list --parent acme/platform --type claim-match",
	"iam identities get":                      "iam identities get acme/platform/ci -o yaml",
	"iam identities update":                   "iam identities update acme/platform/ci --claim environment=prod",
	"iam identities delete":                   "iam identities delete acme/platform/ci --yes",
	"iam identities exchanges":                "iam identities exchanges acme/platform/ci",
	"iam identities denials":                  "iam identities denials acme/platform/ci",
	"iam identities lookup":                   "iam identities lookup --issuer https://acme.okta.com --subject 00u1a2b3",
	"iam identity-providers list":             "iam identity-providers list --parent acme",
	"iam identity-providers get":              "iam identity-providers get acme/okta -o json",
	"iam identity-providers redirect-address": "iam identity-providers redirect-address",
	"iam identity-providers scim disable":     "iam identity-providers scim disable acme/okta",
	"iam identity-providers scim enable":      "iam identity-providers scim enable acme/okta",
	"iam identity-providers scim held":        "iam identity-providers scim held acme/okta --discard",
	"iam identity-providers scim roles":       "iam identity-providers scim roles acme/okta --from teams --dry-run",
	"iam identity-providers scim status":      "iam identity-providers scim status acme/okta",
	"iam identity-providers scim update":      "iam identity-providers scim update acme/okta --required",
	"iam identity-providers scim token":       "iam identity-providers scim token acme/okta --expires 90d",
	"iam identity-providers test":             "iam identity-providers test acme/okta",
	"iam identity-providers update":           "iam identity-providers update acme/okta --default-role viewer",
	"iam identity-providers delete":           "iam identity-providers delete acme/okta --yes",
	"iam invites list":                        "iam invites list --parent acme --recursive",
	"iam invites get":                         "iam invites get UID",
	"iam invites delete":                      "iam invites delete UID --yes",
	"iam invites joins":                       "iam invites joins --parent acme",
	"iam invites redeem":                      "iam invites redeem - < code.txt",
	"iam issuers":                             "iam issuers",
	"iam role-bindings list":                  "iam role-bindings list --identity me",
	"iam role-bindings get":                   "iam role-bindings get UID",
	"iam role-bindings update":                "iam role-bindings update UID --role editor",
	"iam role-bindings delete":                "iam role-bindings delete UID --yes",
	"iam roles list":                          "iam roles list --built-in",
	"iam roles get":                           "iam roles get /viewer -o json",
	"iam roles update":                        "iam roles update acme/auditor --capability groups.list,identity.list",
	"iam roles delete":                        "iam roles delete acme/auditor --yes",
	"iam roles capabilities":                  "iam roles capabilities -o id",
	"login":                                   "login\nlogin --organization acme --headless",
	"logout":                                  "logout",
	"registry pulls list":                     "registry pulls list --repo acme/platform/app --limit 20",
	"registry images list":                    "registry images list acme/platform/app",
	"registry repos list":                     "registry repos list --parent acme --recursive",
	"registry repos get":                      "registry repos get acme/platform/app",
	"registry repos update": "registry repos update acme/platform/app --description " +
		"\"images for customers\"",
	"registry repos delete":        "registry repos delete acme/platform/app --dry-run",
	"registry retention get":       "registry retention get acme/platform/app",
	"registry retention delete":    "registry retention delete acme/platform/app --yes",
	"registry upstreams list":      "registry upstreams list --parent acme --recursive",
	"registry upstreams get":       "registry upstreams get docker.io",
	"registry upstreams update":    "registry upstreams update docker.io --fresh-for 10m",
	"registry upstreams delete":    "registry upstreams delete docker.io --yes",
	"registry replications list":   "registry replications list --parent acme --recursive",
	"registry replications get":    "registry replications get acme/prod/partner",
	"registry replications update": "registry replications update acme/prod/partner --paused",
	"registry replications delete": "registry replications delete acme/prod/partner --yes",
	"registry signers list":        "registry signers list --parent acme",
	"registry signers get":         "registry signers get acme/release",
	"registry signers delete":      "registry signers delete acme/release --dry-run",
	"registry settings get":        "registry settings get acme/platform",
	"registry settings update": "registry settings update acme/platform --immutable-tags " +
		"--immutable-except 'dev-*'",
	"registry settings delete": "registry settings delete acme/platform --yes",
	"registry trash list":      "registry trash list --parent acme --recursive",
	"registry trash get":       "registry trash get acme/platform/app:1.2",
	"registry trash delete":    "registry trash delete acme/platform/app:1.2 --yes",
	"registry tags list":       "registry tags list acme/platform/app",
	"registry tags get":        "registry tags get acme/platform/app:1.2",
	"registry tags delete":     "registry tags delete acme/platform/app:1.2 --yes",
	"version":                  "version",
}

// addExamples sets the examples of cmd and its subcommands if they have none of their
// own. It also replaces an example that does not contain the command's path, such as the
// example of an alias, which people know from other programs.
func addExamples(cmd *cobra.Command) {
	path := strings.TrimPrefix(cmd.CommandPath(), "holdfast ")
	if text, ok := examples[path]; ok && (cmd.Example == "" || !strings.Contains(cmd.Example, cmd.CommandPath())) {
		cmd.Example = "  holdfast " + strings.ReplaceAll(text, "\n", "\n  holdfast ")
	}
	for _, sub := range cmd.Commands() {
		addExamples(sub)
	}
	if cmd.Example == "" && cmd.HasParent() {
		cmd.Example = exampleOfSubcommands(cmd)
	}
}

// exampleOfSubcommands returns the first example of two subcommands: list and create if they exist, and otherwise the
// first ones.
func exampleOfSubcommands(cmd *cobra.Command) string {
	rank := func(c *cobra.Command) int { return slices.Index([]string{"create", "list"}, c.Name()) }
	subs := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return c.Example == "" })
	slices.SortStableFunc(subs, func(x, y *cobra.Command) int { return cmp.Compare(rank(y), rank(x)) })
	var lines []string
	for _, sub := range subs[:min(2, len(subs))] {
		line, rest, _ := strings.Cut(sub.Example, "\n")
		for strings.HasSuffix(line, "\\") { // the command continues on the next line
			var more string
			more, rest, _ = strings.Cut(rest, "\n")
			line += "\n" + more
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
