package v2_test

import (
	"context"
	"encoding/base64"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const (
	eventOrg   = resource.UID("0123456789abcdef0123456789abcdef01234567")
	eventThing = eventOrg + "/0123456789abcdef"
	secret     = "hush-hush"
)

// eventTypes returns all event types that the source of package resource declares.
func eventTypes(t *testing.T) (all []resource.EventType) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../core/resource/event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || v.Type == nil || len(v.Values) != 1 {
			return true
		}
		if name, ok := v.Type.(*ast.Ident); !ok || name.Name != "EventType" {
			return true
		}
		text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, resource.EventType(text))
		return false
	})
	return all
}

// An occurrence describes an event: its states in the outbox, with secrets in all fields
// that can contain secrets, and the name of the message that its body should be.
type occurrence struct {
	before, after any
	message       protoreflect.FullName // name of the message in the body; "" if the event has no body
}

// occurrences returns one occurrence of every event type.
func occurrences() map[resource.EventType]occurrence {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	group := resource.Group{UID: eventThing, Name: "n", CreateTime: at, UpdateTime: at}
	identity := resource.Identity{UID: eventThing, Name: "n", CreateTime: at, UpdateTime: at, LastSeenTime: at,
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.test", Subject: "s"}}}
	role := resource.Role{UID: eventThing, Name: "n", Capabilities: resource.CapabilitySet("groups.list")}
	accessRule := resource.AccessRule{UID: eventThing, Role: eventOrg}
	request := resource.AccessRequest{UID: eventThing, Role: eventOrg, Identity: eventOrg}
	binding := resource.RoleBinding{UID: eventThing, Identity: eventOrg, Role: eventOrg, CreateTime: at}
	provider := resource.IdentityProvider{UID: eventThing, Name: "n", DefaultRole: eventOrg,
		OIDC: &resource.OIDC{
			Issuer: "https://issuer.test", ClientID: "c", ClientSecret: resource.Secret{Plain: secret, Sealed: []byte(secret)},
		}}
	team := resource.TeamChange{Team: resource.Team{UID: eventThing, Name: "crew", CreateTime: at, UpdateTime: at}}
	directory := resource.Directory{Provider: eventThing, Digest: []byte(secret), PreviousDigest: []byte(secret)}
	association := resource.AccountAssociation{UID: eventOrg, Name: "n"}
	invite := resource.GroupInvite{
		UID: eventThing, Role: eventOrg, Email: secret, Digest: []byte(secret), KeyID: secret, ExpirationTime: at,
	}
	mapping := resource.ExternalGroupRoleMapping{UID: eventThing, ExternalGroup: "g", Role: eventOrg, Scope: eventOrg}
	budget := resource.Budget{
		UID: eventThing, Limits: map[resource.Metric]int64{resource.Webhooks: 5}, CreateTime: at, UpdateTime: at,
	}
	repo := registry.Repo{UID: eventThing, Name: "n", CreateTime: at, UpdateTime: at}
	tag := registry.Tag{UID: eventThing, Name: "n", Digest: "sha256:x", UpdateTime: at}
	copied := registry.ImageCopy{
		Repo: eventThing, From: eventOrg, Images: []registry.CopiedImage{{Digest: "sha256:x", Tag: "n"}},
	}
	replication := registry.Replication{UID: eventThing, Name: "n", Address: "https://r.example",
		Realm: "https://t.example/token", Path: "p", Repos: []string{"a/*"}, Tags: []string{"v*"},
		Credentials: resource.Secret{Plain: secret, Sealed: []byte(secret)}, CreateTime: at, UpdateTime: at}
	upstream := registry.Upstream{UID: eventThing, Name: "n", Address: "https://r.example",
		Realm: "https://t.example/token", FreshFor: time.Hour, Names: []string{"a/*"}, Anyone: true,
		Identity: "i", Credentials: resource.Secret{Plain: secret, Sealed: []byte(secret)}, CreateTime: at, UpdateTime: at}
	retention := registry.Retention{UID: eventThing, KeepNewest: 1, UpdateTime: at}
	trashed := registry.TrashEntry{
		UID: eventThing.NewChild(), Kind: registry.TrashTag, Tag: "n", Digest: "sha256:x", WasTag: &tag, CreateTime: at,
		ExpireTime: at,
	}
	deployment := registry.Deployment{
		UID: eventThing, Charts: []registry.HelmChart{{Repo: "https://charts.example"}}, CreateTime: at, UpdateTime: at,
	}
	issue := "i"
	advisory := vuln.Advisory{UID: eventThing, ID: "HFA-1", ArtifactName: "a", CreateTime: at, UpdateTime: at,
		DeleteTime: at,
		Events: []vuln.AdvisoryEvent{
			{UID: eventThing.NewChild(), Type: vuln.EventFixed, CreateTime: at, Issue: &issue, Findings: []byte(`{"a":1}`)},
		},
		Severities: []vuln.Severity{{Type: vuln.CVSSv3, Score: "x"}},
		Affected:   []vuln.Affected{{Name: "p", Versions: []string{"1"}}},
		Source:     vuln.AdvisorySource{Format: "osv", Digest: []byte(secret)}}.Record()
	feed := vuln.AdvisoryFeed{UID: eventThing, Name: "n", Address: "https://feeds.example", Interval: time.Hour,
		State: []byte(secret), CreateTime: at, UpdateTime: at,
		Last: vuln.FeedResult{Time: at, Took: time.Second}}
	account := resource.Account{UID: eventThing, Email: "a@b.test", Identity: eventOrg, CreateTime: at,
		UpdateTime: at, UseTime: at, Password: secret, TOTP: []byte(secret),
		Link: resource.Link{Digest: []byte(secret)}, Passkeys: []resource.Passkey{
			{ID: []byte(secret), Detail: []byte(secret)},
		}}.Record(1)
	session := resource.EndedSession{Reason: resource.EndReplay, Session: resource.Session{ID: "s",
		Identity: eventOrg, Email: secret, CreateTime: at, UsedTime: at, ExpireTime: at,
		Act: &resource.Upstream{Issuer: "https://issuer.test", Subject: secret}}}
	subscription := resource.Subscription{UID: eventThing, Sink: "https://sink.example", CreateTime: at}
	activity := resource.Activity{
		Identity: eventOrg, Account: eventThing, Method: resource.ByPassword, Count: 1, First: at, Last: at,
	}
	news := vuln.FindingNews{Group: eventOrg, FindingCount: 1, Findings: []vuln.NewFinding{{ID: "CVE-1", Score: 98}}}
	place := vuln.InventoryPlace{Group: eventOrg, Name: "cluster", Identity: eventThing, PushTime: at, ExpireTime: at}
	exception := vuln.Exception{UID: eventThing, Target: eventOrg, Advisory: "CVE-1", Reason: "r", CreateTime: at}
	signer := registry.Signer{UID: eventThing, Name: "release", Key: "k", CreateTime: at}
	sla := vuln.SLA{UID: eventThing, Critical: 7, UpdateTime: at}
	rule := vuln.PullRule{UID: eventThing, Target: eventOrg, CreateTime: at}
	return map[resource.EventType]occurrence{
		resource.GroupCreated:            {nil, group, "holdfast.iam.v2beta1.Group"},
		resource.GroupUpdated:            {group, group, "holdfast.iam.v2beta1.Group"},
		resource.GroupDeleted:            {group, nil, "holdfast.iam.v2beta1.DeleteGroupRequest"},
		resource.GroupAccessRequested:    {nil, identity, "holdfast.iam.v2beta1.RequestGroupAccessRequest"},
		resource.IdentityCreated:         {nil, identity, "holdfast.iam.v2beta1.Identity"},
		resource.IdentityUpdated:         {identity, identity, "holdfast.iam.v2beta1.Identity"},
		resource.IdentityDeleted:         {identity, nil, "holdfast.iam.v2beta1.DeleteIdentityRequest"},
		resource.IdentityMetadataUpdated: {identity, identity, "holdfast.iam.v2beta1.IdentityMetadata"},
		resource.RoleCreated:             {nil, role, "holdfast.iam.v2beta1.Role"},
		resource.RoleUpdated:             {role, role, "holdfast.iam.v2beta1.Role"},
		resource.RoleDeleted:             {role, nil, "holdfast.iam.v2beta1.DeleteRoleRequest"},
		resource.BindingCreated:          {nil, binding, "holdfast.iam.v2beta1.RoleBinding"},
		resource.BindingsCreated: {
			nil, []resource.RoleBinding{binding}, "holdfast.iam.v2beta1.BatchCreateRoleBindingsResponse",
		},
		resource.BindingUpdated: {binding, binding, "holdfast.iam.v2beta1.RoleBinding"},
		resource.BindingDeleted: {binding, nil, "holdfast.iam.v2beta1.DeleteRoleBindingRequest"},
		resource.BindingExpired: {binding, binding, "holdfast.iam.v2beta1.RoleBinding"},
		resource.AccessUnused: {nil, resource.UnusedReport{
			Group: eventOrg, Totals: []resource.UnusedTotal{{Kind: resource.UnusedBindings, Looked: 2, Unused: 1}},
		},
			"holdfast.access.v1.UnusedAccessReport"},
		resource.AccessRuleCreated:       {nil, accessRule, "holdfast.access.v1.AccessRule"},
		resource.AccessRuleDeleted:       {accessRule, nil, "holdfast.access.v1.DeleteAccessRuleRequest"},
		resource.AccessRequestCreated:    {nil, request, "holdfast.access.v1.AccessRequest"},
		resource.AccessRequestApproved:   {request, request, "holdfast.access.v1.AccessRequest"},
		resource.AccessRequestGranted:    {request, request, "holdfast.access.v1.AccessRequest"},
		resource.AccessRequestTaken:      {request, request, "holdfast.access.v1.AccessRequest"},
		resource.AccessRequestDenied:     {request, request, "holdfast.access.v1.AccessRequest"},
		resource.AccessRequestHandedBack: {request, request, "holdfast.access.v1.AccessRequest"},
		resource.AccessRequestClosed:     {request, request, "holdfast.access.v1.AccessRequest"},
		resource.ProviderCreated:         {nil, provider, "holdfast.iam.v2beta1.IdentityProvider"},
		resource.ProviderUpdated:         {provider, provider, "holdfast.iam.v2beta1.IdentityProvider"},
		resource.ProviderDeleted:         {provider, nil, "holdfast.iam.v2beta1.DeleteIdentityProviderRequest"},
		resource.ScimTokenGenerated:      {directory, directory, "holdfast.iam.v2beta1.GenerateScimTokenResponse"},
		resource.ScimTokenRegenerated:    {directory, directory, "holdfast.iam.v2beta1.RegenerateScimTokenResponse"},
		resource.ScimTokenRevoked:        {directory, directory, "holdfast.iam.v2beta1.RevokeScimTokenResponse"},
		resource.ScimEnabledUpdated:      {directory, directory, "holdfast.iam.v2beta1.SetScimEnabledResponse"},
		resource.DirectoryUpdated:        {directory, directory, "holdfast.access.v1.Directory"},
		resource.TeamCreated:             {nil, team, "holdfast.access.v1.Team"},
		resource.TeamUpdated:             {team, team, "holdfast.access.v1.Team"},
		resource.TeamDeleted:             {team, nil, ""},
		resource.GroupOwnerless:          {nil, group, "holdfast.iam.v2beta1.Group"},
		resource.IdentityDeactivated:     {identity, identity, "holdfast.iam.v2beta1.Identity"},
		resource.IdentityReactivated:     {identity, identity, "holdfast.iam.v2beta1.Identity"},
		resource.AssociationCreated:      {nil, association, "holdfast.iam.v2beta1.AccountAssociation"},
		resource.AssociationUpdated:      {association, association, "holdfast.iam.v2beta1.AccountAssociation"},
		resource.AssociationDeleted:      {association, nil, ""},
		resource.InviteCreated:           {nil, invite, "holdfast.iam.v2beta1.GroupInvite"},
		resource.InviteUpdated:           {invite, invite, "holdfast.iam.v2beta1.GroupInvite"},
		resource.InviteExpired:           {invite, invite, "holdfast.iam.v2beta1.GroupInvite"},
		resource.InviteDeleted:           {invite, nil, "holdfast.iam.v2beta1.DeleteGroupInviteRequest"},
		resource.MappingCreated:          {nil, mapping, "holdfast.iam.v2beta1.ExternalGroupRoleMapping"},
		resource.MappingDeleted:          {mapping, nil, "holdfast.iam.v2beta1.DeleteExternalGroupRoleMappingRequest"},
		resource.MappingsDeleted: {
			[]resource.ExternalGroupRoleMapping{mapping}, nil,
			"holdfast.iam.v2beta1.BatchDeleteExternalGroupRoleMappingsResponse",
		},
		resource.BudgetCreated: {nil, budget, "holdfast.budgets.v1.Budget"},
		resource.BudgetUpdated: {budget, budget, "holdfast.budgets.v1.Budget"},
		resource.OrganizationApplied: {nil, resource.AppliedChanges{UID: eventThing, Changes: 2},
			"holdfast.organization.v1.AppliedOrganization"},
		resource.BudgetDeleted:      {budget, nil, "holdfast.budgets.v1.DeleteBudgetRequest"},
		resource.RepoCreated:        {nil, repo, "holdfast.registry.v2beta1.Repo"},
		resource.RepoUpdated:        {repo, repo, "holdfast.registry.v2beta1.Repo"},
		resource.RepoDeleted:        {repo, nil, "holdfast.registry.v2beta1.DeleteRepoRequest"},
		resource.TagCreated:         {nil, tag, "holdfast.registry.v2beta1.Tag"},
		resource.TagDeleted:         {tag, nil, "holdfast.registry.v2beta1.DeleteTagRequest"},
		resource.TrashRestored:      {nil, trashed, "holdfast.oci.v1.TrashEntry"},
		resource.TrashDeleted:       {trashed, nil, "holdfast.oci.v1.DeleteTrashEntryRequest"},
		resource.ImageCopied:        {nil, copied, "holdfast.oci.v1.ImageCopy"},
		resource.ImagePromoted:      {nil, copied, "holdfast.oci.v1.ImageCopy"},
		resource.UpstreamCreated:    {nil, upstream, "holdfast.oci.v1.Upstream"},
		resource.UpstreamUpdated:    {upstream, upstream, "holdfast.oci.v1.Upstream"},
		resource.UpstreamDeleted:    {upstream, nil, "holdfast.oci.v1.DeleteUpstreamRequest"},
		resource.ReplicationCreated: {nil, replication, "holdfast.oci.v1.Replication"},
		resource.ReplicationUpdated: {replication, replication, "holdfast.oci.v1.Replication"},
		resource.ReplicationDeleted: {replication, nil, "holdfast.oci.v1.DeleteReplicationRequest"},
		resource.RetentionUpdated:   {nil, retention, "holdfast.oci.v1.Retention"},
		resource.RetentionDeleted:   {retention, nil, "holdfast.oci.v1.DeleteRetentionRequest"},
		resource.RetentionApplied: {
			nil, registry.RetentionRun{Repo: eventThing, Rules: eventOrg, Images: []string{"sha256:x"}},
			"holdfast.oci.v1.RetentionPlan",
		},
		resource.RegistrySettingsUpdated: {
			nil, registry.Settings{UID: eventThing, UpdateTime: at}, "holdfast.oci.v1.Settings",
		},
		resource.DeploymentCreated: {nil, deployment, "holdfast.registry.v1.Deployment"},
		resource.DeploymentUpdated: {deployment, deployment, "holdfast.registry.v1.Deployment"},
		resource.RegistryPush:      {nil, map[string]any{"digest": "sha256:x"}, ""},
		resource.RegistryPull:      {nil, registry.Pull{UID: eventThing.NewChild(), Digest: "sha256:x", Time: at}, ""},
		resource.AdvisoryCreated:   {nil, advisory, "holdfast.vulnerabilities.v2beta1.Advisory"},
		resource.AdvisoryUpdated:   {advisory, advisory, "holdfast.vulnerabilities.v2beta1.Advisory"},
		resource.AdvisoryDeleted:   {advisory, nil, "holdfast.advisories.v1.DeleteAdvisoryRequest"},
		resource.AdvisoriesImported: {
			nil, map[string]any{"created": 3, "source": "f"}, "holdfast.advisories.v1.AdvisoriesImported",
		},
		resource.FeedCreated:       {nil, feed, "holdfast.advisories.v1.AdvisoryFeed"},
		resource.FeedUpdated:       {feed, feed, "holdfast.advisories.v1.AdvisoryFeed"},
		resource.FeedDeleted:       {feed, nil, "holdfast.advisories.v1.DeleteAdvisoryFeedRequest"},
		resource.FindingOpened:     {nil, news, "holdfast.findings.v1.FindingNews"},
		resource.FindingClosed:     {nil, news, "holdfast.findings.v1.FindingNews"},
		resource.InventoryPushed:   {place, place, "holdfast.findings.v1.InventoryPlace"},
		resource.InventoryDeleted:  {place, nil, "holdfast.findings.v1.DeleteInventoryRequest"},
		resource.ExceptionCreated:  {nil, exception, "holdfast.findings.v1.Exception"},
		resource.ExceptionApproved: {exception, exception, "holdfast.findings.v1.Exception"},
		resource.ExceptionDeleted:  {exception, nil, "holdfast.findings.v1.DeleteExceptionRequest"},
		resource.SignerCreated:     {nil, signer, "holdfast.oci.v1.Signer"},
		resource.SignerDeleted:     {signer, nil, "holdfast.oci.v1.DeleteSignerRequest"},
		resource.RuleCreated:       {nil, rule, "holdfast.findings.v1.Rule"},
		resource.RuleUpdated:       {rule, rule, "holdfast.findings.v1.Rule"},
		resource.RuleDeleted:       {rule, nil, "holdfast.findings.v1.DeleteRuleRequest"},
		resource.SLAUpdated:        {nil, sla, "holdfast.findings.v1.Sla"},
		resource.ReportSubscribed: {nil, vuln.ReportSubscription{Group: eventThing, Identity: eventThing, CreateTime: at},
			"holdfast.findings.v1.ReportSubscription"},
		resource.ReportUnsubscribed: {vuln.ReportSubscription{Group: eventThing, Identity: eventThing, CreateTime: at}, nil,
			"holdfast.findings.v1.DeleteReportSubscriptionRequest"},
		resource.SLADeleted: {sla, nil, "holdfast.findings.v1.DeleteSlaRequest"},
		resource.ExploitListDeleted: {
			vuln.ExploitList{Group: eventThing, Format: vuln.KEV, Time: at}, nil,
			"holdfast.findings.v1.DeleteExploitListRequest",
		},
		resource.AccountCreated: {nil, account, "holdfast.signin.v1.Account"},
		resource.AccountUpdated: {account, account, "holdfast.signin.v1.Account"},
		resource.AccountDeleted: {account, nil, "holdfast.signin.v1.DeleteAccountRequest"},
		resource.SignInRulesUpdated: {
			nil, resource.SignInRules{Organization: eventOrg, LocalOff: true}, "holdfast.signin.v1.SignInRules",
		},
		resource.SessionEnded: {session, nil, "holdfast.signin.v1.EndedSession"},
		resource.Registered: {
			nil, map[string]resource.UID{"identity": eventOrg, "group": eventThing}, "holdfast.auth.Session",
		},
		resource.SignedIn:             {nil, activity, "holdfast.signin.v1.Activity"},
		resource.SignInRefused:        {nil, activity, "holdfast.signin.v1.Activity"},
		resource.PasswordChanged:      {nil, activity, "holdfast.signin.v1.Activity"},
		resource.PasskeyAdded:         {nil, activity, "holdfast.signin.v1.Activity"},
		resource.PasskeyRemoved:       {nil, activity, "holdfast.signin.v1.Activity"},
		resource.AppAdded:             {nil, activity, "holdfast.signin.v1.Activity"},
		resource.AppRemoved:           {nil, activity, "holdfast.signin.v1.Activity"},
		resource.RecoveryCodesCreated: {nil, activity, "holdfast.signin.v1.Activity"},
		resource.SecondFactorChanged:  {nil, activity, "holdfast.signin.v1.Activity"},
		resource.LinkCreated:          {nil, activity, "holdfast.signin.v1.Activity"},
		resource.LinkUsed:             {nil, activity, "holdfast.signin.v1.Activity"},
		resource.ProgramAllowed:       {nil, activity, "holdfast.signin.v1.Activity"},
		resource.ProgramDenied:        {nil, activity, "holdfast.signin.v1.Activity"},
		resource.RegistryRefused:      {nil, activity, "holdfast.oci.v1.RefusedAccess"},
		resource.SubscriptionCreated:  {nil, subscription, "holdfast.events.v2beta1.Subscription"},
		resource.SubscriptionFailing:  {nil, subscription, "holdfast.events.v2beta1.Subscription"},
		resource.SubscriptionDeleted:  {subscription, nil, "holdfast.events.v2beta1.DeleteSubscriptionRequest"},
	}
}

// TestEventMessages creates the body of an event of every type. The body must be a
// message of the type that it names, must not be empty, and must contain none of the
// secrets.
func TestEventMessages(t *testing.T) {
	all := occurrences()
	types := eventTypes(t)
	if len(types) < 40 {
		t.Fatalf("only %d types were found", len(types))
	}
	bodies := &v2.EventBodies{RepoPath: func(context.Context, resource.UID) (string, error) { return "acme/app", nil }}
	for _, kind := range types {
		t.Run(string(kind), func(t *testing.T) {
			o, ok := all[kind]
			if !ok {
				t.Fatal("nobody has said what it tells")
			}
			body, err := bodies.Body(t.Context(),
				resource.Event{
					ID: "1", Type: kind, Subject: eventThing, Group: eventOrg, Before: encode(t, o.before),
					After: encode(t, o.after),
				})
			if err != nil {
				t.Fatal(err)
			}
			if body.Type != string(o.message) {
				t.Errorf("it is a %q, want %q", body.Type, o.message)
			}
			for _, text := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
				if strings.Contains(string(body.JSON), text) {
					t.Errorf("it tells a secret: %s", body.JSON)
				}
			}
			if o.message != "" {
				wantMessage(t, o.message, body.JSON)
			}
		})
	}
	for kind := range all {
		if !slices.Contains(types, kind) {
			t.Errorf("there is no %s", kind)
		}
	}
	if _, err := bodies.Body(t.Context(), resource.Event{Type: "iam.later.created.v1"}); err == nil {
		t.Error("an event of a later version was written")
	}
}

// wantMessage checks that text is the JSON of a message with this name, without unknown
// fields, and that the message is not empty.
func wantMessage(t *testing.T, name protoreflect.FullName, text []byte) {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := kind.New()
	if err := protojson.Unmarshal(text, m.Interface()); err != nil {
		t.Fatalf("%s is no %s: %v", text, name, err)
	}
	empty := true
	m.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool { empty = false; return false })
	if empty {
		t.Errorf("%s says nothing", text)
	}
}
