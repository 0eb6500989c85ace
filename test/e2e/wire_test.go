package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// v1Walk calls every kind of method in version 1. Each call comes after the calls that create its resources. Lists
// have a filter that finds a single resource, because lists are sorted by UID, and UIDs are random.
var v1Walk = []visit{
	{"ping", "GET", "/ping/v1/ping", ``},
	{"group", "POST", "/iam/v1/groups/{org}", `{"name":"team","description":"d"}`},
	{"groups", "GET", "/iam/v1/groups?id={group}", ``},
	{"update group", "PUT", "/iam/v1/groups/{group}", `{"name":"team"}`},
	{
		"identity", "POST", "/iam/v1/identities/{group}",
		`{"name":"pipeline","claimMatch":{"issuer":"https://ci.example","subjectPattern":"repo:.+","claims":{"ref":"main"}}}`,
	},
	{
		"AWS identity", "POST", "/iam/v1/identities/{group}",
		`{"name":"cloud","awsIdentity":{"awsAccount":"123456789012","arn":"arn:aws:iam::123456789012:user/x"}}`,
	},
	{"identities", "GET", "/iam/v1/identities?id={identity}", ``},
	{"lookup", "GET", "/iam/v1/identities/lookup?issuer=https://ci.example&subject=s", ``},
	{
		"metadata", "PATCH", "/iam/v1/identities/metadata",
		`{"onboardingQuestions":{"companyName":"acme","jobTitle":"j"},"updatesOptIn":true}`,
	},
	{"a person", "POST", "/iam/v1/identities", `{"issuer":"https://ci.example","subject":"s"}`},
	{
		"role", "POST", "/iam/v1/roles/{group}",
		`{"name":"reader","description":"d","capabilities":["groups.list","repo.list"]}`,
	},
	{"roles", "GET", "/iam/v1/roles?id={role}", ``},
	{"binding", "POST", "/iam/v1/rolebindings/{group}", `{"identity":"{identity}","role":"{role}"}`},
	{"batch", "POST", "/iam/v1/rolebindings/batch/{group}", `[{"identity":"{AWS identity}","role":"{role}"}]`},
	{"bindings", "GET", "/iam/v1/rolebindings?id={binding}", ``},
	{
		"provider", "POST", "/iam/v1/identityProviders/{org}",
		`{"name":"idp","defaultRole":"{viewer}","oidc":{"issuer":"https://idp.example","clientId":"c",` +
			`"clientSecret":"s","additionalScopes":["email"]}}`,
	},
	{"providers", "GET", "/iam/v1/identityProviders?id={provider}", ``},
	{
		"mapping", "POST", "/iam/v1/externalGroupRoleMappings/{provider}",
		`{"externalGroupId":"admins","roleUidp":"{viewer}","scope":"{org}"}`,
	},
	{"mappings", "GET", "/iam/v1/externalGroupRoleMappings?identity_provider_uidp={provider}", ``},
	{"unmap", "POST", "/iam/v1/externalGroupRoleMappings:batchDelete", `{"parentId":"{provider}","ids":["{mapping}"]}`},
	{
		"invite", "POST", "/iam/v1/group_invites/{group}",
		`{"role":"{viewer}","ttl":"3600s","email":"a@b.example","singleUse":true}`,
	},
	{"invites", "GET", "/iam/v1/group_invites?id={invite}", ``},
	{
		"association", "POST", "/iam/v1/account_associations/{group}",
		`{"name":"account","amazon":{"account":"123456789012"},` +
			`"azure":{"tenantId":"00000000-0000-4000-8000-000000000000",` +
			`"clientIds":{"x":"00000000-0000-4000-8000-000000000001"}}}`,
	},
	{"associations", "GET", "/iam/v1/account_associations?group={group}", ``},
	{"check", "POST", "/iam/v1/account_associations/{group}:check", `{"accountType":"GOOGLE"}`},
	{"subscription", "POST", "/events/v1/subscriptions/{group}", `{"sink":"https://sink.example/x"}`},
	{"subscriptions", "GET", "/events/v1/subscriptions?id={subscription}", ``},
	{
		"repo", "POST", "/registry/v1/repos/{group}",
		`{"name":"made","catalogTier":"AI","bundles":["ai"],"readme":"# Made","aliases":["a:b"],"activeTags":["1"]}`,
	},
	{"update repo", "PUT", "/registry/v1/repos/{repo}", `{"name":"made","description":"d"}`},
	{"repos", "GET", "/registry/v1/repos?id={repo}", ``},
	{"followers", "GET", "/registry/v1/repocountbysource/{repo}", ``},
	{"tag", "POST", "/registry/v1/tags/{pushed}", `{"name":"stable","digest":"{digest}"}`},
	{"update tag", "PUT", "/registry/v1/tags/{tag}", `{"digest":"{digest}","deprecated":true}`},
	{"tags", "GET", "/registry/v1/tags?id={tag}", ``},
	{"tags at their end", "GET", "/registry/v1/eoltags?uidp.children_of={pushed}", ``},
	{"history", "GET", "/registry/v1/tags/{tag}/history", ``},
	{"summary", "GET", "/registry/v1/repotagssummary/{pushed}?exclude_referrers=true", ``},
	{"architectures", "GET", "/registry/v1/repos/{pushed}/digests/{digest}/architectures", ``},
	{"size", "GET", "/registry/v1/repos/{pushed}/digests/{digest}/size", ``},
	{"configuration", "GET", "/registry/v1/repos/{pushed}/digests/{digest}/imageconfig", ``},
	{"SBOM", "GET", "/registry/v1/repos/{pushed}/digests/{digest}/sbom", ``},
	{"raw SBOM", "GET", "/registry/v1/repos/{pushed}/digest/{digest}/rawsbom", ``},
	{"report", "GET", "/registry/v1/repos/{pushed}/digests/{digest}/vulnreport", ``},
	{"reports", "GET", "/registry/v1/vuln_reports?digest={digest}", ``},
	{"raw report", "GET", "/registry/v1/vuln_reports/raw?digest={digest}", ``},
	{"counts", "GET", "/registry/v1/vuln_reports/counts?repo=app", ``},
	{"manifests", "GET", "/registry/v1/repos/{pushed}/manifestmetdata", ``},
	{"number of manifests", "GET", "/registry/v1/digestcount/{pushed}", ``},
	{"chart", "GET", "/registry/v1/repos/{charts}/digests/{chart digest}/chart", ``},
	{"Helm", "GET", "/registry/v1/repos/{charts}/digests/{chart digest}/helm", ``},
	{"charts of an image", "GET", "/registry/v1/repos/{pushed}/chart-image-bindings", ``},
	{"versions", "GET", "/registry/v1/versions/go", ``},
	{"builds", "GET", "/registry/v1/buildreports", ``},
	{"build status", "GET", "/registry/v1/buildstatus", ``},
	{"update status", "GET", "/registry/v1/repos/{pushed}:updatestatus", ``},
	{"sync status", "GET", "/registry/v1/repos/{pushed}:syncstatus", ``},
	{"sync statuses", "GET", "/registry/v1/syncstatuses?registry_id={org}", ``},
	{
		"deployment", "POST", "/registry/v1/repos/{repo}/deployment",
		`{"charts":[{"repo":"https://charts.example.com","chart":"made"}]}`,
	},
	{
		"update deployment", "PUT", "/registry/v1/repos/{repo}/deployment",
		`{"charts":[{"source":"https://git.example/made","repo":"oci://registry.example/charts"}]}`,
	},
	{"get deployment", "GET", "/registry/v1/repos/{repo}/deployment", ``},
	{"settings", "PUT", "/registry/v1/settings/{group}", `{"uniqueTags":true}`},
	{"get settings", "GET", "/registry/v1/settings/{group}", ``},
	{
		"advisory", "POST", "/vulnerabilities/v1/advisories",
		`{"parentId":"{org}","advisory":{"advisoryId":"A-1","artifactName":"openssl","artifactType":"apk",` +
			`"componentName":"c","aliases":["CVE-2026-1"]}}`,
	},
	{
		"event", "POST", "/vulnerabilities/v1/advisories/{advisory}/events",
		`{"advisoryEvent":{"status":"PENDING","fixed":{"fixedVersion":"1.2"}}}`,
	},
	{"events", "GET", "/vulnerabilities/v1/advisories/{advisory}/events", ``},
	{"advisories", "GET", "/vulnerabilities/v1/advisories?id={advisory}", ``},
	{"not there", "GET", "/iam/v1/externalGroupRoleMappings/{org}/0123456789abcdef/0123456789abcdef", ``},
	{"not empty", "DELETE", "/iam/v1/groups/{group}", ``},
	{"delete", "DELETE", "/registry/v1/repos/{repo}", ``},
}

// v2beta1Walk calls the methods of version 2 that the documentation does not describe.
var v2beta1Walk = []visit{
	{"ping", "GET", "/ping/v2beta1/ping", ``},
	{"group", "POST", "/iam/v2beta1/groups/{org}", `{"name":"team"}`},
	{
		"identity", "POST", "/iam/v2beta1/identities/{group}",
		`{"name":"pipeline","claimMatch":{"issuer":"https://ci.example","subjectPattern":"repo:.+","claims":{"ref":"main"}}}`,
	},
	{"get identity", "GET", "/iam/v2beta1/identities/{identity}", ``},
	{"lookup", "GET", "/iam/v2beta1/identities:lookupIdentity?issuer=https://ci.example&subject=s", ``},
	{"metadata", "PATCH", "/iam/v2beta1/identities:updateIdentityMetadata", `{"identityMetadata":{"company":"acme"}}`},
	{"role", "POST", "/iam/v2beta1/roles/{group}", `{"name":"reader","capabilities":["CAP_IAM_GROUPS_LIST"]}`},
	{"get role", "GET", "/iam/v2beta1/roles/{role}", ``},
	{
		"bindings", "POST", "/iam/v2beta1/roleBindings:batchCreate",
		`{"parent":"{group}","roleUid":"{role}","requests":[{"roleBinding":{"identityUid":"{identity}"}}]}`,
	},
	{
		"provider", "POST", "/iam/v2beta1/identityProviders/{org}",
		`{"name":"idp","defaultRole":"{viewer}","oidc":{"issuer":"https://idp.example","clientId":"c","clientSecret":"s"}}`,
	},
	{"get provider", "GET", "/iam/v2beta1/identityProviders/{provider}", ``},
	{
		"mapping", "POST", "/iam/v2beta1/externalGroupRoleMappings/{provider}",
		`{"externalGroupId":"admins","roleUid":"{viewer}","scope":"{org}"}`,
	},
	{"mappings", "GET", "/iam/v2beta1/externalGroupRoleMappings?identity_provider_uid={provider}", ``},
	{"invite", "POST", "/iam/v2beta1/groupInvites/{group}", `{"roleUid":"{viewer}","ttl":"3600s","email":"a@b.example"}`},
	{"get invite", "GET", "/iam/v2beta1/groupInvites/{invite}", ``},
	{
		"association", "POST", "/iam/v2beta1/accountAssociations/{group}",
		`{"name":"account","amazon":{"account":"123456789012"}}`,
	},
	{"get association", "GET", "/iam/v2beta1/accountAssociations/{group}", ``},
	{
		"check", "POST", "/iam/v2beta1/accountAssociations/{group}:checkAccountAssociation",
		`{"providerType":"ACCOUNT_PROVIDER_TYPE_GOOGLE"}`,
	},
	{
		"repo", "POST", "/registry/v2beta1/repos/{group}",
		`{"name":"made","catalogTier":"CATALOG_TIER_AI","bundles":["ai"]}`,
	},
	{"get repo", "GET", "/registry/v2beta1/repos/{repo}", ``},
	{"readme", "PATCH", "/registry/v2beta1/repos/{repo}/readme", `{"content":"# Made"}`},
	{"tag", "POST", "/registry/v2beta1/tags/{pushed}", `{"name":"stable","digest":"{digest}"}`},
	{"get tag", "GET", "/registry/v2beta1/tags/{tag}", ``},
	{"tags", "GET", "/registry/v2beta1/tags?uidp.children_of={pushed}&order_by=name", ``},
	{"architectures", "GET", "/registry/v2beta1/repos/{pushed}/digests/{digest}/architectures", ``},
	{"size", "GET", "/registry/v2beta1/repos/{pushed}/digests/{digest}/size", ``},
	{"subscription", "POST", "/events/v2beta1/subscriptions/{group}", `{"sink":"https://sink.example/x"}`},
	{"subscriptions", "GET", "/events/v2beta1/subscriptions?uidp.children_of={group}", ``},
	{
		"advisory", "POST", "/vulnerabilities/v1/advisories",
		`{"parentId":"{org}","advisory":{"advisoryId":"A-1","artifactName":"openssl","artifactType":"apk"}}`,
	},
	{"get advisory", "GET", "/vulnerabilities/v2beta1/advisories/{advisory}", ``},
	{"advisories", "GET", "/vulnerabilities/v2beta1/advisories?advisory_ids=A-1", ``},
}

// TestApiWire makes the calls in both walks, and compares the responses with golden files.
func TestApiWire(t *testing.T) {
	t.Parallel()
	for file, visits := range map[string][]visit{"v1.txt": v1Walk, "v2beta1.txt": v2beta1Walk} {
		t.Run(file, func(t *testing.T) {
			storyWorld(t, func(t *testing.T, w *world) {
				pushed, charts := w.repo(t, string(w.Organization), "app"), w.repo(t, string(w.Organization), "charts")
				digest := w.pushImage(t, "dev/app", "latest", "amd64", "layer")
				w.attach(t, "dev/app", "", digest, "application/spdx+json", spdxOf("a"))
				w.attach(t, "dev/app", "", digest, "application/json", grypeOf("CVE-1", "High", "2026-02-03T04:05:06Z"))
				chart := w.pushChart(t, "dev/charts", "1.0")
				checkGolden(t, file,
					w.walk(t, visits, "{pushed}", pushed, "{charts}", charts, "{digest}", digest, "{chart digest}", chart))
			})
		})
	}
}

// shared are the packages whose messages belong to the public API.
var shared = []protoreflect.FullName{
	"holdfast.auth", "holdfast.capabilities", "holdfast.common", "holdfast.events.v1", "holdfast.events.v2beta1",
	"holdfast.iam.v1", "holdfast.iam.v2beta1",
	"holdfast.oidc", "holdfast.ping.v1", "holdfast.ping.v2beta1", "holdfast.registry.v1", "holdfast.registry.v2beta1",
	"holdfast.tenant.v1",
	"holdfast.vulnerabilities.v1", "holdfast.vulnerabilities.v2beta1",
}

// TestWireDescriptors lists the names, numbers and types that existing clients depend on, and compares them with
// golden files. None of them may ever change.
func TestWireDescriptors(t *testing.T) {
	t.Parallel()
	var files []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if slices.Contains(shared, f.Package()) {
			files = append(files, f)
		}
		return true
	})
	slices.SortFunc(files, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "# %s\n", f.Path())
		for i := range f.Services().Len() {
			writeService(&b, f.Services().Get(i))
		}
		writeMessages(&b, f.Messages())
		writeEnums(&b, f.Enums())
	}
	checkGolden(t, "descriptors.txt", b.String())
}

func writeService(b *strings.Builder, s protoreflect.ServiceDescriptor) {
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		verb, path := "", ""
		if r := rule(m); r != nil {
			verb, path = verbAndPath(r)
		}
		stream := map[bool]string{true: "stream "}
		fmt.Fprintf(b, "%s/%s(%s%s) %s%s %s %s body=%q\n",
			s.FullName(), m.Name(), stream[m.IsStreamingClient()], m.Input().FullName(),
			stream[m.IsStreamingServer()], m.Output().FullName(), verb, path, rule(m).GetBody())
	}
}

func writeMessages(b *strings.Builder, messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		fmt.Fprintf(b, "%s\n", m.FullName())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			oneof := ""
			if o := f.ContainingOneof(); o != nil {
				oneof = " oneof " + string(o.Name())
			}
			fmt.Fprintf(b, "  %d %s %q %s%s\n", f.Number(), f.Name(), f.JSONName(), typeOf(f), oneof)
		}
		writeEnums(b, m.Enums())
		writeMessages(b, m.Messages())
	}
}

func writeEnums(b *strings.Builder, enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		e := enums.Get(i)
		fmt.Fprintf(b, "%s\n", e.FullName())
		for j := range e.Values().Len() {
			fmt.Fprintf(b, "  %d %s\n", e.Values().Get(j).Number(), e.Values().Get(j).Name())
		}
	}
}

// typeOf returns the type of a field, written as in a .proto file.
func typeOf(f protoreflect.FieldDescriptor) string {
	one := func(f protoreflect.FieldDescriptor) string {
		switch {
		case f.Message() != nil:
			return string(f.Message().FullName())
		case f.Enum() != nil:
			return string(f.Enum().FullName())
		}
		return f.Kind().String()
	}
	switch {
	case f.IsMap():
		return "map<" + one(f.MapKey()) + ", " + one(f.MapValue()) + ">"
	case f.IsList():
		return "repeated " + one(f)
	}
	return one(f)
}
