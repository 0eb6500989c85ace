package e2e_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestExchangeThroughProvider exchanges tokens that an organization's identity provider issued to people. The request
// contains the UID of the provider.
func TestExchangeThroughProvider(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		f := newFakeIssuer(t, w)
		folder := w.child(t, string(w.Organization), "folder")
		keep := func(name string, rule iampb.IdentityProvider_OIDC_CorrelationRule) string {
			p := provider(name)
			p.GetOidc().Issuer, p.GetOidc().ClientId, p.GetOidc().CorrelationRule = f.url, name, rule
			return must[*iampb.IdentityProvider](t, w.overGRPC, w.Token, &iampb.CreateIdentityProviderRequest{
				Parent: string(w.Organization), IdentityProvider: p,
			}).GetUid()
		}
		bySubject := keep("subjects", iampb.IdentityProvider_OIDC_CORRELATION_RULE_UNSPECIFIED)
		byObject := keep("objects", iampb.IdentityProvider_OIDC_CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID)
		claims := func(sub, aud string, more ...string) map[string]any {
			claims := map[string]any{"sub": sub, "aud": aud}
			for i := 0; i+1 < len(more); i += 2 {
				claims[more[i]] = more[i+1]
			}
			return claims
		}
		invite := must[*iampb.GroupInvite](t, w.overGRPC, w.Token, &iampb.CreateGroupInviteRequest{
			Parent: folder, GroupInvite: invitation(),
		})
		for _, newcomer := range []string{
			f.token(claims("pat", "subjects")), f.token(claims("other", "objects", "oid", "pat")),
		} {
			if _, st := w.overGRPC(t, newcomer, &authpb.RegistrationRequest{Code: invite.GetCode()}); st != nil {
				t.Fatal(st)
			}
		}
		pat := string(resource.UserUID(bySubject, "pat"))
		for name, exchange := range map[string]func(*testing.T, string, url.Values) (*oidcpb.RawToken, *status.Status){
			"HTTP": w.exchangeHTTP, "gRPC": w.exchangeGRPC,
		} {
			for way, tt := range map[string]struct{ idp, token, person string }{
				"by subject": {bySubject, f.token(claims("pat", "subjects")), pat},
				"by object": {
					byObject, f.token(claims("other", "objects", "oid", "pat")), string(resource.UserUID(byObject, "pat")),
				},
			} {
				got, st := exchange(t, tt.token, url.Values{"aud": {w.BaseURL}, "identity_provider": {tt.idp}})
				if st != nil {
					t.Fatalf("%s over %s: %v", way, name, st)
				}
				said := said(t, got.GetToken())
				act, _ := said["act"].(map[string]any)
				if said["sub"] != tt.person || said["aud"] != w.BaseURL || act["iss"] != f.url {
					t.Errorf("%s over %s: token claims %v", way, name, said)
				}
				in, out := w.status(t, got.GetToken(), "/iam/v2beta1/groups/"+folder), w.status(t,
					got.GetToken(), "/iam/v2beta1/groups/"+string(w.Organization))
				if in != http.StatusOK || out != http.StatusForbidden {
					t.Errorf("%s over %s: status %d for an allowed request, %d for a forbidden one", way, name, in, out)
				}
			}
			narrow, st := exchange(t, f.token(claims("pat", "subjects")), url.Values{
				"aud": {w.BaseURL}, "identity_provider": {bySubject}, "cap": {"roles.list"},
			})
			if st != nil || w.status(t, narrow.GetToken(), "/iam/v2beta1/groups/"+folder) != http.StatusForbidden {
				t.Errorf("narrowed token over %s: %v", name, st)
			}
			for way, tt := range map[string]struct {
				idp, token string
				code       codes.Code
				says       string
			}{
				"somebody nobody knows": {bySubject, f.token(claims("nobody", "subjects")), codes.NotFound, "registered"},
				"for the other client":  {bySubject, f.token(claims("pat", "objects")), codes.PermissionDenied, `"aud"`},
				"for us":                {bySubject, f.token(map[string]any{"sub": "pat"}), codes.PermissionDenied, `"aud"`},
				"without an object":     {byObject, f.token(claims("pat", "objects")), codes.PermissionDenied, `"oid"`},
				"of another object": {
					byObject, f.token(claims("pat", "objects", "oid", "nobody")), codes.NotFound, "registered",
				},
				"a stranger's signature": {
					bySubject, jws(rsaHeader, f.claims(claims("pat", "subjects")), withStranger), codes.Unauthenticated, `"signature"`,
				},
				"that has expired": {
					bySubject, f.token(map[string]any{"sub": "pat", "aud": "subjects", "exp": 1}), codes.Unauthenticated, `"exp"`,
				},
				"of another issuer": {
					bySubject, f.token(claims("pat", "subjects", "iss", f.url+"/")), codes.PermissionDenied, `"iss"`,
				},
				"by a uid of another kind": {folder, f.token(claims("pat", "subjects")), codes.PermissionDenied, `"iss"`},
			} {
				_, st := exchange(t, tt.token, url.Values{"aud": {w.BaseURL}, "identity_provider": {tt.idp}})
				if st.Code() != tt.code || !strings.Contains(st.Message(), tt.says) {
					t.Errorf("a token %s, over %s: %v, want %v with %s in the message", way, name, st, tt.code, tt.says)
				}
			}
		}
		must[*iampb.IdentityProvider](t, w.overGRPC, w.Token, &iampb.UpdateIdentityProviderRequest{
			IdentityProvider: &iampb.IdentityProvider{Uid: bySubject, Disabled: true},
			UpdateMask:       &fieldmaskpb.FieldMask{Paths: []string{"disabled"}},
		})
		_, st := w.exchangeHTTP(t, f.token(claims("pat", "subjects")), url.Values{
			"aud": {w.BaseURL}, "identity_provider": {bySubject},
		})
		if st.Code() != codes.PermissionDenied {
			t.Errorf("a disabled provider: %v", st)
		}
	})
}
