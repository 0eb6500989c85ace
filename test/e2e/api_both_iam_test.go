package e2e_test

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// publicKeys is a key set in the format in which an issuer publishes it.
const publicKeys = `{"keys":[{"kty":"EC","crv":"P-256","kid":"1",` +
	`"x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`

func claimMatch(issuer, subject string) *iampb.Identity_ClaimMatch_ {
	return &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
		Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: issuer}, Sub: &iampb.Identity_ClaimMatch_Subject{Subject: subject},
	}}
}

func workload(name string) *iampb.Identity {
	return &iampb.Identity{Name: name, Relationship: claimMatch("https://ci.example", "repo:"+name)}
}

func identitySteps() []step {
	create := func(i *iampb.Identity) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &iampb.CreateIdentityRequest{Parent: s.uid("folder"), Identity: i}
		}
	}
	update := func(i *iampb.Identity, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			i := proto.Clone(i).(*iampb.Identity)
			i.Uid = s.uid("workload")
			r := &iampb.UpdateIdentityRequest{Identity: i}
			if paths != nil {
				r.UpdateMask = mask(paths...)
			}
			return r
		}
	}
	patterns := &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
		Iss:    &iampb.Identity_ClaimMatch_IssuerPattern{IssuerPattern: `https://[a-z]+\.ci\.example`},
		Sub:    &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: `repo:org/.*`},
		Aud:    &iampb.Identity_ClaimMatch_AudiencePattern{AudiencePattern: `api|web`},
		Claims: map[string]string{"ref": "main", "actor": "bot"}, ClaimPatterns: map[string]string{"env": "prod|test"},
	}}
	keys := &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
		Issuer: "https://cluster.example", Subject: "robot", IssuerKeys: publicKeys, Audiences: []string{"api"},
	}}
	aws := &iampb.Identity_AwsIdentity{AwsIdentity: &iampb.Identity_AWSIdentity{
		AwsAccount: "123456789012",
		AwsArn:     &iampb.Identity_AWSIdentity_ArnPattern{ArnPattern: `arn:aws:sts::123456789012:assumed-role/ci/.*`},
	}}
	return []step{
		{
			name: "workload",
			in: create(&iampb.Identity{
				Name: "workload", Description: "builds", Company: "us", Relationship: claimMatch("https://ci.example", "repo:org"),
			}),
		},
		{name: "same name", in: create(workload("workload"))},
		{name: "patterns", in: create(&iampb.Identity{Name: "patterns", Relationship: patterns})},
		{name: "static keys", in: create(&iampb.Identity{Name: "keys", Relationship: keys})},
		{name: "aws", in: create(&iampb.Identity{Name: "aws", Relationship: aws})},
		{
			name: "service",
			in:   create(&iampb.Identity{Name: "service", Relationship: &iampb.Identity_ServicePrincipal{ServicePrincipal: 2}}),
		},
		{name: "identity that stands for nothing", code: codes.InvalidArgument, in: create(&iampb.Identity{Name: "x"})},
		{
			name: "identity with nothing right",
			code: codes.InvalidArgument,
			in:   create(&iampb.Identity{Name: "X", Description: "\t", Relationship: claimMatch("x", "")}),
		},
		{name: "identity elsewhere", code: codes.PermissionDenied, in: create(workload("x")), as: "ada"},
		{name: "identity in nothing", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.CreateIdentityRequest{Parent: s.org() + "/0123456789abcdef", Identity: workload("x")}
		}},
		{name: "get identity", in: func(s *story) proto.Message { return &iampb.GetIdentityRequest{Uid: s.uid("patterns")} }},
		{name: "get owner", code: codes.OK, in: func(s *story) proto.Message {
			return &iampb.GetIdentityRequest{Uid: string(s.w.Owner)}
		}},
		{name: "get somebody", code: codes.PermissionDenied, in: func(*story) proto.Message {
			return &iampb.GetIdentityRequest{Uid: string(ada)}
		}},
		{name: "get no identity", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.GetIdentityRequest{Uid: s.uid("folder") + "/0123456789abcdef"}
		}},
		{name: "rename identity", in: update(&iampb.Identity{Name: "renamed"})},
		{
			name: "change a claim",
			in:   update(&iampb.Identity{Relationship: claimMatch("https://other.example", "ignored")}, "claim_match.issuer"),
		},
		{name: "change to keys", in: update(&iampb.Identity{Relationship: keys}, "staticKeys")},
		{name: "change to nothing", code: codes.InvalidArgument, in: update(&iampb.Identity{}, "static_keys")},
		{
			name: "change what is ours",
			in:   update(&iampb.Identity{Name: "again", Email: "x@y.example"}, "email", "name", "lastSeenTime"),
		},
		{name: "list identities", in: func(s *story) proto.Message {
			return &iampb.ListIdentitiesRequest{OrderBy: "create_time", Uidp: &commonpb.UIDPFilter{ChildrenOf: s.uid("folder")}}
		}},
		{name: "list identities of a kind", in: func(*story) proto.Message {
			return &iampb.ListIdentitiesRequest{RelationshipType: iampb.RelationshipType_RELATIONSHIP_TYPE_AWS_IDENTITY}
		}},
		{name: "list identities of a name", in: func(*story) proto.Message {
			return &iampb.ListIdentitiesRequest{Name: "keys"}
		}},
		{name: "delete identity", in: func(s *story) proto.Message {
			return &iampb.DeleteIdentityRequest{Uid: s.uid("aws")}
		}},
		{name: "delete identity again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.DeleteIdentityRequest{Uid: s.uid("aws")}
		}},
	}
}

func roleSteps() []step {
	create := func(r *iampb.Role) func(*story) proto.Message {
		return func(s *story) proto.Message { return &iampb.CreateRoleRequest{Parent: s.org(), Role: r} }
	}
	lister := []capabilitiespb.Capability{
		capabilitiespb.Capability_CAP_IAM_GROUPS_LIST, capabilitiespb.Capability_CAP_IAM_ROLES_LIST,
	}
	update := func(r *iampb.Role, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			r := proto.Clone(r).(*iampb.Role)
			r.Uid = s.uid("role")
			return &iampb.UpdateRoleRequest{Role: r, UpdateMask: mask(paths...)}
		}
	}
	viewer := string(resource.ManagedRoleUID("viewer"))
	return []step{
		{name: "role", in: create(&iampb.Role{Name: "lister", Description: "lists", Capabilities: lister})},
		{name: "role twice", code: codes.AlreadyExists, in: create(&iampb.Role{Name: "lister", Capabilities: lister})},
		{name: "role of nothing", code: codes.InvalidArgument, in: create(&iampb.Role{Name: "x"})},
		{
			name: "role of an unknown",
			code: codes.InvalidArgument,
			in:   create(&iampb.Role{Name: "x", Capabilities: []capabilitiespb.Capability{0}}),
		},
		{
			name: "role without grant",
			code: codes.PermissionDenied,
			in:   create(&iampb.Role{Name: "x", Capabilities: lister}),
			as:   "stranger",
		},
		{name: "get role", in: func(s *story) proto.Message { return &iampb.GetRoleRequest{Uid: s.uid("role")} }},
		{name: "get managed role", in: func(*story) proto.Message { return &iampb.GetRoleRequest{Uid: viewer} }},
		{name: "get no role", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.GetRoleRequest{Uid: s.org() + "/0123456789abcdef"}
		}},
		{name: "update role", in: update(&iampb.Role{Capabilities: lister[:1]}, "capabilities")},
		{name: "update role to nothing", code: codes.InvalidArgument, in: update(&iampb.Role{}, "capabilities")},
		{name: "update managed role", code: codes.PermissionDenied, in: func(*story) proto.Message {
			return &iampb.UpdateRoleRequest{Role: &iampb.Role{Uid: viewer, Name: "x"}}
		}},
		{name: "list roles", in: func(*story) proto.Message { return &iampb.ListRolesRequest{OrderBy: "name"} }},
		{name: "list managed roles", in: func(*story) proto.Message {
			return &iampb.ListRolesRequest{OrderBy: "name desc", PageSize: 3, Uidp: &commonpb.UIDPFilter{InRoot: true}}
		}},
		{name: "list roles of a stranger", in: func(*story) proto.Message {
			return &iampb.ListRolesRequest{}
		}, as: "stranger"},
		{name: "delete managed role", code: codes.PermissionDenied, in: func(*story) proto.Message {
			return &iampb.DeleteRoleRequest{Uid: viewer}
		}},
	}
}

func bindingSteps() []step {
	viewer, owner := string(resource.ManagedRoleUID("viewer")), string(resource.OwnerRole)
	bind := func(group, identity func(*story) string, role string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &iampb.CreateRoleBindingRequest{
				Parent: group(s), RoleBinding: &iampb.RoleBinding{IdentityUid: identity(s), RoleUid: role},
			}
		}
	}
	made := func(step string) func(*story) string { return func(s *story) string { return s.uid(step) } }
	batch := func(role string, bindings ...*iampb.RoleBinding) func(*story) proto.Message {
		return func(s *story) proto.Message {
			r := &iampb.BatchCreateRoleBindingsRequest{Parent: s.uid("folder"), RoleUid: role}
			for _, b := range bindings {
				b := proto.Clone(b).(*iampb.RoleBinding)
				b.IdentityUid = s.uid(b.IdentityUid)
				r.Requests = append(r.Requests, &iampb.CreateRoleBindingRequest{RoleBinding: b})
			}
			return r
		}
	}
	return []step{
		{name: "binding", in: bind(made("folder"), made("workload"), viewer)},
		{name: "binding of somebody not seen yet", in: bind(made("folder"), made("lookup of a person"), viewer)},
		{name: "own role", in: func(s *story) proto.Message {
			return &iampb.CreateRoleBindingRequest{
				Parent: s.uid("below"), RoleBinding: &iampb.RoleBinding{IdentityUid: s.uid("workload"), RoleUid: s.uid("role")},
			}
		}},
		{name: "binding twice", code: codes.AlreadyExists, in: bind(made("folder"), made("workload"), viewer)},
		{name: "binding of nothing", code: codes.InvalidArgument, in: bind(made("folder"), func(*story) string {
			return ""
		}, "")},
		{
			name: "binding of no role",
			code: codes.NotFound,
			in:   bind(made("folder"), made("workload"), string(resource.DerivedUID("no role"))),
		},
		{name: "binding of no workload", code: codes.NotFound, in: bind(made("folder"), func(s *story) string {
			return s.uid("folder") + "/0123456789abcdef"
		}, viewer)},
		{
			name: "binding without grant",
			code: codes.PermissionDenied,
			in:   bind(made("folder"), made("workload"), viewer),
			as:   "ada",
		},
		{name: "get binding", in: func(s *story) proto.Message {
			return &iampb.GetRoleBindingRequest{Uid: s.uid("binding")}
		}},
		{name: "get no binding", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.GetRoleBindingRequest{Uid: s.org() + "/0123456789abcdef"}
		}},
		{
			name: "batch",
			in: batch(viewer, &iampb.RoleBinding{IdentityUid: "patterns"}, &iampb.RoleBinding{
				IdentityUid: "static keys", RoleUid: viewer,
			}),
		},
		{
			name: "batch that contradicts itself",
			code: codes.InvalidArgument,
			in: batch(viewer, &iampb.RoleBinding{IdentityUid: "service"}, &iampb.RoleBinding{
				IdentityUid: "patterns", RoleUid: owner,
			}),
		},
		{name: "batch of nothing", code: codes.InvalidArgument, in: batch(viewer)},
		{
			name: "batch with one that is there",
			code: codes.AlreadyExists,
			in:   batch(viewer, &iampb.RoleBinding{IdentityUid: "service"}, &iampb.RoleBinding{IdentityUid: "patterns"}),
		},
		{name: "update binding", in: func(s *story) proto.Message {
			return &iampb.UpdateRoleBindingRequest{
				RoleBinding: &iampb.RoleBinding{Uid: s.uid("binding"), RoleUid: string(resource.ManagedRoleUID("editor"))},
			}
		}},
		{name: "update binding with a mask", in: func(s *story) proto.Message {
			return &iampb.UpdateRoleBindingRequest{
				RoleBinding: &iampb.RoleBinding{Uid: s.uid("binding"), RoleUid: viewer, IdentityUid: s.uid("service")},
				UpdateMask:  mask("identityUid"),
			}
		}},
		{name: "update no binding", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.UpdateRoleBindingRequest{
				RoleBinding: &iampb.RoleBinding{Uid: s.org() + "/0123456789abcdef", RoleUid: viewer},
			}
		}},
		{name: "list bindings of an identity", in: func(s *story) proto.Message {
			return &iampb.ListRoleBindingsRequest{Identity: s.uid("workload")}
		}},
		{name: "list bindings of a role", in: func(s *story) proto.Message {
			return &iampb.ListRoleBindingsRequest{Role: s.uid("role"), Group: s.uid("below")}
		}},
		{name: "list bindings by time", in: func(s *story) proto.Message {
			return &iampb.ListRoleBindingsRequest{
				OrderBy: "created_at", PageSize: 2, Uidp: &commonpb.UIDPFilter{DescendantsOf: s.org()},
			}
		}},
		{name: "role in use", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteRoleRequest{Uid: s.uid("role")}
		}},
		{name: "owner's binding", in: func(s *story) proto.Message { return &iampb.ListRoleBindingsRequest{Group: s.org()} }},
		{name: "last owner", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteRoleBindingRequest{Uid: s.answers["owner's binding"].(interface {
				GetRoleBindings() []*iampb.RoleBinding
			}).GetRoleBindings()[0].GetUid()}
		}},
	}
}

func deleteSteps() []step {
	return []step{
		{name: "delete binding", in: func(s *story) proto.Message {
			return &iampb.DeleteRoleBindingRequest{Uid: s.uid("own role")}
		}},
		{name: "delete binding again", in: func(s *story) proto.Message {
			return &iampb.DeleteRoleBindingRequest{Uid: s.uid("own role")}
		}},
		{name: "delete role", in: func(s *story) proto.Message { return &iampb.DeleteRoleRequest{Uid: s.uid("role")} }},
		{name: "delete role again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.DeleteRoleRequest{Uid: s.uid("role")}
		}},
		{name: "delete group", in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("one letter")}
		}},
		{name: "delete group again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("one letter")}
		}},
		{name: "delete organization", in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("second organization")}
		}},
	}
}
