package e2e_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	allowed = findingspb.ImageDecision_IMAGE_DECISION_ALLOWED
	refused = findingspb.ImageDecision_IMAGE_DECISION_REFUSED
	unknown = findingspb.ImageDecision_IMAGE_DECISION_UNKNOWN
)

// checksImage checks an image as a caller.
func (g *gallery) checksImage(
	t *testing.T, call caller, bearer, image string, platforms ...string,
) *findingspb.ImageCheck {
	t.Helper()
	m := must[*findingspb.CheckImagesResponse](t, call, bearer,
		&findingspb.CheckImagesRequest{Images: []string{image}, Platforms: platforms})
	if len(m.GetChecks()) != 1 || m.GetChecks()[0].GetImage() != image {
		t.Fatalf("CheckImages: %v", m)
	}
	return m.GetChecks()[0]
}

// pushPlatforms pushes an index that names the affected image for amd64 and another one for arm64.
func (g *gallery) pushPlatforms(t *testing.T) string {
	t.Helper()
	platform := func(architecture string) map[string]string {
		return map[string]string{"os": "linux", "architecture": architecture}
	}
	other := g.pushImage(t, "dev/folder/app", "other", "arm64", "other")
	return g.pushManifest(t, "dev/folder/app", "both", indexType, map[string]any{
		"schemaVersion": 2, "mediaType": indexType, "manifests": []map[string]any{
			{"mediaType": manifestType, "digest": other, "size": 1, "platform": platform("arm64")},
			{"mediaType": manifestType, "digest": g.digest, "size": 1, "platform": platform("amd64")},
		},
	})
}

// TestCheckImages checks images before their pull. The decision and its reason must equal the answer to a pull.
func TestCheckImages(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newJudged(t, url, server.Config{})
		both := g.pushPlatforms(t)
		app := g.RegistryHost + "/dev/folder/app"
		for protocol, call := range g.protocols() {
			if got := g.checksImage(t, call, g.Token, app+":v1"); got.GetDecision() != allowed || got.GetReason() != "" ||
				got.GetDigest() != g.digest || got.GetRepoUid() != g.repo {
				t.Errorf("over %s, without a rule: %v", protocol, got)
			}
		}
		rule := g.ruled(t, g.org, &findingspb.Rule{
			MinSeverity: findingspb.Severity_SEVERITY_HIGH, Mode: findingspb.RuleMode_RULE_MODE_ENFORCE,
		})
		pull := g.pulls(t, g.Owner, "v1").body
		for protocol, call := range g.protocols() {
			got := g.checksImage(t, call, g.Token, app+":v1")
			if got.GetDecision() != refused || !strings.Contains(got.GetReason(), "CVE-3 in left 1.2.0 (critical by GitHub)") ||
				!strings.Contains(pull, got.GetReason()) {
				t.Errorf("over %s: %v, but a pull gets %s", protocol, got, pull)
			}
			for image, want := range map[string]struct {
				decision  findingspb.ImageDecision
				platforms []string
				platform  string
			}{
				app + "@" + g.digest:                     {decision: refused},
				app + ":gone@" + g.digest:                {decision: refused},
				app + ":other":                           {decision: allowed},
				app + ":both":                            {decision: refused, platform: "linux/amd64"},
				app + "@" + both:                         {refused, []string{"linux/s390x", "linux/amd64"}, "linux/amd64"},
				app + ":both@" + both:                    {allowed, []string{"linux/arm64"}, ""},
				app + ":tag@" + both:                     {unknown, []string{"linux/s390x"}, ""},
				app + ":gone":                            {decision: unknown},
				app:                                      {decision: unknown},
				app + "s:v1":                             {decision: unknown},
				app + ":v1@sha256:12":                    {decision: unknown},
				app + ":v1@":                             {decision: unknown},
				app + ":":                                {decision: unknown},
				strings.ToUpper(app) + ":v1":             {decision: unknown},
				"dev/folder/app:v1":                      {decision: unknown},
				"registry.example.com/dev/folder/app:v1": {decision: unknown},
				"xn--e1afmkfd.example/app:v1":            {decision: unknown},
				g.RegistryHost + "/" + strings.Repeat("a", 4096): {decision: unknown},
				"": {decision: unknown}, "\x00": {decision: unknown}, "@": {decision: unknown},
			} {
				got := g.checksImage(t, call, g.Token, image, want.platforms...)
				if got.GetDecision() != want.decision || got.GetPlatform() != want.platform ||
					(got.GetReason() == "") != (want.decision == allowed) {
					t.Errorf("over %s, %q: %v", protocol, image, got)
				}
			}
		}
		g.checksAsOthers(t, app+":v1")
		g.update(t, &findingspb.UpdateRuleRequest{
			Rule: &findingspb.Rule{Uid: rule.GetUid(), Mode: findingspb.RuleMode_RULE_MODE_DRY_RUN}, UpdateMask: mask("mode"),
		})
		if got := g.checksImage(t, g.overGRPC, g.Token, app+":v1"); got.GetDecision() != allowed {
			t.Errorf("after the rule was changed: %v", got)
		}
	})
}

// checksAsOthers checks the decisions for callers other than the owner. A caller who may not pull an image must get
// the answer for images that do not exist.
func (g *gallery) checksAsOthers(t *testing.T, image string) {
	t.Helper()
	lists, pulls := resource.NewCapabilities(resource.GroupsList), resource.NewCapabilities(resource.ManifestList)
	strangers := map[string]string{
		"an owner of another organization": g.full["other"],
		"an owner of another folder":       g.full["sibling"],
		"a token without the capability":   g.mint(t, g.Owner, token.Claims{Caps: &lists}),
		"a token for another folder":       g.mint(t, g.Owner, token.Claims{Scopes: []resource.UID{resource.UID(g.sibling)}}),
	}
	members := map[string]string{
		"an owner of the folder":      g.full["folder"],
		"a token with the capability": g.mint(t, g.Owner, token.Claims{Caps: &pulls}),
	}
	for protocol, call := range g.protocols() {
		if _, st := call(t, "", &findingspb.CheckImagesRequest{Images: []string{image}}); st.Code() != codes.Unauthenticated {
			t.Errorf("without a token over %s: %v", protocol, st)
		}
		for name, bearer := range strangers {
			got := g.checksImage(t, call, bearer, image)
			missing := g.checksImage(t, call, bearer, strings.Replace(image, "/app:", "/gone:", 1))
			got.Image, missing.Image = "", ""
			if got.GetDecision() != unknown || !proto.Equal(got, missing) {
				t.Errorf("%s over %s: %v, for a missing image %v", name, protocol, got, missing)
			}
		}
		for name, bearer := range members {
			if got := g.checksImage(t, call, bearer, image); got.GetDecision() != refused {
				t.Errorf("%s over %s: %v", name, protocol, got)
			}
		}
	}
	g.update(t, &ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: g.folder, Public: true}})
	got := g.checksImage(t, g.overGRPC, g.full["other"], image)
	if got.GetDecision() != refused || strings.Contains(got.GetReason(), "CVE") {
		t.Errorf("a stranger, of a public repo: %v", got)
	}
}

// update changes something as the owner.
func (w *world) update(t *testing.T, in proto.Message) {
	t.Helper()
	must[proto.Message](t, w.overGRPC, w.Token, in)
}

// TestApiBadImageChecks sends invalid requests. Each must be refused with an error that names the field.
func TestApiBadImageChecks(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		w.refuses(t, map[string]badRequest{
			"no images":   {"images", &findingspb.CheckImagesRequest{}},
			"many images": {"images", &findingspb.CheckImagesRequest{Images: make([]string, 101)}},
			"many platforms": {
				"platforms", &findingspb.CheckImagesRequest{Images: []string{"a"}, Platforms: make([]string, 11)},
			},
		})
	})
}

// TestCheckRunning checks the images of an inventory. The decision is about the digest that runs, wherever its tag
// points now, and as for the caller's own pull.
func TestCheckRunning(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		g := newJudged(t, url, server.Config{})
		both, app := g.pushPlatforms(t), g.RegistryHost+"/dev/folder/app"
		g.ruled(t, g.org, &findingspb.Rule{
			MinSeverity: findingspb.Severity_SEVERITY_HIGH, Mode: findingspb.RuleMode_RULE_MODE_ENFORCE,
		})
		want := map[string]findingspb.ImageDecision{
			"affected": refused, "tag of another": refused, "index": refused, "index on arm64": allowed,
			"no digest": unknown, "other registry": unknown, "no reference": unknown,
		}
		must[*findingspb.InventoryPlace](t, g.overGRPC, g.Token, &findingspb.PushInventoryRequest{
			GroupUid: g.org, Place: "prod", Entries: []*findingspb.InventoryEntry{
				{Workload: "affected", Image: app + ":v1", Digest: g.digest},
				{Workload: "tag of another", Image: app + ":other", Digest: g.digest},
				{Workload: "index", Image: app, Digest: both},
				{Workload: "index on arm64", Image: app + "@" + both, Digest: both, Platform: "linux/arm64"},
				{Workload: "no digest", Image: app + ":v1"},
				{Workload: "other registry", Image: "registry.example.com/dev/folder/app:v1", Digest: g.digest},
				{Workload: "no reference", Digest: g.digest},
			},
		})
		checks := func(call caller, bearer string, check bool) map[string]*findingspb.ImageCheck {
			got := map[string]*findingspb.ImageCheck{}
			m := must[*findingspb.ListInventoryResponse](t, call, bearer, &findingspb.ListInventoryRequest{Check: check})
			for _, r := range m.GetImages() {
				got[r.GetEntry().GetWorkload()] = r.GetCheck()
			}
			return got
		}
		lists := resource.NewCapabilities(resource.DeploymentsList)
		narrowed := g.mint(t, g.Owner, token.Claims{Caps: &lists})
		for protocol, call := range g.protocols() {
			got := checks(call, g.Token, true)
			for workload, decision := range want {
				if c := got[workload]; c.GetDecision() != decision || (c.GetReason() == "") != (decision == allowed) {
					t.Errorf("over %s, %s: %v", protocol, workload, c)
				}
			}
			for workload, c := range checks(call, narrowed, true) {
				if c.GetDecision() != unknown || c.GetRepoUid() != "" || strings.Contains(c.GetReason(), "CVE") {
					t.Errorf("over %s, without the capability to pull, %s: %v", protocol, workload, c)
				}
			}
			if got := checks(call, g.full["other"], true); len(got) > 0 {
				t.Errorf("over %s, another organization: %v", protocol, got)
			}
			if c := checks(call, g.Token, false)["affected"]; c != nil {
				t.Errorf("over %s, unasked: %v", protocol, c)
			}
		}
	})
}
