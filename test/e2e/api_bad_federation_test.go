package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func badProviders(x things) map[string]badRequest {
	create := func(change func(*iampb.IdentityProvider)) proto.Message {
		p := provider("x")
		change(p)
		return &iampb.CreateIdentityProviderRequest{Parent: x.folder, IdentityProvider: p}
	}
	update := func(p *iampb.IdentityProvider, paths ...string) proto.Message {
		p.Uid = x.provider
		return &iampb.UpdateIdentityProviderRequest{IdentityProvider: p, UpdateMask: mask(paths...)}
	}
	table := map[string]badRequest{
		"create with no provider":    {"name", &iampb.CreateIdentityProviderRequest{Parent: x.folder}},
		"create of nothing":          {"oidc", create(func(p *iampb.IdentityProvider) { p.Configuration = nil })},
		"create of an empty client":  {"oidc.issuer", create(func(p *iampb.IdentityProvider) { p.GetOidc().Reset() })},
		"create without a role":      {"default_role", create(func(p *iampb.IdentityProvider) { p.DefaultRole = "" })},
		"create with a role by name": {"default_role", create(func(p *iampb.IdentityProvider) { p.DefaultRole = "viewer" })},
		"update to nothing":          {"oidc", update(&iampb.IdentityProvider{}, "oidc")},
		"update to no role":          {"default_role", update(&iampb.IdentityProvider{}, "default_role")},
		"update to a role by name":   {"default_role", update(&iampb.IdentityProvider{DefaultRole: "viewer"}, "defaultRole")},
		"replaced by nothing":        {"name", update(&iampb.IdentityProvider{}, "*")},
		"replaced without a secret":  {"oidc.client_secret", update(withoutSecret(), "*")},
		"a role of a group below": {
			"default_role", &iampb.CreateIdentityProviderRequest{Parent: x.org, IdentityProvider: roled(x.role)},
		},
		"update to one's own provider": {
			"default_role", update(&iampb.IdentityProvider{DefaultRole: x.provider + "/0123456789abcdef"}, "default_role"),
		},
	}
	for value, name := range badNames {
		table["create with "+value] = badRequest{"name", create(func(p *iampb.IdentityProvider) { p.Name = name })}
		table["update to "+value] = badRequest{"name", update(&iampb.IdentityProvider{Name: name}, "name")}
	}
	for value, text := range badDescriptions {
		table["create described by "+value] = badRequest{"description", create(func(p *iampb.IdentityProvider) {
			p.Description = text
		})}
		table["update to description of "+value] = badRequest{
			"description", update(&iampb.IdentityProvider{Description: text}, "description"),
		}
	}
	return table
}

func withoutSecret() *iampb.IdentityProvider {
	p := provider("x")
	p.GetOidc().ClientSecret = ""
	return p
}

func roled(role string) *iampb.IdentityProvider {
	p := provider("x")
	p.DefaultRole = role
	return p
}

// badOIDC returns requests with invalid values. Each value is in a request that creates a provider and in a request
// that updates one.
func badOIDC(x things) map[string]badRequest {
	type client = iampb.IdentityProvider_OIDC
	table := map[string]badRequest{}
	add := func(name, field string, change func(*client)) {
		p := provider("x")
		change(p.GetOidc())
		table["create with "+name] = badRequest{
			"oidc." + field, &iampb.CreateIdentityProviderRequest{Parent: x.folder, IdentityProvider: p},
		}
		changed := &iampb.IdentityProvider{Uid: x.provider, Configuration: &iampb.IdentityProvider_Oidc{Oidc: p.GetOidc()}}
		table["update to "+name] = badRequest{
			"oidc." + field, &iampb.UpdateIdentityProviderRequest{IdentityProvider: changed, UpdateMask: mask("oidc." + field)},
		}
	}
	for value, issuer := range map[string]string{
		"no issuer":                    "",
		"an issuer that is no address": "login.example",
		"an issuer of another scheme":  "ftp://login.example",
		"an issuer without a host":     "https://",
		"an issuer with a query":       "https://login.example?x",
		"an issuer with a fragment":    "https://login.example#x",
		"an issuer with a password":    "https://u:p@login.example",
		"an issuer with a NUL":         "https://login.example/\x00",
		"an issuer with a space":       "https://login example",
		"an issuer without end":        "https://login.example/" + strings.Repeat("x", 2049),
	} {
		add(value, "issuer", func(c *client) { c.Issuer = issuer })
	}
	for value, text := range badTexts {
		add("client of "+value, "client_id", func(c *client) { c.ClientId = text })
		add("secret of "+value, "client_secret", func(c *client) { c.ClientSecret = text })
		add("claim of "+value, "groups_claim", func(c *client) { c.GroupsClaim = text })
	}
	for value, scope := range map[string]string{
		"an empty scope":            "",
		"two scopes in one":         "a b",
		"a quoted scope":            `"a"`,
		"a scope with a backslash":  `a\b`,
		"a scope with a NUL":        "a\x00",
		"a scope with an umlaut":    "ä",
		"a scope with a line break": "a\n",
		"an endless scope":          strings.Repeat("a", 257),
	} {
		add(value, "additional_scopes", func(c *client) { c.AdditionalScopes = []string{"email", scope} })
	}
	add("too many scopes", "additional_scopes", func(c *client) {
		c.AdditionalScopes = strings.Split(strings.Repeat("a ", 32)+"a", " ")
	})
	add("no client", "client_id", func(c *client) { c.ClientId = "" })
	add("no secret", "client_secret", func(c *client) { c.ClientSecret = "" })
	add("no known rule", "correlation_rule", func(c *client) { c.CorrelationRule = 99 })
	add("a negative rule", "correlation_rule", func(c *client) { c.CorrelationRule = -1 })
	return table
}

func badAssociations(x things) map[string]badRequest {
	table := map[string]badRequest{
		"create with no association": {"name", &iampb.CreateAccountAssociationRequest{Parent: x.org}},
		"create of nothing": {
			"account_association",
			&iampb.CreateAccountAssociationRequest{Parent: x.org, AccountAssociation: &iampb.AccountAssociation{Name: "x"}},
		},
		"update to nothing": {"account_association", &iampb.UpdateAccountAssociationRequest{
			AccountAssociation: &iampb.AccountAssociation{Uid: x.folder}, UpdateMask: mask("amazon"),
		}},
		"check of nothing":    {"provider_type", &iampb.CheckAccountAssociationRequest{Uid: x.folder}},
		"check of no known":   {"provider_type", &iampb.CheckAccountAssociationRequest{Uid: x.folder, ProviderType: 99}},
		"check of a negative": {"provider_type", &iampb.CheckAccountAssociationRequest{Uid: x.folder, ProviderType: -1}},
		"update to no account": {
			"amazon.account",
			&iampb.UpdateAccountAssociationRequest{
				AccountAssociation: &iampb.AccountAssociation{Uid: x.folder}, UpdateMask: mask("amazon.account"),
			},
		},
	}
	add := func(name, field, path string, change func(*iampb.AccountAssociation)) {
		addAssociation(table, x, name, field, path, change)
	}
	for value, name := range badNames {
		add(value, "name", "name", func(a *iampb.AccountAssociation) { a.Name = name })
	}
	for value, text := range badDescriptions {
		add("description of "+value, "description", "description", func(a *iampb.AccountAssociation) { a.Description = text })
	}
	for _, number := range []string{"", "12345678901", "1234567890123", "12345678901a", "123456789012\n", "１２３４５６７８９０１２"} {
		add("account "+number, "amazon.account", "amazon", func(a *iampb.AccountAssociation) { a.Amazon.Account = number })
	}
	google := func(id, number string) func(*iampb.AccountAssociation) {
		return func(a *iampb.AccountAssociation) {
			a.Google = &iampb.AccountAssociation_Google{ProjectId: id, ProjectNumber: number}
		}
	}
	add("no project", "google.project_id", "google", google("", "123"))
	add("no project number", "google.project_number", "google", google("my-project", ""))
	for value, text := range badTexts {
		add("project of "+value, "google.project_id", "google", google(text, "123"))
		add("project number of "+value, "google.project_number", "google", google("my-project", text))
	}
	const tenant = "01234567-89ab-cdef-0123-456789abcdef"
	azure := func(id string, apps map[string]string) func(*iampb.AccountAssociation) {
		return func(a *iampb.AccountAssociation) {
			a.Azure = &iampb.AccountAssociation_Azure{TenantId: id, ClientIds: apps}
		}
	}
	many := map[string]string{}
	for n := range 33 {
		many[fmt.Sprint("app", n)] = tenant
	}
	for _, id := range []string{
		"", "tenant", tenant[1:], tenant + "0", "g" + tenant[1:], "{" + tenant + "}", tenant + "\n",
	} {
		add("tenant "+id, "azure.tenant_id", "azure", azure(id, nil))
		add("application "+id, "azure.client_ids", "azure", azure(tenant, map[string]string{"app": id}))
	}
	for value, name := range badTexts {
		add("application named by "+value, "azure.client_ids", "azure", azure(tenant, map[string]string{name: tenant}))
	}
	add("too many applications", "azure.client_ids", "azure", azure(tenant, many))
	return table
}

// addAssociation adds two requests with an invalid value to the table: one creates an account association, the other
// updates the existing one.
func addAssociation(
	table map[string]badRequest, x things, name, field, path string, change func(*iampb.AccountAssociation),
) {
	a := account("x")
	change(a)
	b := proto.Clone(a).(*iampb.AccountAssociation)
	b.Uid = x.folder
	table[fmt.Sprintf("create with %.60q", name)] = badRequest{
		field, &iampb.CreateAccountAssociationRequest{Parent: x.folder, AccountAssociation: a},
	}
	table[fmt.Sprintf("update to %.60q", name)] = badRequest{
		field, &iampb.UpdateAccountAssociationRequest{AccountAssociation: b, UpdateMask: mask(path)},
	}
}

func badInstallations(x things) map[string]badRequest {
	table := map[string]badRequest{}
	github := func(name string, app int64, installations ...*iampb.AccountAssociation_GitHubInstallation) {
		addAssociation(table, x, name, "github.app_installations", "github", func(a *iampb.AccountAssociation) {
			a.Github = &iampb.AccountAssociation_GitHub{
				AppInstallations: map[int64]*iampb.AccountAssociation_GitHubAppInstallations{app: {Installations: installations}},
			}
		})
	}
	one := func(id int64, name string) *iampb.AccountAssociation_GitHubInstallation {
		return &iampb.AccountAssociation_GitHubInstallation{InstallationId: id, Name: name}
	}
	many := make([]*iampb.AccountAssociation_GitHubInstallation, 1001)
	for i := range many {
		many[i] = one(int64(i+1), "")
	}
	github("app 0", 0, one(1, "x"))
	github("a negative app", -1, one(1, "x"))
	github("an app of no installation", 0)
	github("installation 0", 1, one(0, "x"))
	github("a negative installation", 1, one(1, "x"), one(-1<<63, "x"))
	github("too many installations", 1, many...)
	addAssociation(table, x, "too many apps", "github.app_installations", "github", func(a *iampb.AccountAssociation) {
		a.Github = &iampb.AccountAssociation_GitHub{
			AppInstallations: map[int64]*iampb.AccountAssociation_GitHubAppInstallations{},
		}
		for i := range many {
			a.Github.AppInstallations[int64(i+1)] = &iampb.AccountAssociation_GitHubAppInstallations{}
		}
	})
	github("nothing but wrong installations", 1,
		slices.Repeat([]*iampb.AccountAssociation_GitHubInstallation{one(0, "\x00")}, 5000)...)
	for value, text := range badTexts {
		github("an installation named by "+value, 1, one(1, text))
	}
	services := func(name, field string, identities map[string]string) {
		a := account("x")
		a.Uid = x.folder
		table["create with "+name] = badRequest{
			field,
			&iampb.CreateAccountAssociationRequest{
				Parent: x.folder, AccountAssociation: withServices(account("x"), identities),
			},
		}
		m := withServices(a, identities)
		path := string(m.ProtoReflect().Descriptor().Fields().ByNumber(7).Name())
		table["update to "+name] = badRequest{
			field, &iampb.UpdateAccountAssociationRequest{AccountAssociation: m, UpdateMask: mask(path)},
		}
	}
	tooMany := map[string]string{}
	for n := range 33 {
		tooMany[fmt.Sprint("service", n)] = x.service
	}
	services("too many services", "service_bindings", tooMany)
	services("a service of nobody", "service_bindings", map[string]string{"INGESTER": ""})
	services("a service of a word", "service_bindings", map[string]string{"INGESTER": "ingester"})
	services("a service of another group", "service_bindings", map[string]string{"INGESTER": x.org + "/0123456789abcdef"})
	services("a service of no identity", "service_bindings[INGESTER]", map[string]string{
		"INGESTER": x.folder + "/0123456789abcdef",
	})
	services("a service of a bad segment", "service_bindings", map[string]string{"INGESTER": x.folder + "/x"})
	services("a service of a NUL", "service_bindings", map[string]string{"INGESTER": x.folder + "/\x00"})
	services("a service of a workload", "service_bindings[INGESTER]", map[string]string{"INGESTER": x.identity})
	services("a service of another", "service_bindings[COSIGNED]", map[string]string{"COSIGNED": x.service})
	services("an unknown service", "service_bindings[NOTHING]", map[string]string{"NOTHING": x.service})
	services("a service without a name", "service_bindings[]", map[string]string{"": x.service})
	services("an endless service", "service_bindings", map[string]string{strings.Repeat("x", 1<<20): x.service})
	services("an endless service elsewhere", "service_bindings", map[string]string{strings.Repeat("x", 1<<20): x.org})
	return table
}

func badInvites(x things) map[string]badRequest {
	create := func(change func(*iampb.GroupInvite)) proto.Message {
		i := invitation()
		change(i)
		return &iampb.CreateGroupInviteRequest{Parent: x.folder, GroupInvite: i}
	}
	table := map[string]badRequest{
		"with no invite": {"role_uid", &iampb.CreateGroupInviteRequest{Parent: x.folder}},
		"without a role": {"role_uid", create(func(i *iampb.GroupInvite) { i.RoleUid = "" })},
		"a role of a group below": {
			"role_uid",
			&iampb.CreateGroupInviteRequest{
				Parent: x.org, GroupInvite: &iampb.GroupInvite{RoleUid: x.role, Ttl: durationpb.New(time.Hour)},
			},
		},
		"without an end": {"ttl", create(func(i *iampb.GroupInvite) { i.Ttl = nil })},
	}
	for _, ttl := range []time.Duration{0, -time.Hour, time.Minute - 1, 30*24*time.Hour + 1, 200 * 365 * 24 * time.Hour} {
		table["for "+ttl.String()] = badRequest{"ttl", create(func(i *iampb.GroupInvite) { i.Ttl = durationpb.New(ttl) })}
	}
	table["for ten thousand years"] = badRequest{"ttl", create(func(i *iampb.GroupInvite) {
		i.Ttl = &durationpb.Duration{Seconds: 315_576_000_000}
	})}
	for value, email := range map[string]string{
		"a word":             "ada",
		"no name":            "@people.example",
		"no host":            "ada@",
		"two":                "ada@people.example,bob@people.example",
		"a display name":     "Ada <ada@people.example>",
		"brackets":           "<ada@people.example>",
		"a space":            "ada @people.example",
		"a line break":       "ada@people.example\nBcc: x@y.example",
		"a comment":          "ada@people.example (x)",
		"a NUL":              "ada\x00@people.example",
		"endless":            strings.Repeat("a", 2049) + "@people.example",
		"a space at the end": "ada@people.example ",
	} {
		table["for address: "+value] = badRequest{"email", create(func(i *iampb.GroupInvite) { i.Email = email })}
	}
	return table
}

func badMappings(x things) map[string]badRequest {
	create := func(change func(*iampb.ExternalGroupRoleMapping)) proto.Message {
		m := mapping("x")
		change(m)
		return &iampb.CreateExternalGroupRoleMappingRequest{Parent: x.provider, ExternalGroupRoleMapping: m}
	}
	batch := func(names ...string) proto.Message {
		return &iampb.BatchDeleteExternalGroupRoleMappingsRequest{Parent: x.provider, Names: names}
	}
	table := map[string]badRequest{
		"with no mapping": {"external_group_id", &iampb.CreateExternalGroupRoleMappingRequest{Parent: x.provider}},
		"of no group": {"external_group_id", create(func(m *iampb.ExternalGroupRoleMapping) {
			m.ExternalGroupId = ""
		})},
		"to no role":            {"role_uid", create(func(m *iampb.ExternalGroupRoleMapping) { m.RoleUid = "" })},
		"to a role of a folder": {"role_uid", create(func(m *iampb.ExternalGroupRoleMapping) { m.RoleUid = x.role })},
		"on a folder":           {"scope", create(func(m *iampb.ExternalGroupRoleMapping) { m.Scope = x.folder })},
		"on another organization": {"scope", create(func(m *iampb.ExternalGroupRoleMapping) {
			m.Scope = strings.Repeat("0", 40)
		})},
		"batch of none":            {"names", batch()},
		"batch of 101":             {"names", batch(strings.Split(strings.Repeat(x.mapping+" ", 100)+x.mapping, " ")...)},
		"batch with another's":     {"names[1]", batch(x.mapping, x.folder+"/0123456789abcdef/0123456789abcdef")},
		"batch with the provider":  {"names[1]", batch(x.mapping, x.provider)},
		"batch with what is below": {"names[0]", batch(x.mapping + "/0123456789abcdef")},
	}
	for value, text := range badTexts {
		table["of group of "+value] = badRequest{"external_group_id", create(func(m *iampb.ExternalGroupRoleMapping) {
			m.ExternalGroupId = text
		})}
	}
	return table
}

// refusesFederatedRaw sends invalid requests that only HTTP can express, and checks that each is refused.
func (w *world) refusesFederatedRaw(t *testing.T, x things) {
	const base = "/iam/v2beta1/"
	providers, associations, invites := base+"identityProviders/"+x.folder, base+"accountAssociations/"+
		x.folder, base+"groupInvites/"+x.folder
	mappings := base + "externalGroupRoleMappings/" + x.provider
	w.refusesAsSent(t, map[string]rawRequest{
		"half a provider":        {"body", "POST", providers, `{"name":`},
		"an unknown key":         {"nmae", "POST", providers, `{"nmae":"x"}`},
		"an unknown key of OIDC": {"isuser", "POST", providers, `{"name":"x","oidc":{"isuser":"https://x.example"}}`},
		"an unknown rule":        {"correlationRule", "POST", providers, `{"name":"x","oidc":{"correlationRule":"NOPE"}}`},
		"a word for PKCE":        {"pkceEnabled", "POST", providers, `{"name":"x","oidc":{"pkceEnabled":"yes"}}`},
		"a word for scopes": {
			"additionalScopes", "POST", providers, `{"name":"x","oidc":{"additionalScopes":"email"}}`,
		},
		"a patch of an unknown key": {"nmae", "PATCH", base + "identityProviders/" + x.provider, `{"nmae":"x"}`},
		"a patch of a list":         {"body", "PATCH", base + "identityProviders/" + x.provider, `[]`},
		"an account of a number":    {"account", "POST", associations, `{"name":"x","amazon":{"account":123456789012}}`},
		"a list of accounts":        {"amazon", "POST", associations, `{"name":"x","amazon":[]}`},
		"an app of a word":          {"x", "POST", associations, `{"name":"x","github":{"appInstallations":{"x":{}}}}`},
		"an app twice": {
			"1", "POST", associations, `{"name":"x","github":{"appInstallations":{"1":{},"1":{}}}}`,
		},
		"an installation of a word": {
			"installationId", "POST", associations,
			`{"name":"x","github":{"appInstallations":{"1":{"installations":[{"installationId":"x"}]}}}}`,
		},
		"a check of a word": {
			"providerType", "POST", associations + ":checkAccountAssociation", `{"providerType":"GOOGLE"}`,
		},
		"a time for a ttl":   {"ttl", "POST", invites, `{"roleUid":"` + consoleViewer + `","ttl":"tomorrow"}`},
		"a number for a ttl": {"ttl", "POST", invites, `{"roleUid":"` + consoleViewer + `","ttl":3600}`},
		"minutes for a ttl":  {"ttl", "POST", invites, `{"roleUid":"` + consoleViewer + `","ttl":"60m"}`},
		"a ttl without end":  {"ttl", "POST", invites, `{"roleUid":"` + consoleViewer + `","ttl":"999999999999s"}`},
		"a word for a single use": {
			"singleUse", "POST", invites, `{"roleUid":"` + consoleViewer + `","ttl":"60s","singleUse":"once"}`,
		},
		"a mapping of a list": {"body", "POST", mappings, `[]`},
		"a group of a number": {"externalGroupId", "POST", mappings, `{"externalGroupId":1}`},
		"a batch of a word": {
			"names", "POST", base + "externalGroupRoleMappings:batchDelete", `{"parent":"` + x.provider + `","names":"x"}`,
		},
		"a batch of numbers": {
			"names", "POST", base + "externalGroupRoleMappings:batchDelete", `{"parent":"` + x.provider + `","names":[1]}`,
		},
		"a word for a page": {"page_size", "GET", base + "identityProviders?page_size=many", ""},
		"two key ids":       {"key_id", "GET", base + "groupInvites?key_id=a&keyId=b", ""},
		"two providers": {
			"identity_provider_uid", "GET",
			base + "externalGroupRoleMappings?identity_provider_uid=a&identity_provider_uid=b", "",
		},
		"a name of no UTF-8":       {"name", "GET", base + "accountAssociations?name=%ff", ""},
		"a capability of no UTF-8": {"capability", "GET", "/access/v1/check?capability=%ff", ""},
		"two places":               {"place_uid", "GET", "/access/v1/grants?place_uid=a&place_uid=b", ""},
		"a word for a skip":        {"skip", "GET", "/access/v1/grants?skip=some", ""},
		"a word for a dry run":     {"validate_only", "POST", invites + "?validate_only=maybe", `{}`},
	})
}
