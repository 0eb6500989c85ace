package api

import (
	"slices"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	annotationspb "github.com/holdfast-dev/holdfast/gen/annotations"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	pb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// sensitive are the capabilities whose methods require a recent sign-in in the console,
// with the reason. A method is sensitive if it needs one of them.
// TestEveryWriteIsClassified fails if a writing method needs a capability that is neither
// here nor in routine. Until then, such a method is sensitive, too.
var sensitive = map[pb.Capability]string{
	pb.Capability_CAP_IAM_GROUPS_DELETE:               "deletes a group with its content",
	pb.Capability_CAP_IAM_GROUP_INVITES_CREATE:        "gives access",
	pb.Capability_CAP_IAM_GROUP_INVITES_DELETE:        "takes access away",
	pb.Capability_CAP_IAM_ROLES_CREATE:                "gives access",
	pb.Capability_CAP_IAM_ROLES_UPDATE:                "gives access",
	pb.Capability_CAP_IAM_ROLES_DELETE:                "takes access away",
	pb.Capability_CAP_IAM_ROLE_BINDINGS_CREATE:        "gives access",
	pb.Capability_CAP_IAM_ROLE_BINDINGS_UPDATE:        "gives access",
	pb.Capability_CAP_IAM_ROLE_BINDINGS_DELETE:        "takes access away",
	pb.Capability_CAP_IAM_ACCOUNT_ASSOCIATIONS_CREATE: "gives access to accounts of a cloud",
	pb.Capability_CAP_IAM_ACCOUNT_ASSOCIATIONS_UPDATE: "gives access to accounts of a cloud",
	pb.Capability_CAP_IAM_ACCOUNT_ASSOCIATIONS_DELETE: "takes access away",
	pb.Capability_CAP_IAM_IDENTITY_CREATE:             "decides whose credentials are trusted",
	pb.Capability_CAP_IAM_IDENTITY_UPDATE:             "decides whose credentials are trusted",
	pb.Capability_CAP_IAM_IDENTITY_DELETE:             "takes access away",
	pb.Capability_CAP_IAM_IDENTITY_PROVIDERS_CREATE:   "decides who can sign in",
	pb.Capability_CAP_IAM_IDENTITY_PROVIDERS_UPDATE:   "decides who can sign in",
	pb.Capability_CAP_IAM_IDENTITY_PROVIDERS_DELETE:   "takes access away",
	pb.Capability_CAP_IAM_SCIM_MANAGE:                 "decides which directory can take access away",
	pb.Capability_CAP_EVENTS_SUBSCRIPTION_CREATE:      "sends events to another system",
	pb.Capability_CAP_EVENTS_SUBSCRIPTION_DELETE:      "ends the reports to another system",
	pb.Capability_CAP_POLICIES_POLICY_CREATE:          "decides which images can be pulled, and whose signatures count",
	pb.Capability_CAP_POLICIES_POLICY_UPDATE:          "decides which images can be pulled",
	pb.Capability_CAP_POLICIES_POLICY_DELETE:          "lets images be pulled that were refused",
}

// Reasons why a capability is in routine.
const (
	onlyReads    = "only reads"
	canRestore   = "what it deletes can be restored from the trash; see isSensitiveRequest"
	likePush     = "gives nobody access, and every push needs it; see isSensitiveRequest"
	onlyVulns    = "changes what is known about vulnerabilities, which the audit log shows"
	onlyMetadata = "changes descriptions; see isSensitiveRequest for names, limits and settings"
)

// routine are capabilities whose methods require no recent sign-in, with the reason.
var routine = map[pb.Capability]string{
	pb.Capability_CAP_IAM_GROUPS_CREATE:             "creates an empty group",
	pb.Capability_CAP_IAM_GROUPS_UPDATE:             onlyMetadata,
	pb.Capability_CAP_VULN_REPORT_LIST:              "sends reports to the caller's own address only",
	pb.Capability_CAP_IAM_IDENTITY_LIST:             onlyReads,
	pb.Capability_CAP_IAM_ACCOUNT_ASSOCIATIONS_LIST: onlyReads,
	pb.Capability_CAP_IAM_IDENTITY_PROVIDERS_LIST:   onlyReads,
	pb.Capability_CAP_EVENTS_SUBSCRIPTION_UPDATE:    "sends events again to the system that gets them anyway",
	pb.Capability_CAP_REPO_CREATE:                   likePush,
	pb.Capability_CAP_REPO_UPDATE:                   onlyMetadata,
	pb.Capability_CAP_REPO_LIST:                     onlyReads,
	pb.Capability_CAP_REPO_DELETE:                   canRestore,
	pb.Capability_CAP_MANIFEST_CREATE:               likePush,
	pb.Capability_CAP_MANIFEST_DELETE:               canRestore,
	pb.Capability_CAP_TAG_CREATE:                    likePush,
	pb.Capability_CAP_TAG_UPDATE:                    likePush,
	pb.Capability_CAP_TAG_LIST:                      onlyReads,
	pb.Capability_CAP_REPO_BLOBS_GET:                onlyReads,
	pb.Capability_CAP_MANIFEST_LIST:                 onlyReads,
	pb.Capability_CAP_REFERRERS_LIST:                onlyReads,
	pb.Capability_CAP_REGISTRY_SETTINGS_LIST:        onlyReads,
	pb.Capability_CAP_TAG_DELETE:                    canRestore,
	pb.Capability_CAP_REGISTRY_SETTINGS_UPDATE:      "decides how long tags of a source are kept",
	pb.Capability_CAP_REGISTRY_DEPLOYMENTS_CREATE:   "reports what runs where",
	pb.Capability_CAP_REGISTRY_DEPLOYMENTS_UPDATE:   "reports what runs where",
	pb.Capability_CAP_ADVISORIES_CREATE:             onlyVulns,
	pb.Capability_CAP_ADVISORIES_UPDATE:             onlyVulns,
	pb.Capability_CAP_ADVISORIES_LIST:               onlyReads,
	pb.Capability_CAP_ADVISORIES_DELETE:             onlyVulns,
	pb.Capability_CAP_ADVISORIES_APPROVE:            onlyVulns,
	pb.Capability_CAP_POLICIES_OVERRIDE_CREATE:      onlyVulns,
	pb.Capability_CAP_POLICIES_OVERRIDE_DELETE:      onlyVulns,
}

// sensitiveMethods are writing methods that need no capability and require a recent sign-in,
// with the reason.
var sensitiveMethods = map[string]string{
	"holdfast.auth.Auth/Delete":                               "deletes the identity of the caller",
	"holdfast.oidc.SecurityTokenService/Exchange":             "issues a token",
	"holdfast.oidc.SecurityTokenService/ExchangeRefreshToken": "issues a token",

	"holdfast.organization.v1.OrganizationService/ApplyOrganization": "makes any change of the configuration",
}

// routineMethods are writing methods that need no capability and require no recent sign-in,
// with the reason.
var routineMethods = map[string]string{
	"holdfast.access.v1.AccessRequestsService/CreateAccessRequest":  "others approve the request; see isSensitiveRequest",
	"holdfast.auth.Auth/Register":                                   "the caller joins a group with an invite",
	"holdfast.events.v1.Identities/UpdateMetadata":                  "stores preferences of the caller",
	"holdfast.findings.v1.ReportsService/DeleteReportSubscription":  "ends mails to the caller",
	"holdfast.iam.v1.Groups/RequestGroupAccess":                     "others approve the request",
	"holdfast.iam.v2beta1.GroupsService/RequestGroupAccess":         "others approve the request",
	"holdfast.iam.v2beta1.IdentitiesService/UpdateIdentityMetadata": "stores preferences of the caller",
	"holdfast.signin.v1.SignInService/EndSession":                   "ends a session, which may have to be quick",
	"holdfast.signin.v1.SignInService/TestIdentityProvider":         "changes nothing",
}

// isSensitive reports whether all requests of a method require a recent sign-in. The rules are
// the access rules of the method.
func isSensitive(method string, access *annotationspb.IAM) bool {
	caps := access.GetEnabled().GetCapabilities()
	if len(caps) == 0 {
		return routineMethods[method] == ""
	}
	return slices.ContainsFunc(caps, func(c pb.Capability) bool { return routine[c] == "" })
}

// resetsTrash reports whether an update mask can replace the time for which deleted images can be restored by the
// default, which may be shorter.
func resetsTrash(mask *fieldmaskpb.FieldMask) bool {
	return slices.ContainsFunc(mask.GetPaths(), func(path string) bool {
		return path == "*" || path == "trash_days" || path == "trashDays"
	})
}

// renamesGroup reports whether a request can change the name of a group. The addresses of the images below the group
// contain the name, so a new name breaks every pull.
func renamesGroup(r *iampb.UpdateGroupRequest) bool {
	if len(r.GetUpdateMask().GetPaths()) == 0 {
		return r.GetGroup().GetName() != ""
	}
	return slices.ContainsFunc(r.GetUpdateMask().GetPaths(), func(path string) bool {
		return path == "*" || path == "name"
	})
}

// isSensitiveRequest reports whether the content of a request requires a recent sign-in
// although other requests of the method do not.
func isSensitiveRequest(req any) bool {
	switch r := req.(type) {
	case *accesspb.CreateAccessRequestRequest: // others approve any other request
		return r.GetAccessRequest().GetBreakGlass()
	case *ocipb.UpdateSettingsRequest: // anybody can pull, or deleted images cannot be restored
		return r.GetSettings().GetPublic() || r.GetSettings().TrashDays != nil || resetsTrash(r.GetUpdateMask())
	case *ocipb.DeleteSettingsRequest: // the settings above it apply, and they may be public
		return true
	case *ocipb.DeleteTrashEntryRequest, *ocipb.EmptyTrashRequest: // cannot be restored
		return true
	case *ocipb.CreateUpstreamRequest, *ocipb.UpdateUpstreamRequest, *ocipb.DeleteUpstreamRequest:
		return true // decides which images are served
	case *ocipb.CreateReplicationRequest, *ocipb.UpdateReplicationRequest, *ocipb.DeleteReplicationRequest,
		*ocipb.RunReplicationRequest:
		return true // sends images to another registry
	case *iampb.UpdateGroupRequest:
		return renamesGroup(r)
	case *iamv1pb.Group: // replaces the whole group; without a name it is refused
		return r.GetName() != ""
	case *budgetspb.UpdateBudgetRequest, *budgetspb.DeleteBudgetRequest: // a limit of 0 stops pushes and requests
		return true
	case *registrypb.CreateRepoRequest: // a sync copies images for a long time, with the permissions of the caller
		return r.GetRepo().GetSyncConfig().GetSource() != ""
	case *registrypb.UpdateRepoRequest:
		return r.GetRepo().GetSyncConfig().GetSource() != ""
	case *registryv1pb.CreateRepoRequest:
		return r.GetRepo().GetSyncConfig().GetSource() != ""
	case *registryv1pb.Repo:
		return r.GetSyncConfig().GetSource() != ""
	}
	return false
}
