package e2e_test

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// federationSteps returns the steps of TestApiBothProtocols that are about federated resources and questions about
// access.
func federationSteps() []step {
	return slices.Concat(providerSteps(), mappingSteps(), inviteSteps(),
		associationSteps(), accessSteps(), dependencySteps())
}

// refusals returns steps for the errors that every method on one place has: without a token, as a caller without a
// role, for a malformed UID, and for a missing resource. The last step expects the code gone, which is OK for methods
// that accept a missing resource.
func refusals(name string, gone codes.Code, in func(uid string) proto.Message) []step {
	missing := func(s *story) proto.Message { return in(s.org() + "/0123456789abcdef") }
	return []step{
		{name: name + " as nobody", code: codes.Unauthenticated, in: missing, as: "nobody"},
		{name: name + " as a stranger", code: codes.PermissionDenied, in: missing, as: "stranger"},
		{name: name + " of nonsense", code: codes.InvalidArgument, in: func(*story) proto.Message { return in("nonsense") }},
		{name: name + " of what is not there", code: gone, in: missing},
	}
}

func providerSteps() []step {
	create := func(p *iampb.IdentityProvider) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &iampb.CreateIdentityProviderRequest{Parent: s.uid("folder"), IdentityProvider: p}
		}
	}
	update := func(p *iampb.IdentityProvider, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			p := proto.Clone(p).(*iampb.IdentityProvider)
			p.Uid = s.uid("provider")
			r := &iampb.UpdateIdentityProviderRequest{IdentityProvider: p}
			if paths != nil {
				r.UpdateMask = mask(paths...)
			}
			return r
		}
	}
	oidc := func(c *iampb.IdentityProvider_OIDC) *iampb.IdentityProvider {
		return &iampb.IdentityProvider{Configuration: &iampb.IdentityProvider_Oidc{Oidc: c}}
	}
	list := func(r *iampb.ListIdentityProvidersRequest) func(*story) proto.Message {
		return func(*story) proto.Message { return r }
	}
	whole := provider("whole")
	whole.Description, whole.GetOidc().PkceEnabled, whole.GetOidc().GroupsClaim = "Ünï ✓ <b>&", true, "groups"
	whole.GetOidc().AdditionalScopes, whole.GetOidc().CorrelationRule = []string{
		"email", "groups",
	}, iampb.IdentityProvider_OIDC_CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID
	directory := func(request func(uid, etag string) proto.Message) func(*story) proto.Message {
		return func(s *story) proto.Message {
			made, _ := s.answers["generate a token"].(*iampb.GenerateScimTokenResponse)
			return request(s.uid("provider"), made.GetEtag())
		}
	}
	return slices.Concat([]step{
		{name: "provider", in: create(provider("provider"))},
		{name: "whole provider", in: create(whole)},
		{name: "provider of the same name", in: create(provider("provider"))},
		{name: "provider only tried", in: func(s *story) proto.Message {
			return &iampb.CreateIdentityProviderRequest{Parent: s.org(), IdentityProvider: provider("tried"), ValidateOnly: true}
		}},
		{name: "provider of nothing", code: codes.InvalidArgument, in: create(&iampb.IdentityProvider{})},
		{name: "provider with nothing right", code: codes.InvalidArgument, in: create(&iampb.IdentityProvider{
			Name:          "X",
			Description:   "\t",
			DefaultRole:   "x",
			Configuration: &iampb.IdentityProvider_Oidc{Oidc: &iampb.IdentityProvider_OIDC{CorrelationRule: 9}},
		})},
		{name: "provider of no role", code: codes.NotFound, in: create(roled(string(resource.DerivedUID("no role"))))},
		{name: "get provider", in: func(s *story) proto.Message {
			return &iampb.GetIdentityProviderRequest{Uid: s.uid("whole provider")}
		}},
		{name: "rename provider", in: update(&iampb.IdentityProvider{Name: "renamed"})},
		{name: "give the rule", in: update(oidc(&iampb.IdentityProvider_OIDC{CorrelationRule: 1}))},
		{
			name: "change the rule",
			code: codes.InvalidArgument,
			in:   update(oidc(&iampb.IdentityProvider_OIDC{CorrelationRule: 2})),
		},
		{
			name: "change the secret", in: update(oidc(&iampb.IdentityProvider_OIDC{ClientSecret: "new"}), "oidc.client_secret"),
		},
		{name: "clear the secret", code: codes.InvalidArgument, in: update(&iampb.IdentityProvider{}, "oidc.clientSecret")},
		{
			name: "clear the secret for PKCE",
			in:   update(oidc(&iampb.IdentityProvider_OIDC{PkceEnabled: true}), "oidc.client_secret", "oidc.pkce_enabled"),
		},
		{name: "update provider in vain", code: codes.InvalidArgument, in: update(provider("x"), "nothing")},
		{
			name: "update provider to no role",
			code: codes.NotFound,
			in:   update(roled(string(resource.DerivedUID("no role"))), "default_role"),
		},
		{name: "generate a token", in: directory(func(uid, _ string) proto.Message {
			return &iampb.GenerateScimTokenRequest{IdentityProviderUid: uid}
		})},
		{name: "generate a second token", code: codes.FailedPrecondition, in: directory(func(uid, _ string) proto.Message {
			return &iampb.GenerateScimTokenRequest{IdentityProviderUid: uid}
		})},
		{name: "provider with a token", in: directory(func(uid, _ string) proto.Message {
			return &iampb.GetIdentityProviderRequest{Uid: uid}
		})},
		{name: "regenerate the token", in: directory(func(uid, etag string) proto.Message {
			return &iampb.RegenerateScimTokenRequest{
				IdentityProviderUid: uid, Etag: etag, NeverExpires: true, Overlap: durationpb.New(time.Hour),
			}
		})},
		{name: "regenerate the token with an old etag", code: codes.Aborted, in: directory(func(uid, _ string) proto.Message {
			return &iampb.RegenerateScimTokenRequest{IdentityProviderUid: uid, Etag: "z"}
		})},
		{name: "disable the directory", in: directory(func(uid, _ string) proto.Message {
			return &iampb.SetScimEnabledRequest{IdentityProviderUid: uid, Etag: "2"}
		})},
		{name: "enable the directory with one owner", code: codes.FailedPrecondition,
			in: directory(func(uid, _ string) proto.Message {
				return &iampb.SetScimEnabledRequest{IdentityProviderUid: uid, Enabled: true, Etag: "3"}
			})},
		{name: "directory", in: directory(func(uid, _ string) proto.Message {
			return &accesspb.GetDirectoryRequest{Uid: uid}
		})},
		{name: "roles from teams, in a preview", in: directory(func(uid, _ string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{Directory: &accesspb.Directory{
				Uid: uid, Etag: "3", RoleSource: accesspb.RoleSource_ROLE_SOURCE_TEAMS,
			}, ValidateOnly: true}
		})},
		{name: "roles from teams", in: directory(func(uid, _ string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{Directory: &accesspb.Directory{
				Uid: uid, Etag: "3", RoleSource: accesspb.RoleSource_ROLE_SOURCE_TEAMS,
			}}
		})},
		{name: "roles from nowhere", code: codes.InvalidArgument, in: directory(func(uid, _ string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{Directory: &accesspb.Directory{
				Uid: uid, Etag: "4", RoleSource: 9,
			}}
		})},
		{name: "limits of the directory", in: directory(func(uid, _ string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{Directory: &accesspb.Directory{
				Uid: uid, Etag: "4", HoldPercent: new(int32(30)), HoldMinimum: new(int32(6)),
			}}
		})},
		{name: "limits beyond everybody", code: codes.InvalidArgument, in: directory(func(uid, _ string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{Directory: &accesspb.Directory{
				Uid: uid, Etag: "5", HoldPercent: new(int32(101)), HoldMinimum: new(int32(-1)),
			}}
		})},
		{name: "decision about nothing", code: codes.FailedPrecondition, in: directory(func(uid, _ string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{
				Directory: &accesspb.Directory{Uid: uid, Etag: "5"}, HeldDecision: accesspb.HeldDecision_HELD_DECISION_CONFIRM,
			}
		})},
		{name: "roles from claims with an old etag", code: codes.Aborted, in: directory(func(uid, _ string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{Directory: &accesspb.Directory{
				Uid: uid, Etag: "3", RoleSource: accesspb.RoleSource_ROLE_SOURCE_CLAIMS,
			}}
		})},
		{name: "revoke the token", in: directory(func(uid, _ string) proto.Message {
			return &iampb.RevokeScimTokenRequest{IdentityProviderUid: uid}
		})},
		{name: "list providers", in: list(&iampb.ListIdentityProvidersRequest{OrderBy: "create_time"})},
		{
			name: "list a page of providers",
			in:   list(&iampb.ListIdentityProvidersRequest{OrderBy: "created_at desc", PageSize: 2}),
		},
		{name: "list the next page of providers", in: func(s *story) proto.Message {
			first := s.answers["list a page of providers"].(*iampb.ListIdentityProvidersResponse)
			return &iampb.ListIdentityProvidersRequest{
				OrderBy: "created_at desc", PageSize: 2, PageToken: first.GetNextPageToken(),
			}
		}},
		{name: "list providers of a name", in: list(&iampb.ListIdentityProvidersRequest{Name: "whole"})},
		{name: "list providers of a stranger", in: list(&iampb.ListIdentityProvidersRequest{}), as: "stranger"},
		{
			name: "list providers as nobody",
			code: codes.Unauthenticated,
			in:   list(&iampb.ListIdentityProvidersRequest{}),
			as:   "nobody",
		},
		{
			name: "list providers in no order",
			code: codes.InvalidArgument,
			in:   list(&iampb.ListIdentityProvidersRequest{OrderBy: "issuer"}),
		},
	},
		refusals("create provider", codes.NotFound, func(uid string) proto.Message {
			return &iampb.CreateIdentityProviderRequest{Parent: uid, IdentityProvider: provider("x")}
		}),
		refusals("get provider", codes.NotFound, func(uid string) proto.Message {
			return &iampb.GetIdentityProviderRequest{Uid: uid}
		}),
		refusals("update provider", codes.NotFound, func(uid string) proto.Message {
			return &iampb.UpdateIdentityProviderRequest{IdentityProvider: &iampb.IdentityProvider{Uid: uid, Name: "x"}}
		}),
		refusals("delete provider", codes.NotFound, func(uid string) proto.Message {
			return &iampb.DeleteIdentityProviderRequest{Uid: uid}
		}),
	)
}

func mappingSteps() []step {
	create := func(m *iampb.ExternalGroupRoleMapping) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &iampb.CreateExternalGroupRoleMappingRequest{Parent: s.uid("provider"), ExternalGroupRoleMapping: m}
		}
	}
	batch := func(steps ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			r := &iampb.BatchDeleteExternalGroupRoleMappingsRequest{Parent: s.uid("provider")}
			for _, step := range steps {
				r.Names = append(r.Names, s.uid(step))
			}
			return r
		}
	}
	list := func(r *iampb.ListExternalGroupRoleMappingsRequest) func(*story) proto.Message {
		return func(*story) proto.Message { return r }
	}
	return slices.Concat([]step{
		{name: "mapping", in: create(mapping("staff"))},
		{name: "second mapping", in: create(mapping("Ünï ✓"))},
		{name: "third mapping", in: func(s *story) proto.Message {
			return &iampb.CreateExternalGroupRoleMappingRequest{Parent: s.uid("provider"),
				ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{
					ExternalGroupId: "staff", RoleUid: s.uid("role"), Scope: s.org(),
				}}
		}},
		{name: "mapping twice", code: codes.AlreadyExists, in: create(mapping("staff"))},
		{name: "mapping of nothing", code: codes.InvalidArgument, in: create(&iampb.ExternalGroupRoleMapping{})},
		{
			name: "mapping to no role",
			code: codes.NotFound,
			in:   create(&iampb.ExternalGroupRoleMapping{ExternalGroupId: "x", RoleUid: string(resource.DerivedUID("no role"))}),
		},
		{name: "mapping in a group", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.CreateExternalGroupRoleMappingRequest{Parent: s.uid("folder"), ExternalGroupRoleMapping: mapping("x")}
		}},
		{name: "get mapping", in: func(s *story) proto.Message {
			return &iampb.GetExternalGroupRoleMappingRequest{Uid: s.uid("mapping")}
		}},
		{name: "list mappings", in: list(&iampb.ListExternalGroupRoleMappingsRequest{OrderBy: "create_time"})},
		{name: "list mappings of a provider", in: func(s *story) proto.Message {
			return &iampb.ListExternalGroupRoleMappingsRequest{
				IdentityProviderUid: s.uid("provider"), OrderBy: "create_time desc", PageSize: 1,
			}
		}},
		{name: "list mappings of another", in: func(s *story) proto.Message {
			return &iampb.ListExternalGroupRoleMappingsRequest{IdentityProviderUid: s.uid("whole provider")}
		}},
		{name: "list mappings of a stranger", in: list(&iampb.ListExternalGroupRoleMappingsRequest{}), as: "stranger"},
		{
			name: "list mappings as nobody",
			code: codes.Unauthenticated,
			in:   list(&iampb.ListExternalGroupRoleMappingsRequest{}),
			as:   "nobody",
		},
		{
			name: "list mappings in no order",
			code: codes.InvalidArgument,
			in:   list(&iampb.ListExternalGroupRoleMappingsRequest{OrderBy: "name"}),
		},
		{name: "provider in use", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteIdentityProviderRequest{Uid: s.uid("provider")}
		}},
		{name: "delete mapping", in: func(s *story) proto.Message {
			return &iampb.DeleteExternalGroupRoleMappingRequest{Uid: s.uid("mapping")}
		}},
		{name: "delete mapping again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.DeleteExternalGroupRoleMappingRequest{Uid: s.uid("mapping")}
		}},
		{name: "batch delete", in: batch("mapping", "second mapping")},
		{name: "batch delete again", in: batch("mapping", "second mapping")},
		{name: "batch delete of none", code: codes.InvalidArgument, in: batch()},
		{name: "batch delete of something else", code: codes.InvalidArgument, in: batch("third mapping", "folder")},
	},
		refusals("create mapping", codes.NotFound, func(uid string) proto.Message {
			return &iampb.CreateExternalGroupRoleMappingRequest{Parent: uid, ExternalGroupRoleMapping: mapping("x")}
		}),
		refusals("get mapping", codes.NotFound, func(uid string) proto.Message {
			return &iampb.GetExternalGroupRoleMappingRequest{Uid: uid}
		}),
		refusals("delete mapping", codes.NotFound, func(uid string) proto.Message {
			return &iampb.DeleteExternalGroupRoleMappingRequest{Uid: uid}
		}),
		refusals("batch delete", codes.OK, func(uid string) proto.Message {
			return &iampb.BatchDeleteExternalGroupRoleMappingsRequest{Parent: uid, Names: []string{uid + "/0123456789abcdef"}}
		}),
	)
}

func inviteSteps() []step {
	create := func(i *iampb.GroupInvite) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &iampb.CreateGroupInviteRequest{Parent: s.uid("folder"), GroupInvite: i}
		}
	}
	list := func(r *iampb.ListGroupInvitesRequest) func(*story) proto.Message {
		return func(*story) proto.Message { return r }
	}
	return slices.Concat([]step{
		{name: "invite", in: create(invitation())},
		{name: "whole invite", in: func(s *story) proto.Message {
			return &iampb.CreateGroupInviteRequest{Parent: s.uid("below"), GroupInvite: &iampb.GroupInvite{
				RoleUid:   s.uid("role"),
				Email:     "ada@people.example",
				Ttl:       durationpb.New(90 * time.Second),
				SingleUse: true,
				Code:      "ignored",
				KeyId:     "ignored",
			}}
		}},
		{name: "invite only tried", in: func(s *story) proto.Message {
			return &iampb.CreateGroupInviteRequest{Parent: s.uid("folder"), GroupInvite: invitation(), ValidateOnly: true}
		}},
		{name: "invite to nothing", code: codes.InvalidArgument, in: create(&iampb.GroupInvite{})},
		{
			name: "invite with nothing right",
			code: codes.InvalidArgument,
			in:   create(&iampb.GroupInvite{RoleUid: "x", Email: "x", Ttl: durationpb.New(-1)}),
		},
		{
			name: "invite to no role",
			code: codes.NotFound,
			in:   create(&iampb.GroupInvite{RoleUid: string(resource.DerivedUID("no role")), Ttl: durationpb.New(time.Hour)}),
		},
		{name: "get invite", in: func(s *story) proto.Message {
			return &iampb.GetGroupInviteRequest{Uid: s.uid("whole invite")}
		}},
		{name: "list invites", in: list(&iampb.ListGroupInvitesRequest{})},
		{name: "list the first invite", in: list(&iampb.ListGroupInvitesRequest{OrderBy: "create_time", PageSize: 1})},
		{name: "list invites of a key", in: func(s *story) proto.Message {
			return &iampb.ListGroupInvitesRequest{KeyId: s.answers["invite"].(*iampb.GroupInvite).GetKeyId()}
		}},
		{name: "list invites of no key", in: list(&iampb.ListGroupInvitesRequest{KeyId: "nothing"})},
		{name: "list invites of a stranger", in: list(&iampb.ListGroupInvitesRequest{}), as: "stranger"},
		{
			name: "list invites as nobody",
			code: codes.Unauthenticated,
			in:   list(&iampb.ListGroupInvitesRequest{}),
			as:   "nobody",
		},
		{
			name: "list invites in no order",
			code: codes.InvalidArgument,
			in:   list(&iampb.ListGroupInvitesRequest{OrderBy: "email"}),
		},
		{name: "update invite", in: func(s *story) proto.Message {
			return &iampb.UpdateGroupInviteRequest{
				GroupInvite: &iampb.GroupInvite{Uid: s.uid("invite"), Email: "bob@people.example", RoleUid: s.uid("role")},
			}
		}},
		{name: "update invite only tried", in: func(s *story) proto.Message {
			return &iampb.UpdateGroupInviteRequest{
				GroupInvite: &iampb.GroupInvite{Uid: s.uid("invite")}, UpdateMask: mask("email"), ValidateOnly: true,
			}
		}},
		{name: "update invite to nothing", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &iampb.UpdateGroupInviteRequest{GroupInvite: &iampb.GroupInvite{Uid: s.uid("invite")}, UpdateMask: mask("*")}
		}},
		{name: "get the changed invite", in: func(s *story) proto.Message {
			return &iampb.GetGroupInviteRequest{Uid: s.uid("invite")}
		}},
		{name: "delete invite", in: func(s *story) proto.Message {
			return &iampb.DeleteGroupInviteRequest{Uid: s.uid("invite")}
		}},
		{name: "delete invite again", in: func(s *story) proto.Message {
			return &iampb.DeleteGroupInviteRequest{Uid: s.uid("invite")}
		}},
	},
		refusals("create invite", codes.NotFound, func(uid string) proto.Message {
			return &iampb.CreateGroupInviteRequest{Parent: uid, GroupInvite: invitation()}
		}),
		refusals("get invite", codes.NotFound, func(uid string) proto.Message {
			return &iampb.GetGroupInviteRequest{Uid: uid}
		}),
		refusals("update invite", codes.NotFound, func(uid string) proto.Message {
			return &iampb.UpdateGroupInviteRequest{GroupInvite: &iampb.GroupInvite{Uid: uid, Email: "a@people.example"}}
		}),
		refusals("delete invite", codes.OK, func(uid string) proto.Message {
			return &iampb.DeleteGroupInviteRequest{Uid: uid}
		}),
	)
}

func associationSteps() []step {
	whole := func(s *story) *iampb.AccountAssociation {
		const id = "01234567-89ab-cdef-0123-456789abcdef"
		a := account("whole")
		a.Description, a.Google = "Ünï ✓ <b>&", &iampb.AccountAssociation_Google{
			ProjectId: "my-project", ProjectNumber: "123",
		}
		a.Azure = &iampb.AccountAssociation_Azure{TenantId: id, ClientIds: map[string]string{"b": id, "a": id}}
		a.Github = &iampb.AccountAssociation_GitHub{
			AppInstallations: map[int64]*iampb.AccountAssociation_GitHubAppInstallations{
				10: {
					Installations: []*iampb.AccountAssociation_GitHubInstallation{
						{InstallationId: 2, Name: "two"}, {InstallationId: 1},
					},
				},
				9: {},
			},
		}
		return withServices(a, map[string]string{"INGESTER": s.uid("service")})
	}
	create := func(group string, a *iampb.AccountAssociation) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &iampb.CreateAccountAssociationRequest{Parent: s.uid(group), AccountAssociation: a}
		}
	}
	update := func(a *iampb.AccountAssociation, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			a := proto.Clone(a).(*iampb.AccountAssociation)
			a.Uid = s.uid("folder")
			r := &iampb.UpdateAccountAssociationRequest{AccountAssociation: a}
			if paths != nil {
				r.UpdateMask = mask(paths...)
			}
			return r
		}
	}
	check := func(group string, cloud iampb.AccountProviderType) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &iampb.CheckAccountAssociationRequest{Uid: s.uid(group), ProviderType: cloud}
		}
	}
	list := func(r *iampb.ListAccountAssociationsRequest) func(*story) proto.Message {
		return func(*story) proto.Message { return r }
	}
	remove := func(s *story) proto.Message { return &iampb.DeleteAccountAssociationRequest{Uid: s.uid("below")} }
	return slices.Concat([]step{
		{name: "association", in: func(s *story) proto.Message {
			return &iampb.CreateAccountAssociationRequest{Parent: s.uid("folder"), AccountAssociation: whole(s)}
		}},
		{
			name: "association of services alone",
			in:   create("below", withServices(&iampb.AccountAssociation{Name: "empty"}, nil)),
		},
		{name: "second association", code: codes.AlreadyExists, in: create("folder", account("x"))},
		{name: "association of nothing", code: codes.InvalidArgument, in: create("one letter", &iampb.AccountAssociation{})},
		{
			name: "association with nothing right",
			code: codes.InvalidArgument,
			in: create("one letter", &iampb.AccountAssociation{
				Name:        "X",
				Description: "\n",
				Amazon:      &iampb.AccountAssociation_Amazon{},
				Google:      &iampb.AccountAssociation_Google{},
				Azure:       &iampb.AccountAssociation_Azure{},
			}),
		},
		{name: "get association", in: func(s *story) proto.Message {
			return &iampb.GetAccountAssociationRequest{Uid: s.uid("folder")}
		}},
		{name: "rename association", in: update(&iampb.AccountAssociation{Name: "renamed"})},
		{
			name: "change the account",
			in: update(&iampb.AccountAssociation{
				Name: "ignored", Amazon: &iampb.AccountAssociation_Amazon{Account: "210987654321"},
			},
				"amazon.account"),
		},
		{name: "drop a project", in: update(&iampb.AccountAssociation{}, "google")},
		{
			name: "change the account to nonsense",
			code: codes.InvalidArgument,
			in:   update(&iampb.AccountAssociation{Amazon: &iampb.AccountAssociation_Amazon{Account: "1"}}),
		},
		{name: "update association in vain", code: codes.InvalidArgument, in: update(account("x"), "nothing")},
		{name: "check an account", in: check("folder", iampb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_AMAZON)},
		{name: "check no account", in: check("below", iampb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_AZURE)},
		{name: "check nothing", code: codes.InvalidArgument, in: check("folder", 0)},
		{name: "list associations", in: list(&iampb.ListAccountAssociationsRequest{OrderBy: "name"})},
		{name: "list associations of a name", in: list(&iampb.ListAccountAssociationsRequest{Name: "empty"})},
		{name: "list associations in a group", in: func(s *story) proto.Message {
			return &iampb.ListAccountAssociationsRequest{
				OrderBy: "group desc", Uidp: &commonpb.UIDPFilter{DescendantsOf: s.uid("folder")},
			}
		}},
		{name: "list associations of a stranger", in: list(&iampb.ListAccountAssociationsRequest{}), as: "stranger"},
		{
			name: "list associations as nobody",
			code: codes.Unauthenticated,
			in:   list(&iampb.ListAccountAssociationsRequest{}),
			as:   "nobody",
		},
		{
			name: "list associations in no order",
			code: codes.InvalidArgument,
			in:   list(&iampb.ListAccountAssociationsRequest{OrderBy: "amazon"}),
		},
		{name: "delete association", in: remove},
		{name: "delete association again", in: remove},
	},
		refusals("create association", codes.NotFound, func(uid string) proto.Message {
			return &iampb.CreateAccountAssociationRequest{Parent: uid, AccountAssociation: account("x")}
		}),
		refusals("get association", codes.NotFound, func(uid string) proto.Message {
			return &iampb.GetAccountAssociationRequest{Uid: uid}
		}),
		refusals("update association", codes.NotFound, func(uid string) proto.Message {
			return &iampb.UpdateAccountAssociationRequest{AccountAssociation: &iampb.AccountAssociation{Uid: uid, Name: "x"}}
		}),
		refusals("check association", codes.NotFound, func(uid string) proto.Message {
			return &iampb.CheckAccountAssociationRequest{
				Uid: uid, ProviderType: iampb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_GOOGLE,
			}
		}),
		refusals("delete association", codes.OK, func(uid string) proto.Message {
			return &iampb.DeleteAccountAssociationRequest{Uid: uid}
		}),
	)
}

func accessSteps() []step {
	check := func(step, capability string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &accesspb.CheckAccessRequest{IdentityUid: s.uid(step), Capability: capability, PlaceUid: s.uid("below")}
		}
	}
	list := func(r *accesspb.ListAccessRequest) func(*story) proto.Message {
		return func(s *story) proto.Message {
			r := proto.Clone(r).(*accesspb.ListAccessRequest)
			r.Capability, r.PlaceUid = "groups.update", s.uid("below")
			return r
		}
	}
	is := func(m proto.Message) func(*story) proto.Message { return func(*story) proto.Message { return m } }
	remove := func(step string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &accesspb.SimulateRequest{Changes: []*accesspb.SimulatedChange{
				{Change: &accesspb.SimulatedChange_DeleteIdentity{
					DeleteIdentity: &iampb.DeleteIdentityRequest{Uid: s.uid(step)},
				}},
			}}
		}
	}
	return slices.Concat([]step{
		{name: "may", in: check("lookup of a person", "groups.list")},
		{name: "may by another name", in: check("lookup of a person", "CAP_IAM_GROUPS_LIST")},
		{name: "may not", in: check("lookup of a person", "groups.delete")},
		{name: "may who is not there", in: check("folder", "groups.list")},
		{name: "may do what is nothing", code: codes.InvalidArgument, in: check("workload", "everything")},
		{name: "may oneself", in: func(s *story) proto.Message {
			return &accesspb.CheckAccessRequest{IdentityUid: string(ada), Capability: "groups.list", PlaceUid: s.org()}
		}, as: "ada"},
		{name: "who may", in: list(&accesspb.ListAccessRequest{OrderBy: "create_time"})},
		{name: "who may, a page", in: list(&accesspb.ListAccessRequest{OrderBy: "create_time desc", PageSize: 1, Skip: 1})},
		{name: "who may, in no order", code: codes.InvalidArgument, in: list(&accesspb.ListAccessRequest{OrderBy: "name"})},
		{name: "a path", in: is(&accesspb.ResolvePathRequest{Kind: "roles", Path: "/viewer"})},
		{
			name: "a path to nothing",
			code: codes.NotFound,
			in:   is(&accesspb.ResolvePathRequest{Kind: "repos", Path: "no/such/app"}),
		},
		{
			name: "a path of a stranger",
			code: codes.NotFound,
			in:   is(&accesspb.ResolvePathRequest{Kind: "roles", Path: "viewer"}),
			as:   "stranger",
		},
		{name: "a path of no kind", code: codes.InvalidArgument, in: is(&accesspb.ResolvePathRequest{Path: "viewer"})},
		{
			name: "a path as nobody",
			code: codes.Unauthenticated,
			in:   is(&accesspb.ResolvePathRequest{Kind: "roles", Path: "viewer"}),
			as:   "nobody",
		},
		{name: "names", in: is(&accesspb.LookupNamesRequest{Uids: []string{string(resource.ManagedRoleUID("viewer"))}})},
		{
			name: "names of a stranger",
			in:   is(&accesspb.LookupNamesRequest{Uids: []string{string(resource.ManagedRoleUID("viewer"))}}),
			as:   "stranger",
		},
		{
			name: "names of no uids",
			code: codes.InvalidArgument,
			in:   is(&accesspb.LookupNamesRequest{Uids: []string{"viewer"}}),
		},
		{name: "names as nobody", code: codes.Unauthenticated, in: is(&accesspb.LookupNamesRequest{}), as: "nobody"},
		{name: "simulation", in: remove("workload")},
		{name: "simulation of a stranger", code: codes.PermissionDenied, in: remove("workload"), as: "stranger"},
		{name: "simulation of nothing", code: codes.InvalidArgument, in: is(&accesspb.SimulateRequest{})},
		{name: "simulation as nobody", code: codes.Unauthenticated, in: remove("workload"), as: "nobody"},
		{
			name: "unused",
			in:   is(&accesspb.ListUnusedAccessRequest{Kind: accesspb.UnusedKind_UNUSED_KIND_IDENTITY, PageSize: 1, Skip: 1}),
		},
		{name: "unused with a simulation of too many", code: codes.InvalidArgument, in: is(&accesspb.ListUnusedAccessRequest{
			Kind: accesspb.UnusedKind_UNUSED_KIND_IDENTITY, Simulate: true, PageSize: 21})},
		{name: "ending", in: is(&accesspb.ListEndingGrantsRequest{PageSize: 1})},
		{name: "ending of a stranger", in: is(&accesspb.ListEndingGrantsRequest{}), as: "stranger"},
		{
			name: "ending in the past",
			code: codes.InvalidArgument,
			in:   is(&accesspb.ListEndingGrantsRequest{Within: durationpb.New(-1)}),
		},
		{
			name: "ending on what is no uid",
			code: codes.InvalidArgument,
			in:   is(&accesspb.ListEndingGrantsRequest{GroupUid: "x"}),
		},
		{name: "ending as nobody", code: codes.Unauthenticated, in: is(&accesspb.ListEndingGrantsRequest{}), as: "nobody"},
		{
			name: "unused of a stranger",
			in:   is(&accesspb.ListUnusedAccessRequest{Kind: accesspb.UnusedKind_UNUSED_KIND_GROUP_INVITE}),
			as:   "stranger",
		},
		{name: "unused of no kind", code: codes.InvalidArgument, in: is(&accesspb.ListUnusedAccessRequest{})},
		{
			name: "unused as nobody",
			code: codes.Unauthenticated,
			in:   is(&accesspb.ListUnusedAccessRequest{Kind: accesspb.UnusedKind_UNUSED_KIND_ROLE_BINDING}),
			as:   "nobody",
		},
		{name: "search", in: is(&accesspb.SearchRequest{Query: "viewer", PageSize: 1})},
		{name: "search of a stranger", in: is(&accesspb.SearchRequest{Query: "viewer"}), as: "stranger"},
		{name: "search for nothing", code: codes.InvalidArgument, in: is(&accesspb.SearchRequest{PageSize: -1})},
		{
			name: "search as nobody",
			code: codes.Unauthenticated,
			in:   is(&accesspb.SearchRequest{Query: "viewer"}),
			as:   "nobody",
		},
		{name: "counts", in: func(s *story) proto.Message { return &accesspb.CountChildrenRequest{Uid: s.uid("folder")} }},
		{name: "counts of a stranger", code: codes.PermissionDenied, in: func(s *story) proto.Message {
			return &accesspb.CountChildrenRequest{Uid: s.uid("folder")}
		}, as: "stranger"},
		{name: "counts of no uid", code: codes.InvalidArgument, in: is(&accesspb.CountChildrenRequest{})},
		{name: "past grants of no place", code: codes.InvalidArgument, in: func(*story) proto.Message {
			return &accesspb.ListPastGrantsRequest{AsOf: justNow()}
		}},
		{name: "past grants in no time", code: codes.InvalidArgument, in: func(s *story) proto.Message {
			return &accesspb.ListPastGrantsRequest{PlaceUid: s.uid("folder")}
		}},
		{name: "past grants of a stranger", code: codes.PermissionDenied, in: func(s *story) proto.Message {
			return &accesspb.ListPastGrantsRequest{PlaceUid: s.uid("folder"), AsOf: justNow()}
		}, as: "stranger"},
		{name: "past groups", in: func(s *story) proto.Message {
			return &accesspb.ListPastGroupsRequest{Uid: s.uid("below"), AsOf: justNow()}
		}},
		{name: "past groups as nobody", code: codes.Unauthenticated, in: func(s *story) proto.Message {
			return &accesspb.ListPastGroupsRequest{Uid: s.uid("below"), AsOf: justNow()}
		}, as: "nobody"},
		{name: "past groups before history", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &accesspb.ListPastGroupsRequest{Uid: s.uid("below"), AsOf: &timestamppb.Timestamp{}}
		}},
		{name: "past grants of a person", in: func(*story) proto.Message {
			return &accesspb.ListPastGrantsRequest{IdentityUid: string(ada), AsOf: justNow()}
		}, as: "stranger"},
		{name: "no difference", code: codes.InvalidArgument, in: is(&accesspb.DiffAccessRequest{})},
		{name: "difference of a stranger", in: func(*story) proto.Message {
			return &accesspb.DiffAccessRequest{FromTime: justNow(), ToTime: justNow()}
		}, as: "stranger"},
		{name: "capabilities", in: is(&accesspb.ListCapabilitiesRequest{}), as: "stranger"},
		{
			name: "capabilities as nobody",
			code: codes.Unauthenticated,
			in:   is(&accesspb.ListCapabilitiesRequest{}),
			as:   "nobody",
		},
		{name: "people", in: is(&accesspb.ListPeopleRequest{PageSize: 1})},
		{name: "people of a stranger", in: is(&accesspb.ListPeopleRequest{}), as: "stranger"},
		{name: "people by another order", code: codes.InvalidArgument, in: is(&accesspb.ListPeopleRequest{OrderBy: "email"})},
		{name: "people as nobody", code: codes.Unauthenticated, in: is(&accesspb.ListPeopleRequest{}), as: "nobody"},
		{name: "version", in: is(&accesspb.GetVersionRequest{}), as: "stranger"},
		{
			name: "the installation as nobody",
			code: codes.Unauthenticated,
			in:   is(&operatorpb.GetInstallationRequest{}),
			as:   "nobody",
		},
		{
			name: "the installation of a stranger",
			code: codes.PermissionDenied,
			in:   is(&operatorpb.GetInstallationRequest{}),
			as:   "stranger",
		},
		{name: "version as nobody", code: codes.Unauthenticated, in: is(&accesspb.GetVersionRequest{}), as: "nobody"},
	},
		refusals("check access", codes.OK, func(uid string) proto.Message {
			return &accesspb.CheckAccessRequest{IdentityUid: string(ada), Capability: "groups.list", PlaceUid: uid}
		}),
		refusals("list access", codes.OK, func(uid string) proto.Message {
			return &accesspb.ListAccessRequest{Capability: "groups.update", PlaceUid: uid}
		}),
	)
}

// dependencySteps returns steps that try to delete resources on which others depend, which fails, and then delete the
// dependent resources.
func dependencySteps() []step {
	role := func(s *story) proto.Message { return &iampb.DeleteRoleRequest{Uid: s.uid("role")} }
	return []step{
		{name: "group with all kinds of children", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("folder")}
		}},
		{name: "role with all kinds of users", code: codes.FailedPrecondition, in: role},
		{name: "delete the third mapping", in: func(s *story) proto.Message {
			return &iampb.DeleteExternalGroupRoleMappingRequest{Uid: s.uid("third mapping")}
		}},
		{name: "delete the whole invite", in: func(s *story) proto.Message {
			return &iampb.DeleteGroupInviteRequest{Uid: s.uid("whole invite")}
		}},
		{name: "delete provider", in: func(s *story) proto.Message {
			return &iampb.DeleteIdentityProviderRequest{Uid: s.uid("provider")}
		}},
		{name: "delete provider again", code: codes.NotFound, in: func(s *story) proto.Message {
			return &iampb.DeleteIdentityProviderRequest{Uid: s.uid("provider")}
		}},
	}
}
