package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// The two patterns for the attack. If the server accepted them, it would match the first with the issuer of an
// unsigned token, and the second with a claim.
var (
	hugeIssuer = "http://" + strings.Repeat("[a-z]{0,999}", 8)
	hugeClaim  = strings.Repeat(".{0,999}", 16)
)

// An otherOrganization is an organization that the test stores before the server starts, as an older version of the
// server could have stored it.
type otherOrganization struct {
	uid        resource.UID
	owner      resource.UID
	identities []string
}

// seedOrganization stores an organization with an owner and with one identity for each relationship. It bypasses the
// validation of the API.
func seedOrganization(
	t *testing.T, s *storetest.Store, name string, relations ...resource.Relationship,
) (o otherOrganization) {
	t.Helper()
	now := time.Now()
	g := resource.Group{UID: resource.NewRoot(), Name: name, CreateTime: now, UpdateTime: now}
	o.uid, o.owner = g.UID, g.UID.NewChild()
	nobody := resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://owner.invalid", Subject: "owner"}}
	bind := resource.RoleBinding{UID: g.UID.NewChild(), Identity: o.owner, Role: resource.OwnerRole, CreateTime: now}
	add := func(uid resource.UID, r resource.Relationship) {
		i := resource.Identity{
			UID: uid, Name: "workload", CreateTime: now, UpdateTime: now, LastSeenTime: now, Relationship: r,
		}
		if err := s.InsertIdentity(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetManagedRoles(t.Context(), authz.ManagedRoles()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.InsertGroup(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	add(o.owner, nobody)
	if _, err := s.InsertBindings(t.Context(), []resource.RoleBinding{bind}); err != nil {
		t.Fatal(err)
	}
	for _, r := range relations {
		uid := g.UID.NewChild()
		add(uid, r)
		o.identities = append(o.identities, string(uid))
	}
	return o
}

// TestAttackLargePatterns checks that identities cannot be created or updated with patterns that would take seconds
// to match, over both protocols.
func TestAttackLargePatterns(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		kept := w.workload(t, "https://issuer.example", nil)
		for name, tt := range map[string]struct {
			change func(*iampb.Identity_ClaimMatch)
			field  string // name of the refused field; empty if the request is accepted
		}{
			"an issuer of the attack": {func(m *iampb.Identity_ClaimMatch) {
				m.Iss = &iampb.Identity_ClaimMatch_IssuerPattern{IssuerPattern: hugeIssuer}
			}, "claim_match.issuer_pattern"},
			"a claim of the attack": {func(m *iampb.Identity_ClaimMatch) {
				m.ClaimPatterns = map[string]string{"x": hugeClaim}
			}, "claim_match.claim_patterns"},
			"many that add up": {func(m *iampb.Identity_ClaimMatch) {
				m.ClaimPatterns = map[string]string{}
				for n := range 30 {
					m.ClaimPatterns[fmt.Sprint("c", n)] = "[a-z]{0,200}x"
				}
			}, "claim_match"},
			"a usual issuer": {func(m *iampb.Identity_ClaimMatch) {
				m.Iss = &iampb.Identity_ClaimMatch_IssuerPattern{
					IssuerPattern: `https://oidc\.eks\.[a-z0-9-]+\.amazonaws\.com/id/[A-F0-9]{32}`,
				}
			}, ""},
			"a long list of subjects": {func(m *iampb.Identity_ClaimMatch) {
				m.Sub = &iampb.Identity_ClaimMatch_SubjectPattern{
					SubjectPattern: `repo:acme/(` + strings.Repeat(`service-one|`, 80) + `x):ref:refs/heads/main`,
				}
			}, ""},
		} {
			for protocol, call := range w.protocols() {
				t.Run(name+", "+protocol, func(t *testing.T) {
					match := &iampb.Identity_ClaimMatch{
						Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: "https://issuer.example"},
						Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "job"},
					}
					tt.change(match)
					i := &iampb.Identity{Name: "workload", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: match}}
					_, st := call(t, w.Token, &iampb.CreateIdentityRequest{Parent: string(w.Organization), Identity: i})
					refusedField(t, "create", st, tt.field)
					i.Uid = kept
					_, st = call(t, w.Token, &iampb.UpdateIdentityRequest{Identity: i})
					refusedField(t, "update", st, tt.field)
				})
			}
		}
	})
}

// refusedField checks that a call was refused because of one field or, if field is empty, that it
// was not refused.
func refusedField(t *testing.T, what string, st *status.Status, field string) {
	t.Helper()
	if field == "" {
		if st.Code() != codes.OK {
			t.Errorf("%s: %v", what, st)
		}
		return
	}
	if st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), field+": ") ||
		!strings.Contains(st.Message(), "too large") {
		t.Errorf("%s: %v, want an error about %s", what, st, field)
	}
}

// TestAttackStoredPatterns uses identities whose patterns were stored before there was a limit. The server must never
// match these patterns, and must report them to callers who may read the identity.
func TestAttackStoredPatterns(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, url string) {
		var other otherOrganization
		w := serve(t, url, server.Config{Now: ticking()}, func(s *storetest.Store) {
			other = seedOrganization(t, s, "other",
				resource.Relationship{ClaimMatch: &resource.ClaimMatch{IssuerPattern: hugeIssuer, Subject: "job"}},
				resource.Relationship{
					ClaimMatch: &resource.ClaimMatch{
						IssuerPattern: `http://127\.0\.0\.1:[0-9]+`, Subject: "job", ClaimPatterns: map[string]string{"x": hugeClaim},
					},
				},
				resource.Relationship{
					ClaimMatch: &resource.ClaimMatch{
						IssuerPattern: `http://127\.0\.0\.1:[0-9]+`, Subject: "job", ClaimPatterns: map[string]string{"x": `[a-z]+`},
					},
				},
			)
		})
		identities := other.identities
		f := newFakeIssuer(t, w)
		unsigned := jws(rsaHeader, f.claims(map[string]any{"iss": "http://" + strings.Repeat("a", 9000) + "!"}), nothing)
		long := f.token(map[string]any{"x": strings.Repeat("a", 9000) + "\n"})
		for name, tt := range map[string]struct {
			identity, bearer, claim string
		}{
			"an unsigned token":             {identities[0], unsigned, `"identity"`},
			"a signed token":                {identities[1], long, `"identity"`},
			"an honest pattern, a long one": {identities[2], long, `"x"`},
		} {
			t.Run(name, func(t *testing.T) {
				begin := time.Now()
				_, st := w.exchangeHTTP(t, tt.bearer, w.wish(tt.identity))
				t.Logf("refused in %v", time.Since(begin))
				_, again := w.exchangeGRPC(t, tt.bearer, w.wish(tt.identity))
				for _, st := range []*status.Status{st, again} {
					if st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), tt.claim) {
						t.Errorf("%v, want an error about %s", st, tt.claim)
					}
				}
			})
		}
		w.exchange(t, f.token(map[string]any{"x": "abc"}), identities[2])
		w.explainsLargePattern(t, other)
	})
}

// explainsLargePattern checks the messages about an identity whose pattern exceeds the limit: in
// ExplainToken and in ListIssuers.
func (w *world) explainsLargePattern(t *testing.T, other otherOrganization) {
	t.Helper()
	client := federationpb.NewFederationServiceClient(w.conn)
	owner := bearing(t, w.mint(t, other.owner, token.Claims{}))
	unsigned := jws(rsaHeader, `{"iss":"https://issuer.example","sub":"job","aud":"x","exp":9999999999}`, nothing)
	got, err := client.ExplainToken(owner, &federationpb.ExplainTokenRequest{
		IdentityUid: other.identities[0], Token: unsigned,
	})
	if err != nil || len(got.GetExplanations()) != 1 || got.GetExplanations()[0].GetAccepted() ||
		!strings.Contains(got.GetExplanations()[0].GetChecks()[0].GetCause(), "too large") {
		t.Errorf("explain: %v, %v", got, err)
	}
	if got, err := client.ExplainToken(owner, &federationpb.ExplainTokenRequest{Token: unsigned}); err != nil ||
		len(got.GetExplanations()) == 0 {
		t.Errorf("explain for all identities: %v, %v", got, err)
	}
	issuers, err := client.ListIssuers(owner, &federationpb.ListIssuersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, i := range issuers.GetIssuers() {
		for _, e := range i.GetEndangered() {
			reasons[e.GetIdentityUid()] = e.GetReason()
		}
	}
	for n, want := range []bool{true, true, false} {
		if got := strings.Contains(reasons[other.identities[n]], "too large"); got != want {
			t.Errorf("identity %d: ListIssuers has the reason %q", n, reasons[other.identities[n]])
		}
	}
}

// TestAttackUnsignedDenials sends unsigned tokens. The recorded denial must show the token to callers who may read
// the identity. Until a caller reads the denial, the server matches no pattern with the claims of the token and does
// not search for similar values.
func TestAttackUnsignedDenials(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		f := newFakeIssuer(t, w)
		identity := w.workload(t, f.url, func(m *iampb.Identity_ClaimMatch) {
			m.Sub = &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: "job-[a-z]+"}
			m.Claims = map[string]string{"env": "prod"}
		})
		w.exchange(t, f.token(map[string]any{"sub": "job-x", "env": "prod"}), identity)
		asked := f.asked.Load()
		for name, tt := range map[string]struct {
			bearer   string
			code     codes.Code
			verified bool
			checks   map[string]string // failed checks: the claim, and a part of the message
			absent   string            // name of a claim that must not be checked
		}{
			"unsigned": {
				jws(rsaHeader, f.claims(map[string]any{"sub": "JOB-x", "env": "Prod"}), nothing), codes.Unauthenticated,
				false, map[string]string{"signature": "changed", "env": "upper and lower case"}, "sub",
			},
			"of others": {
				jws(rsaHeader, f.claims(map[string]any{"iss": f.url + "/", "sub": "JOB-x"}), nothing),
				codes.PermissionDenied, false, map[string]string{"iss": "slash"}, "sub",
			},
			"signed": {
				f.token(map[string]any{"sub": "JOB-x", "env": "prod"}), codes.PermissionDenied,
				true, map[string]string{"sub": "upper and lower case"}, "",
			},
		} {
			t.Run(name, func(t *testing.T) {
				_, st := w.exchangeHTTP(t, tt.bearer, w.wish(identity))
				if st.Code() != tt.code {
					t.Fatalf("%v, want %v", st, tt.code)
				}
				d := w.lastDenial(t, identity, st.Message())
				if d.GetSignatureVerified() != tt.verified {
					t.Errorf("signature_verified of the denial %v", d)
				}
				got := map[string]string{}
				for _, c := range d.GetChecks() {
					if c.GetClaim() == tt.absent {
						t.Errorf("a pattern was matched with %s", c.GetClaim())
					}
					if !c.GetOk() {
						got[c.GetClaim()] = c.GetCause()
					}
				}
				for claim, cause := range tt.checks {
					if !strings.Contains(got[claim], cause) {
						t.Errorf("%s: %q, want %q", claim, got[claim], cause)
					}
				}
			})
		}
		if n := f.asked.Load(); n != asked {
			t.Errorf("%d requests to the issuer for refused tokens", n-asked)
		}
	})
}

// lastDenial waits until a denial with this message is recorded, and returns it.
func (w *world) lastDenial(t *testing.T, identity, message string) (found *federationpb.Denial) {
	t.Helper()
	client := federationpb.NewFederationServiceClient(w.conn)
	procUntil(t, "the denial is recorded", func() bool {
		got, err := client.ListDenials(bearing(t, w.Token), &federationpb.ListDenialsRequest{IdentityUid: identity})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got.GetDenials() {
			if d.GetMessage() == message {
				found = d
			}
		}
		return found != nil
	})
	return found
}
