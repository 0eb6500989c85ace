package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// judgementCapabilities are the capabilities that the methods for exceptions and rules require.
var judgementCapabilities = []string{"policies.override.create", "policies.override.list", "policies.override.delete",
	"policies.policy.create",
	"policies.policy.update",
	"policies.policy.list",
	"policies.policy.delete",
	"repo.check_policies",
}

// except creates an exception as the owner.
func (w *world) except(t *testing.T, parent string, e *findingspb.Exception) *findingspb.Exception {
	t.Helper()
	if e.GetReason() == "" {
		e.Reason = "not used"
	}
	return must[*findingspb.Exception](t, w.overGRPC, w.Token, &findingspb.CreateExceptionRequest{
		Parent: parent, Exception: e,
	})
}

// ruled creates a rule as the owner.
func (w *world) ruled(t *testing.T, parent string, r *findingspb.Rule) *findingspb.Rule {
	t.Helper()
	return must[*findingspb.Rule](t, w.overGRPC, w.Token, &findingspb.CreateRuleRequest{Parent: parent, Rule: r})
}

// promise sets an SLA on a group as the owner.
func (w *world) promise(t *testing.T, group string) {
	t.Helper()
	must[*findingspb.Sla](t, w.overGRPC, w.Token, &findingspb.SetSlaRequest{
		Sla: &findingspb.Sla{Uid: group, CriticalDays: 7},
	})
}

// judgementAccesses returns, by name, the methods for exceptions and rules that act on one place.
func (h *hierarchy) judgementAccesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	exception := func(t *testing.T) string {
		return h.except(t, h.folder, &findingspb.Exception{AdvisoryId: "CVE-1"}).GetUid()
	}
	rule := func(t *testing.T) string { return h.ruled(t, h.folder, &findingspb.Rule{}).GetUid() }
	promised := func(t *testing.T) string {
		h.promise(t, h.folder)
		return h.folder
	}
	vex := []byte(`{"@context":"https://openvex.dev/ns/v0.2.0","statements":[]}`)
	return map[string]access{
		"CreateException": {"policies.override.create", folder, func(uid string) proto.Message {
			return &findingspb.CreateExceptionRequest{
				Parent: uid, Exception: &findingspb.Exception{AdvisoryId: "CVE-1", Reason: "r"}, ValidateOnly: true,
			}
		}},
		"GetException": {"policies.override.list", exception, func(uid string) proto.Message {
			return &findingspb.GetExceptionRequest{Uid: uid}
		}},
		"ApproveException": {"advisories.approve", exception, func(uid string) proto.Message {
			return &findingspb.ApproveExceptionRequest{Uid: uid}
		}},
		"DeleteException": {"policies.override.delete", exception, func(uid string) proto.Message {
			return &findingspb.DeleteExceptionRequest{Uid: uid}
		}},
		"ImportVex": {"policies.override.create", folder, func(uid string) proto.Message {
			return &findingspb.ImportVexRequest{Parent: uid, Document: vex}
		}},
		"CreateRule": {"policies.policy.create", folder, func(uid string) proto.Message {
			return &findingspb.CreateRuleRequest{Parent: uid, Rule: &findingspb.Rule{}, ValidateOnly: true}
		}},
		"GetRule": {"policies.policy.list", rule, func(uid string) proto.Message {
			return &findingspb.GetRuleRequest{Uid: uid}
		}},
		"UpdateRule": {"policies.policy.update", rule, func(uid string) proto.Message {
			return &findingspb.UpdateRuleRequest{Rule: &findingspb.Rule{Uid: uid, Description: h.name()}}
		}},
		"DeleteRule": {"policies.policy.delete", rule, func(uid string) proto.Message {
			return &findingspb.DeleteRuleRequest{Uid: uid}
		}},
		"GetSla": {"policies.policy.list", promised, func(uid string) proto.Message {
			return &findingspb.GetSlaRequest{Uid: uid}
		}},
		"SetSla": {"policies.policy.update", folder, func(uid string) proto.Message {
			return &findingspb.SetSlaRequest{Sla: &findingspb.Sla{Uid: uid, CriticalDays: 7}}
		}},
		"DeleteSla": {"policies.policy.delete", promised, func(uid string) proto.Message {
			return &findingspb.DeleteSlaRequest{Uid: uid}
		}},
		"CheckRule": {"repo.check_policies", rule, func(uid string) proto.Message {
			return &findingspb.CheckRuleRequest{Uid: uid}
		}},
	}
}

// judgementExamples returns example calls for exceptions and rules.
func judgementExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	repo := w.repo(t, x.org, "judged")
	digest := w.pushImage(t, "dev/judged", "v1", "amd64", bookworm(t))
	exception := func() string {
		return w.except(t, x.org, &findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: repo}).GetUid()
	}
	rule := w.ruled(t, x.org, &findingspb.Rule{TargetUid: repo}).GetUid()
	body := `{"advisoryId":"CVE-1","targetUid":"` + repo +
		`","tagPattern":"v*","reason":"r","justification":"JUSTIFICATION_COMPONENT_NOT_PRESENT"}`
	vex := `{"document":"eyJAY29udGV4dCI6ICJodHRwczovL29wZW52ZXguZGV2L25zL3YwLjIuMCIsICJzdGF0ZW1lbnRzIjogW119"}`
	waitIndexed(t, w, repo)
	w.promise(t, x.org)
	return map[string][]example{
		"ExceptionsService_CreateException": {{uid: x.org, body: body}, {uid: x.org, body: `{"reason":"r"}`, fails: true}},
		"ExceptionsService_GetException":    {{uid: exception()}, {uid: x.org + "/0123456789abcdef", fails: true}},
		"ExceptionsService_ListExceptions": {
			{query: "count_matching=true&page_size=1"}, {query: "page_size=-1", fails: true},
		},
		"ExceptionsService_ApproveException": {
			{uid: exception(), body: `{}`}, {uid: x.org + "/0123456789abcdef", body: `{}`, fails: true},
		},
		"ExceptionsService_DeleteException": {{uid: exception()}, {uid: "x", fails: true}},
		"RulesService_CreateRule": {
			{uid: x.org, body: `{"minSeverity":"SEVERITY_HIGH","graceDays":3,"exemptUids":["` + x.org + `"]}`},
			{uid: x.org, body: `{"graceDays":-1}`, fails: true},
		},
		"SlasService_GetSla": {{uid: x.org}, {uid: "x", fails: true}},
		"SlasService_SetSla": {
			{uid: x.org, body: `{"criticalDays":7,"unknownDays":90}`}, {uid: x.org, body: `{"criticalDays":-1}`, fails: true}},
		"SlasService_DeleteSla":  {{uid: x.org, query: "validate_only=true"}, {uid: "x", fails: true}},
		"RulesService_GetRule":   {{uid: rule}, {uid: "x", fails: true}},
		"RulesService_ListRules": {{query: "page_size=1"}, {query: "page_size=-1", fails: true}},
		"RulesService_UpdateRule": {
			{uid: rule, body: `{"fixable":true}`}, {uid: rule, body: `{"graceDays":-1}`, fails: true},
		},
		"RulesService_CheckRule":  {{uid: rule, query: "page_size=1&order_by=time"}, {uid: "x", fails: true}},
		"RulesService_DeleteRule": {{uid: w.ruled(t, x.org, &findingspb.Rule{}).GetUid()}, {uid: "x", fails: true}},
		"AdmissionService_CheckImages": {
			{body: `{"images":["` + w.RegistryHost + `/dev/judged:v1"],"platforms":["linux/amd64"]}`}, {body: `{}`, fails: true},
		},
		"VexService_ExportVex": {{uid: repo, digest: digest}, {uid: repo, digest: digestOf("none"), fails: true}},
		"VexService_ImportVex": {{uid: x.org, body: vex}, {uid: x.org, body: `{}`, fails: true}},
	}
}

// waitIndexed waits until the image with the tag v1 in a repo has been inspected.
func waitIndexed(t *testing.T, w *world, repo string) {
	t.Helper()
	(&gallery{hierarchy: &hierarchy{world: w}, repo: repo}).await(t, "v1", findingspb.Inspection_STATE_INDEXED)
}

// states returns the state of each finding of the image, by the name of the vulnerability.
func (g *gallery) states(
	t *testing.T, call caller, bearer string, only ...findingspb.State,
) map[string]findingspb.State {
	t.Helper()
	m := must[*findingspb.ListFindingsResponse](t, call, bearer, &findingspb.ListFindingsRequest{
		RepoUid: g.repo, Reference: "v1", States: only,
	})
	byID := map[string]findingspb.State{}
	for _, f := range m.GetFindings() {
		byID[f.GetAdvisoryId()] = f.GetState()
	}
	if int(m.GetTotalCount()) != len(byID) {
		t.Errorf("total %d, but %d findings", m.GetTotalCount(), len(byID))
	}
	return byID
}

const (
	open     = findingspb.State_STATE_OPEN
	excepted = findingspb.State_STATE_EXCEPTED
)

// newJudged returns a gallery whose image has two findings: CVE-1 in openssl and CVE-3 in left.
func newJudged(t *testing.T, url string, cfg server.Config) *gallery {
	t.Helper()
	cfg.InspectWorkers = 1
	h := newHierarchy(t, serve(t, url, cfg, nil))
	g := &gallery{hierarchy: h, repo: h.repo(t, h.folder, "app")}
	g.digest = h.pushImage(t, "dev/folder/app", "v1", "amd64", bookworm(t))
	g.await(t, "v1", findingspb.Inspection_STATE_INDEXED)
	g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
	g.publish(t, g.org, osvOf("GHSA-1", "CVE-3", "npm", "left", "1.3.0"))
	procUntil(t, "the matches are known", func() bool { return len(g.states(t, g.overGRPC, g.Token)) == 2 })
	return g
}

// TestExceptions creates exceptions of every form. Each must suppress exactly the findings that it names, from its
// approval until the second in which it expires.
func TestExceptions(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		clock := newClock()
		g := newJudged(t, url, server.Config{Now: clock.now})
		other := g.pushImage(t, "dev/folder/app", "other", "arm64", bookworm(t))
		g.await(t, "other", findingspb.Inspection_STATE_INDEXED)
		for name, tt := range map[string]struct {
			e         *findingspb.Exception
			cve1      bool
			cve3      bool
			unmatched bool
		}{
			"by its alias":            {&findingspb.Exception{AdvisoryId: "CVE-1"}, true, false, false},
			"by its id":               {&findingspb.Exception{AdvisoryId: "GHSA-1"}, false, true, false},
			"by a name in lower case": {&findingspb.Exception{AdvisoryId: "cve-1"}, true, false, false},
			"by another name":         {&findingspb.Exception{AdvisoryId: "CVE-9"}, false, false, true},
			"by the package":          {&findingspb.Exception{Purl: "pkg:npm/left"}, false, true, false},
			"by its version":          {&findingspb.Exception{Purl: "pkg:npm/left@1.2.0"}, false, true, false},
			"by another version":      {&findingspb.Exception{Purl: "pkg:npm/left@1.2.1"}, false, false, true},
			"by the source":           {&findingspb.Exception{Purl: "pkg:deb/debian/openssl"}, true, false, false},
			"of another ecosystem":    {&findingspb.Exception{Purl: "pkg:pypi/left"}, false, false, true},
			"by both":                 {&findingspb.Exception{AdvisoryId: "CVE-3", Purl: "pkg:npm/left"}, false, true, false},
			"by both, of another package": {
				&findingspb.Exception{AdvisoryId: "CVE-1", Purl: "pkg:npm/left"}, false, false, true,
			},
			"on the repo":   {&findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo}, true, false, false},
			"on the folder": {&findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.folder}, true, false, false},
			"on a sibling":  {&findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.sibling}, false, false, true},
			"on the tag": {
				&findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo, TagPattern: "v*"}, true, false, false,
			},
			"on another tag": {
				&findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo, TagPattern: "w*"}, false, false, true,
			},
			"on the digest": {
				&findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo, Digest: g.digest}, true, false, false,
			},
			"on the digest of another one": {
				&findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo, Digest: other}, false, false, false,
			},
		} {
			t.Run(name, func(t *testing.T) {
				e := g.except(t, g.org, tt.e)
				want := map[string]findingspb.State{"CVE-1": open, "CVE-3": open}
				if tt.cve1 {
					want["CVE-1"] = excepted
				}
				if tt.cve3 {
					want["CVE-3"] = excepted
				}
				for protocol, call := range g.protocols() {
					if got := g.states(t, call, g.full["org"]); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("states over %s: %v, want %v", protocol, got, want)
					}
				}
				if n := e.GetMatching().GetFindings(); n == 0 != tt.unmatched && tt.e.GetDigest() != other {
					t.Errorf("the exception matches %d findings", n)
				}
				must[proto.Message](t, g.overGRPC, g.Token, &findingspb.DeleteExceptionRequest{Uid: e.GetUid()})
				if got := g.states(t, g.overGRPC, g.Token, excepted); len(got) != 0 {
					t.Errorf("excepted after the exception was deleted: %v", got)
				}
				got := must[*findingspb.Exception](t, g.overGRPC, g.Token, &findingspb.GetExceptionRequest{Uid: e.GetUid()})
				if got.GetState() != findingspb.ExceptionState_EXCEPTION_STATE_DELETED || got.GetDeleterUid() == "" {
					t.Errorf("deleted exception: %v", got)
				}
			})
		}
		g.exceptsTags(t)
		g.expires(t, clock)
		g.needsApproval(t)
		g.countsOwn(t)
	})
}

// exceptsTags checks that a tag pattern covers an image only if all tags of the image match. If one matching tag were
// enough, a pusher could add such a tag to extend the exception to the image.
func (g *gallery) exceptsTags(t *testing.T) {
	t.Helper()
	e := g.except(t, g.org, &findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo, TagPattern: "tmp-*"})
	g.tag(t, g.repo, "tmp-1", g.digest)
	if got := g.states(t, g.overGRPC, g.Token, excepted); len(got) != 0 {
		t.Errorf("an additional tag extended the exception: %v", got)
	}
	must[proto.Message](t, g.overGRPC, g.Token, &findingspb.DeleteExceptionRequest{Uid: e.GetUid()})
	g.oci(t, g.RegistryToken, "DELETE", "/v2/dev/folder/app/manifests/tmp-1", "")
}

// expires checks that an exception ends at its expiry time, which is truncated to a second.
func (g *gallery) expires(t *testing.T, clock *clock) {
	t.Helper()
	clock.hold()
	end := clock.now().Add(10*time.Minute + 300*time.Millisecond)
	e := g.except(t, g.org, &findingspb.Exception{AdvisoryId: "CVE-1", ExpireTime: timestamppb.New(end)})
	end = end.Truncate(time.Second)
	if got := e.GetExpireTime().AsTime(); !got.Equal(end) {
		t.Errorf("the exception expires at %s, want %s", got, end)
	}
	m := must[*findingspb.ListFindingsResponse](t, g.overGRPC, g.Token, &findingspb.ListFindingsRequest{
		RepoUid: g.repo, Reference: "v1", States: []findingspb.State{excepted},
	})
	f := m.GetFindings()
	if len(f) != 1 || f[0].GetExceptionUid() != e.GetUid() || !f[0].GetExceptionExpireTime().AsTime().Equal(end) {
		t.Errorf("excepted findings: %v", f)
	}
	clock.advance(end.Sub(clock.now()) - 2*time.Second) // two seconds early, because every reading advances the clock
	if got := g.states(t, g.overGRPC, g.Token, excepted); len(got) != 1 {
		t.Errorf("excepted shortly before the expiry: %v", got)
	}
	clock.advance(end.Sub(clock.now()))
	if got := g.states(t, g.overGRPC, g.Token, excepted); len(got) != 0 {
		t.Errorf("excepted after the expiry: %v", got)
	}
	got := must[*findingspb.Exception](t, g.overGRPC, g.Token, &findingspb.GetExceptionRequest{Uid: e.GetUid()}).GetState()
	if got != findingspb.ExceptionState_EXCEPTION_STATE_EXPIRED {
		t.Errorf("the state of the exception is %s", got)
	}
}

// needsApproval checks that callers who may create exceptions, but not approve them, can only propose exceptions.
func (g *gallery) needsApproval(t *testing.T) {
	t.Helper()
	proposer := g.caller(t, g.folder,
		g.role(t, g.org, g.name(), capabilities("policies.override.create", "policies.override.list")...))
	approver := g.caller(t, g.folder, g.role(t, g.org, g.name(), capabilities("advisories.approve")...))
	e := must[*findingspb.Exception](t, g.overGRPC, proposer, &findingspb.CreateExceptionRequest{
		Parent: g.folder, Exception: &findingspb.Exception{AdvisoryId: "CVE-1", Reason: "r"}})
	if e.GetState() != findingspb.ExceptionState_EXCEPTION_STATE_PROPOSED ||
		e.GetApproverUid() != "" || len(g.states(t, g.overGRPC, g.Token, excepted)) != 0 {
		t.Errorf("a proposal has an effect: %v", e)
	}
	if m := e.GetMatching(); m.GetFindings() != 0 || m.GetImages() != 0 {
		t.Errorf("a caller who may not list findings sees the matches %v", m)
	}
	_, st := g.overGRPC(t, proposer, &findingspb.ApproveExceptionRequest{Uid: e.GetUid()})
	if st.Code() != codes.PermissionDenied {
		t.Errorf("approval by the proposer: %v", st)
	}
	must[proto.Message](t, g.overGRPC, approver, &findingspb.ApproveExceptionRequest{Uid: e.GetUid()})
	if len(g.states(t, g.overGRPC, g.Token, excepted)) != 1 {
		t.Error("the approved exception has no effect")
	}
	// Callers who may not list exceptions see that a finding is excepted, but not the reason.
	reader := g.caller(t, g.org,
		g.role(t, g.org, g.name(), capabilities("repo.list", "vuln_reports.list", "advisories.list")...))
	if got := g.states(t, g.overGRPC, reader, excepted); len(got) != 1 {
		t.Errorf("a reader sees the excepted findings %v", got)
	}
	if _, st := g.overGRPC(t, reader, &findingspb.GetExceptionRequest{
		Uid: e.GetUid(),
	}); st.Code() != codes.PermissionDenied {
		t.Errorf("a reader reads the reason: %v", st)
	}
	exported := must[*findingspb.ExportVexResponse](t, g.overGRPC, reader, &findingspb.ExportVexRequest{
		RepoUid: g.repo, Reference: "v1",
	})
	if text := string(exported.GetDocument()); strings.Contains(text, `"r"`) || !strings.Contains(text, "not_affected") {
		t.Errorf("VEX export for a reader: %s", text)
	}
	must[proto.Message](t, g.overGRPC, g.Token, &findingspb.DeleteExceptionRequest{Uid: e.GetUid()})
}

// countsOwn checks that the number of matches includes only findings that the caller may list, and that a dry run
// changes nothing.
func (g *gallery) countsOwn(t *testing.T) {
	t.Helper()
	in := &findingspb.CreateExceptionRequest{
		Parent: g.folder, Exception: &findingspb.Exception{AdvisoryId: "CVE-1", Reason: "r"}, ValidateOnly: true,
	}
	m := must[*findingspb.Exception](t, g.overGRPC, g.full["org"], in).GetMatching()
	if m.GetFindings() != 2 || m.GetImages() != 2 {
		t.Errorf("matches for the owner: %v", m)
	}
	if m := must[*findingspb.Exception](t, g.overGRPC, g.full["folder"], in).GetMatching(); m.GetFindings() != 0 {
		t.Errorf("matches for a caller without the advisory: %v", m)
	}
	if got := g.states(t, g.overGRPC, g.Token, excepted); len(got) != 0 {
		t.Errorf("a dry run has an effect: %v", got)
	}
	// The owner of another organization cannot create an exception for our repo.
	stolen := g.other + g.repo[strings.LastIndexByte(g.repo, '/'):]
	for target, code := range map[string]codes.Code{
		g.repo: codes.InvalidArgument, g.org: codes.InvalidArgument, stolen: codes.NotFound,
	} {
		in := &findingspb.CreateExceptionRequest{
			Parent: g.other, Exception: &findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: target, Reason: "r"},
		}
		if _, st := g.overGRPC(t, g.full["other"], in); st.Code() != code {
			t.Errorf("an exception of another organization for %s: %v", target, st)
		}
	}
}

// pulls pulls a manifest as an identity and returns the response.
func (g *gallery) pulls(t *testing.T, identity resource.UID, reference string) reply {
	t.Helper()
	return g.oci(t, g.mint(t, identity, token.Claims{Audience: []string{g.RegistryHost}}),
		"GET", "/v2/dev/folder/app/manifests/"+reference, "")
}

// TestGate checks that a rule of the organization refuses pulls, whatever callers with rights only on a folder do.
func TestGate(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		clock := newClock()
		g := newJudged(t, url, server.Config{Now: clock.now})
		pull := func() int { return g.pulls(t, g.Owner, "v1").status }
		if pull() != http.StatusOK {
			t.Fatal("a pull is refused without a rule")
		}
		rule := g.ruled(t, g.org, &findingspb.Rule{MinSeverity: findingspb.Severity_SEVERITY_HIGH, Fixable: true})
		if pull() != http.StatusOK {
			t.Error("a rule that is not enforced refuses pulls")
		}
		g.checks(t, rule.GetUid())
		enforce := func(r *findingspb.Rule, paths ...string) {
			t.Helper()
			r.Uid = rule.GetUid()
			must[proto.Message](t, g.overGRPC, g.Token, &findingspb.UpdateRuleRequest{Rule: r, UpdateMask: mask(paths...)})
		}
		enforce(&findingspb.Rule{Mode: findingspb.RuleMode_RULE_MODE_ENFORCE}, "mode")
		for _, reference := range []string{"v1", g.digest} {
			got := g.pulls(t, g.Owner, reference)
			if got.status != http.StatusForbidden || !strings.Contains(got.body, `"DENIED"`) ||
				!strings.Contains(got.body, "CVE-3 in left 1.2.0 (critical by GitHub), fixed in 1.3.0; and 1 more") {
				t.Errorf("%s: %d %s", reference, got.status, got.body)
			}
		}
		if got := g.oci(t, g.RegistryToken, "HEAD", "/v2/dev/folder/app/manifests/v1", ""); got.status != http.StatusOK {
			t.Errorf("HEAD: %d", got.status)
		}
		stranger := g.oci(t, "", "GET", "/v2/dev/folder/app/manifests/v1", "")
		if stranger.status != http.StatusUnauthorized || strings.Contains(stranger.body, "CVE") {
			t.Errorf("answer to a stranger: %d %s", stranger.status, stranger.body)
		}
		g.resists(t, pull)
		// A copy outside of the folder would not be covered by the rule.
		for protocol, call := range g.protocols() {
			for _, reference := range []string{"v1", g.digest} {
				in := &ocipb.CopyImagesRequest{GroupUid: g.org, Repo: "out", FromRepoUid: g.repo, References: []string{reference}}
				_, st := call(t, g.Token, in)
				if st.Code() != codes.FailedPrecondition || !strings.Contains(st.Message(), "are refused: ") {
					t.Errorf("a copy over %s: %v", protocol, st)
				}
			}
		}

		robot := resource.UID(g.robot(t, g.folder, g.name()))
		g.bind(t, g.folder, string(robot), string(resource.ManagedRoleUID("registry.pull")))
		enforce(&findingspb.Rule{ExemptUids: []string{string(robot)}}, "exempt_uids")
		if got := g.pulls(t, robot, "v1"); got.status != http.StatusOK {
			t.Errorf("pull by an exempt identity: %d", got.status)
		}
		enforce(&findingspb.Rule{GraceDays: 3}, "grace_days")
		if pull() != http.StatusOK {
			t.Error("refused within the grace period")
		}
		clock.advance(3*24*time.Hour + time.Minute)
		g.Token = g.mint(t, g.Owner, token.Claims{}) // the previous token has expired
		if pull() != http.StatusForbidden {
			t.Error("not refused after the grace period")
		}
		g.opens(t, clock, pull)
	})
}

// checks checks the answer to the question which pulls a rule would have refused.
func (g *gallery) checks(t *testing.T, rule string) {
	t.Helper()
	procUntil(t, "the pulls are recorded", func() bool {
		m := must[*findingspb.CheckRuleResponse](t, g.overHTTP, g.full["org"], &findingspb.CheckRuleRequest{Uid: rule})
		return m.GetPullCount() == 2
	})
	m := must[*findingspb.CheckRuleResponse](t, g.overGRPC, g.full["org"], &findingspb.CheckRuleRequest{Uid: rule})
	if m.GetTotalCount() != 1 || m.GetImageCount() != 1 || m.GetIdentityCount() != 1 ||
		m.GetPulls()[0].GetIdentityUid() != string(g.Owner) || !strings.Contains(m.GetPulls()[0].GetReason(), "CVE-3") {
		t.Errorf("CheckRule: %v", m)
	}
	checker := g.caller(t, g.org,
		g.role(t, g.org, g.name(), capabilities("repo.check_policies", "policies.policy.list")...))
	if _, st := g.overGRPC(t, checker, &findingspb.CheckRuleRequest{Uid: rule}); st.Code() != codes.PermissionDenied {
		t.Errorf("CheckRule without the right to list pulls and findings: %v", st)
	}
}

// resists checks that neither an administrator of the folder nor a caller who may push can bypass the rule.
func (g *gallery) resists(t *testing.T, pull func() int) {
	t.Helper()
	for _, e := range []*findingspb.Exception{{AdvisoryId: "CVE-1"}, {AdvisoryId: "CVE-3"}} {
		e.Reason = "r"
		must[proto.Message](t, g.overGRPC, g.full["folder"], &findingspb.CreateExceptionRequest{
			Parent: g.folder, Exception: e,
		})
	}
	if got := g.states(t, g.overGRPC, g.Token, excepted); len(got) != 2 {
		t.Errorf("the folder's exceptions have no effect on the list of findings: %v", got)
	}
	if pull() != http.StatusForbidden {
		t.Error("the administrator of the folder has bypassed the rule")
	}
	// The folder's administrator cannot extend an exception. CVE-77 has an exception. If an advisory names CVE-77 and
	// another CVE as aliases, the exception must not cover the other CVE.
	harmless := g.except(t, g.org, &findingspb.Exception{AdvisoryId: "CVE-77"})
	for n, cve := range []string{"CVE-1", "CVE-3"} {
		record := strings.Replace(string(osvOf(fmt.Sprint("X-", n), "CVE-77", "npm", "left", "9.0.0")),
			`["CVE-77"]`, fmt.Sprintf(`["CVE-77",%q]`, cve), 1)
		g.publish(t, g.folder, []byte(record))
	}
	procUntil(t, "the advisories of the folder are known", func() bool {
		return slices.ContainsFunc(g.found(t, g.overGRPC, g.Token), func(f string) bool {
			return strings.Contains(f, "CVE-77")
		})
	})
	if pull() != http.StatusForbidden {
		t.Error("an advisory of the folder has bypassed the rule")
	}
	must[proto.Message](t, g.overGRPC, g.Token, &findingspb.DeleteExceptionRequest{Uid: harmless.GetUid()})
	// A pushed VEX document has no effect by itself.
	const openVEX = `{"@context":"https://openvex.dev/ns/v0.2.0","author":"mallory","statements":[` +
		`{"vulnerability":{"name":"CVE-1"},"products":[{"@id":"pkg:oci/app@%s"}],` +
		`"status":"not_affected","justification":"component_not_present"},
		{"vulnerability":{"name":"CVE-3"},"products":[{"@id":"pkg:npm/left"},` +
		`{"@id":"pkg:oci/else?repository_url=x/dev/folder/other"}],` +
		`"status":"not_affected","justification":"component_not_present"}]}`
	vex := fmt.Sprintf(openVEX, strings.ReplaceAll(g.digest, ":", "%3A"))
	g.attach(t, "dev/folder/app", "vex", g.digest, "application/vnd.openvex+json", vex)
	if pull() != http.StatusForbidden {
		t.Error("a pusher has bypassed the rule")
	}
	m := must[*findingspb.ImportVexResponse](t, g.overGRPC, g.Token, &findingspb.ImportVexRequest{
		Parent: g.org, RepoUid: g.repo, Reference: "v1", ValidateOnly: true,
	})
	if m.GetCreated() != 2 || len(m.GetStatements()) != 2 || len(m.GetStatements()[1].GetProblems()) != 1 {
		t.Errorf("import of the attached document: %v", m)
	}
	for _, st := range m.GetStatements() {
		for _, e := range st.GetExceptions() {
			if e.GetTargetUid() != g.repo || e.GetDigest() != g.digest {
				t.Errorf("an attached document applies to another image: %v", e)
			}
		}
	}
}

// opens checks that exceptions in the group of the rule allow pulls, from their creation until the second in which
// they expire.
func (g *gallery) opens(t *testing.T, clock *clock, pull func() int) {
	t.Helper()
	first := g.except(t, g.org, &findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo})
	end := clock.now().Add(time.Minute)
	g.except(t, g.org, &findingspb.Exception{Purl: "pkg:npm/left", TargetUid: g.repo, ExpireTime: timestamppb.New(end)})
	if pull() != http.StatusOK {
		t.Error("pull refused although all findings are excepted")
	}
	must[proto.Message](t, g.overGRPC, g.Token, &findingspb.DeleteExceptionRequest{Uid: first.GetUid()})
	if pull() != http.StatusForbidden {
		t.Error("pull allowed after an exception was deleted")
	}
	g.except(t, g.org, &findingspb.Exception{AdvisoryId: "CVE-1", TargetUid: g.repo})
	if pull() != http.StatusOK {
		t.Error("pull refused although all findings are excepted again")
	}
	clock.advance(end.Sub(clock.now()))
	if pull() != http.StatusForbidden {
		t.Error("pull allowed after an exception has expired")
	}
}

// TestApiBadJudgements sends invalid values. Each must be refused with an error that names the field.
func TestApiBadJudgements(t *testing.T) {
	t.Parallel()
	h := newHierarchy(t, serve(t, storetest.SQLite(t), server.Config{}, nil))
	repo, long := h.repo(t, h.folder, "app"), strings.Repeat("x", 5000)
	exception := func(change func(*findingspb.Exception)) proto.Message {
		e := &findingspb.Exception{AdvisoryId: "CVE-1", Reason: "r"}
		change(e)
		return &findingspb.CreateExceptionRequest{Parent: h.folder, Exception: e}
	}
	rule := func(r *findingspb.Rule) proto.Message {
		return &findingspb.CreateRuleRequest{Parent: h.folder, Rule: r}
	}
	h.refuses(t, map[string]badRequest{
		"no parent":     {"parent", &findingspb.CreateExceptionRequest{Exception: &findingspb.Exception{}}},
		"target":        {"target_uid", exception(func(e *findingspb.Exception) { e.TargetUid = "x" })},
		"target above":  {"target_uid", exception(func(e *findingspb.Exception) { e.TargetUid = h.org })},
		"about nothing": {"advisory_id", exception(func(e *findingspb.Exception) { e.AdvisoryId = "" })},
		"bad advisory":  {"advisory_id", exception(func(e *findingspb.Exception) { e.AdvisoryId = "a b" })},
		"long advisory": {"advisory_id", exception(func(e *findingspb.Exception) { e.AdvisoryId = long })},
		"bad purl":      {"purl", exception(func(e *findingspb.Exception) { e.Purl = "left" })},
		"no reason":     {"reason", exception(func(e *findingspb.Exception) { e.Reason = " " })},
		"long reason":   {"reason", exception(func(e *findingspb.Exception) { e.Reason = long })},
		"pattern":       {"tag_pattern", exception(func(e *findingspb.Exception) { e.TargetUid, e.TagPattern = repo, "[" })},
		"long pattern": {"tag_pattern", exception(func(e *findingspb.Exception) {
			e.TargetUid, e.TagPattern = repo, strings.Repeat("*a", 100)
		})},
		"digest": {"digest", exception(func(e *findingspb.Exception) { e.TargetUid, e.Digest = repo, "sha256:x" })},
		"tag and digest": {"digest", exception(func(e *findingspb.Exception) {
			e.TargetUid, e.TagPattern, e.Digest = repo, "v1", digestOf("x")
		})},
		"over already": {"expire_time", exception(func(e *findingspb.Exception) {
			e.ExpireTime = timestamppb.New(time.Unix(1, 0))
		})},
		"justification": {"justification", exception(func(e *findingspb.Exception) { e.Justification = 9 })},
		"state": {
			"states", &findingspb.ListFindingsRequest{RepoUid: repo, Reference: "v1", States: []findingspb.State{9}},
		},
		"no state": {
			"states", &findingspb.ListFindingsRequest{RepoUid: repo, Reference: "v1", States: []findingspb.State{0}},
		},
		"no document":  {"document", &findingspb.ImportVexRequest{Parent: h.folder}},
		"bad document": {"document", &findingspb.ImportVexRequest{Parent: h.folder, Document: []byte("{")}},
		"another document": {
			"document", &findingspb.ImportVexRequest{Parent: h.folder, Document: []byte(`{"@context":"x"}`)},
		},
		"image elsewhere":  {"repo_uid", &findingspb.ImportVexRequest{Parent: h.sibling, RepoUid: repo, Reference: "v1"}},
		"severity":         {"min_severity", rule(&findingspb.Rule{MinSeverity: 9})},
		"grace":            {"grace_days", rule(&findingspb.Rule{GraceDays: -1})},
		"mode":             {"mode", rule(&findingspb.Rule{Mode: 9})},
		"exempt":           {"exempt_uids", rule(&findingspb.Rule{ExemptUids: []string{"x"}})},
		"many exempt":      {"exempt_uids", rule(&findingspb.Rule{ExemptUids: slices.Repeat([]string{h.org}, 101)})},
		"rule above":       {"target_uid", rule(&findingspb.Rule{TargetUid: h.org})},
		"no rule":          {"uid", &findingspb.CheckRuleRequest{}},
		"order of a check": {"order_by", &findingspb.CheckRuleRequest{Uid: h.folder, OrderBy: "name"}},
	})
}

// TestJudgementLists checks that each caller lists only the exceptions and rules that the caller
// may see, and that a narrowed token lists nothing.
func TestJudgementLists(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		h.except(t, h.org, &findingspb.Exception{AdvisoryId: "CVE-1"})
		h.except(t, h.folder, &findingspb.Exception{AdvisoryId: "CVE-1"})
		h.ruled(t, h.org, &findingspb.Rule{})
		h.ruled(t, h.folder, &findingspb.Rule{})
		key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa")).PEM()
		h.signer(t, h.org, &ocipb.Signer{Name: "a", Key: key})
		h.signer(t, h.folder, &ocipb.Signer{Name: "a", Key: key})
		caps := resource.NewCapabilities(resource.GroupsList)
		for _, call := range h.protocols() {
			for who, want := range map[string]int{
				h.full["org"]:     2,
				h.full["folder"]:  1,
				h.full["sibling"]: 0,
				h.full["other"]:   0,
				h.mint(t, h.Owner, token.Claims{Caps: &caps}): 0,
			} {
				for _, in := range []proto.Message{
					&findingspb.ListExceptionsRequest{CountMatching: true},
					&findingspb.ListRulesRequest{},
					&ocipb.ListSignersRequest{},
				} {
					if uids, total := listed(must[proto.Message](t, call, who, in)); len(uids) != want || int(total) != want {
						t.Errorf("%T: %d results and a total of %d, want %d", in, len(uids), total, want)
					}
				}
			}
			for _, in := range []proto.Message{
				&findingspb.ListExceptionsRequest{},
				&findingspb.ListRulesRequest{},
				&ocipb.ListSignersRequest{},
				&findingspb.ExportVexRequest{RepoUid: h.folder, Reference: "v1"},
			} {
				if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
					t.Errorf("%T without a token: %v", in, st)
				}
			}
			_, st := call(t, h.full["other"], &findingspb.ExportVexRequest{RepoUid: h.folder, Reference: "v1"})
			if st.Code() != codes.PermissionDenied {
				t.Errorf("VEX export by another organization: %v", st)
			}
		}
	})
}
