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

// The two patterns of the attack: the first is run on the issuer of a token that
// nobody has signed, the second on a claim.
var (
	hugeIssuer = "http://" + strings.Repeat("[a-z]{0,999}", 8)
	hugeClaim  = strings.Repeat(".{0,999}", 16)
)

// An otherOrganization was stored before the server started, as another version
// of the service could have stored it.
type otherOrganization struct {
	uid        resource.UID
	owner      resource.UID
	identities []string
}

// seedOrganization adds an organization with an owner and with one identity for
// each relationship. Nothing validates them.
func seedOrganization(
	t *testing.T, s *storetest.Store, name string, all ...resource.Relationship,
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
	for _, r := range all {
		uid := g.UID.NewChild()
		add(uid, r)
		o.identities = append(o.identities, string(uid))
	}
	return o
}

// TestAttackLargePatterns creates and updates identities with patterns that take
// seconds to match, over both protocols.
func TestAttackLargePatterns(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		kept := w.workload(t, "https://issuer.example", nil)
		for name, tt := range map[string]struct {
			change func(*iampb.Identity_ClaimMatch)
			field  string // "" if it is accepted
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

// refusedField checks that a call was refused for one field, or, for "", that it
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
		t.Errorf("%s: %v, want one about %s", what, st, field)
	}
}

// TestAttackStoredPatterns has identities whose patterns were stored before
// there was a limit. Nothing is matched with them, and those who may read the
// identity are told.
func TestAttackStoredPatterns(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
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
		all := other.identities
		f := newFakeIssuer(t, w)
		unsigned := jws(rsaHeader, f.claims(map[string]any{"iss": "http://" + strings.Repeat("a", 9000) + "!"}), nothing)
		long := f.token(map[string]any{"x": strings.Repeat("a", 9000) + "\n"})
		for name, tt := range map[string]struct {
			identity, bearer, claim string
		}{
			"an unsigned token":             {all[0], unsigned, `"identity"`},
			"a signed token":                {all[1], long, `"identity"`},
			"an honest pattern, a long one": {all[2], long, `"x"`},
		} {
			t.Run(name, func(t *testing.T) {
				begin := time.Now()
				_, st := w.exchangeHTTP(t, tt.bearer, w.wish(tt.identity))
				t.Logf("refused in %v", time.Since(begin))
				_, again := w.exchangeGRPC(t, tt.bearer, w.wish(tt.identity))
				for _, st := range []*status.Status{st, again} {
					if st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), tt.claim) {
						t.Errorf("%v, want one about %s", st, tt.claim)
					}
				}
			})
		}
		w.exchange(t, f.token(map[string]any{"x": "abc"}), all[2])
		w.explainsLargePattern(t, other)
	})
}

// explainsLargePattern reads what is told of an identity whose pattern is over
// the limit: by explain, and in the list of issuers.
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
	if all, err := client.ExplainToken(owner, &federationpb.ExplainTokenRequest{Token: unsigned}); err != nil ||
		len(all.GetExplanations()) == 0 {
		t.Errorf("explain, over all identities: %v, %v", all, err)
	}
	issuers, err := client.ListIssuers(owner, &federationpb.ListIssuersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for _, i := range issuers.GetIssuers() {
		for _, e := range i.GetEndangered() {
			told[e.GetIdentityUid()] = e.GetReason()
		}
	}
	for n, want := range []bool{true, true, false} {
		if got := strings.Contains(told[other.identities[n]], "too large"); got != want {
			t.Errorf("identity %d: the list of issuers says %q", n, told[other.identities[n]])
		}
	}
}

// TestAttackUnsignedDenials has strangers present tokens that nobody has signed.
// What is recorded shows those who may read the identity what came, but no
// pattern was run on its claims, and no near miss was looked for, until somebody
// reads it.
func TestAttackUnsignedDenials(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
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
			checks   map[string]string // claim and a part of its cause, of those that do not fit
			absent   string            // a claim that was not looked at
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
					t.Errorf("verified: %v", d)
				}
				got := map[string]string{}
				for _, c := range d.GetChecks() {
					if c.GetClaim() == tt.absent {
						t.Errorf("a pattern was run on %s", c.GetClaim())
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
			t.Errorf("the issuer was asked %d times for what was refused", n-asked)
		}
	})
}

// lastDenial waits for the denial of that message.
func (w *world) lastDenial(t *testing.T, identity, message string) (found *federationpb.Denial) {
	t.Helper()
	client := federationpb.NewFederationServiceClient(w.conn)
	procUntil(t, "the denial is kept", func() bool {
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
