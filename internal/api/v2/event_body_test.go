package v2_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// TestEventBodies checks the bodies of events whose body is not just the resource.
func TestEventBodies(t *testing.T) {
	const org = resource.UID("0123456789abcdef0123456789abcdef01234567")
	const thing = org + "/0123456789abcdef"
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	binding := resource.RoleBinding{UID: thing, Identity: org, Role: org, CreateTime: at}
	tests := map[string]struct {
		event     resource.EventType
		before    any
		after     any
		name      string
		has, lack []string
	}{
		"an invite tells next to nothing": {
			resource.InviteCreated, nil,
			resource.GroupInvite{UID: thing, Role: org, Email: "a@b.test", ExpirationTime: at, KeyID: "secret"},
			"holdfast.iam.v2beta1.GroupInvite",
			[]string{`"uid":"` + string(thing) + `"`, `"expirationTime":"2026-01-02T03:04:05.678Z"`},
			[]string{"a@b.test", "secret"},
		},
		"a binding by uids": {
			resource.BindingCreated, nil, binding, "holdfast.iam.v2beta1.RoleBinding",
			[]string{`"role":{"uid":"` + string(org) + `"`, `"group":{"uid":"` + string(org)}, nil,
		},
		"bindings": {
			resource.BindingsCreated, nil, []resource.RoleBinding{binding, binding},
			"holdfast.iam.v2beta1.BatchCreateRoleBindingsResponse", []string{`"roleBindings":[{`}, nil,
		},
		"mappings that are gone": {
			resource.MappingsDeleted, []resource.ExternalGroupRoleMapping{{UID: thing, ExternalGroup: "g"}}, nil,
			"holdfast.iam.v2beta1.BatchDeleteExternalGroupRoleMappingsResponse",
			[]string{`"parent":"` + string(thing) + `"`, `"externalGroupId":"g"`}, nil,
		},
		"an association that is gone": {
			resource.AssociationDeleted, resource.AccountAssociation{UID: thing}, nil, "", nil, []string{"{"},
		},
		"a role that is gone": {
			resource.RoleDeleted, resource.Role{UID: thing, Name: "r"}, nil, "holdfast.iam.v2beta1.DeleteRoleRequest",
			[]string{`{"uid":"` + string(thing) + `"}`}, []string{"validateOnly"},
		},
		"a provider keeps its secret": {
			resource.ProviderCreated, nil,
			resource.IdentityProvider{UID: thing, OIDC: &resource.OIDC{ClientSecret: resource.Secret{Plain: "hush"}}},
			"holdfast.iam.v2beta1.IdentityProvider", []string{`"uid"`}, []string{"hush"},
		},
		"access that is asked for": {
			resource.GroupAccessRequested, nil, resource.Identity{UID: org, Email: "a@b.test"},
			"holdfast.iam.v2beta1.RequestGroupAccessRequest", []string{`"groupUid"`}, []string{"a@b.test"},
		},
		"a pull": {
			resource.RegistryPull, nil,
			registry.Pull{UID: thing.NewChild(), Digest: "sha256:x", Tag: "1", Remote: "192.0.2.1", Agent: "crane", Time: at},
			"",
			[]string{
				`"repository":"acme/app"`, `"when":"2026-01-02T03:04:05.678000"`, `"method":"GET"`,
				`"remote_address":"192.0.2.1"`, `"type":"manifest"`,
			},
			nil,
		},
		"a push": {
			resource.RegistryPush, nil, map[string]any{"digest": "sha256:x", "tags": []string{"1", "2"}}, "",
			[]string{`"tag":"1"`, `"digest":"sha256:x"`}, []string{`"method"`},
		},
		"an account says which ways in it has": {
			resource.AccountUpdated, nil,
			resource.Account{UID: thing, Password: "hush", TOTP: []byte("hush"), UseTime: at}.Record(3),
			"holdfast.signin.v1.Account",
			[]string{`"hasPassword":true`, `"totp":true`, `"passkeys":3`, `"useTime":"2026-01-02T03:04:05.678Z"`}, nil,
		},
		"an advisory has its place and its times": {
			resource.AdvisoryCreated, nil, vuln.Advisory{UID: thing, ID: "HFA-1", CreateTime: at, UpdateTime: at}.Record(),
			"holdfast.vulnerabilities.v2beta1.Advisory",
			[]string{
				`"uid":"` + string(thing) + `"`, `"createTime":"2026-01-02T03:04:05.678Z"`,
				`"updateTime":"2026-01-02T03:04:05.678Z"`,
			},
			nil,
		},
		"an import says where it went": {
			resource.AdvisoriesImported, nil, map[string]any{"created": 3, "source": "f"},
			"holdfast.advisories.v1.AdvisoriesImported",
			[]string{`"groupUid":"` + string(org) + `"`, `"source":"f"`, `"created":"3"`}, nil,
		},
		"a session that was ended, and why": {
			resource.SessionEnded,
			resource.EndedSession{Session: resource.Session{ID: "s", Identity: org, Agent: "crane"}, Reason: resource.EndReplay},
			nil, "holdfast.signin.v1.EndedSession",
			[]string{`"reason":"END_REASON_REPLAY"`, `"agent":"crane"`, `"identityUid":"` + string(org) + `"`}, nil,
		},
	}
	bodies := &v2.EventBodies{RepoPath: func(_ context.Context, uid resource.UID) (string, error) {
		if uid != thing {
			return "", fault.Missing("repo", string(uid))
		}
		return "acme/app", nil
	}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := resource.Event{
				ID: "1", Type: tt.event, Subject: thing, Group: org, Time: at, Before: encode(t, tt.before),
				After: encode(t, tt.after),
			}
			got, err := bodies.Body(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if got.Type != tt.name {
				t.Errorf("it is a %q, want %q", got.Type, tt.name)
			}
			for _, text := range tt.has {
				if !strings.Contains(string(got.JSON), text) {
					t.Errorf("no %s in %s", text, got.JSON)
				}
			}
			for _, text := range tt.lack {
				if strings.Contains(string(got.JSON), text) {
					t.Errorf("%s in %s", text, got.JSON)
				}
			}
		})
	}
}

// encode returns v as the outbox stores it: as JSON, or nil if v is nil.
func encode(t *testing.T, v any) []byte {
	t.Helper()
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
