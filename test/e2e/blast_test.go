package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// pushInventory reports to the server that one image runs in a place.
func (g *gallery) pushInventory(t *testing.T, bearer, group, place, digest string) {
	t.Helper()
	must[*findingspb.InventoryPlace](t, g.overGRPC, bearer, &findingspb.PushInventoryRequest{
		GroupUid: group,
		Place:    place,
		Entries:  []*findingspb.InventoryEntry{{Namespace: "shop", Workload: "Deployment/web", Digest: digest}},
	})
}

// runs returns the number of running images that a caller may list.
func (g *gallery) runs(t *testing.T, call caller, bearer string) int64 {
	t.Helper()
	return must[*findingspb.ListInventoryResponse](t, call, bearer, &findingspb.ListInventoryRequest{}).GetTotalCount()
}

// TestInventory checks which callers may push an inventory to a group and which callers may list it. It also checks
// that a dry run changes nothing.
func TestInventory(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		for protocol, call := range g.protocols() {
			t.Run(protocol, func(t *testing.T) { g.keepsInventory(t, call) })
		}
	})
}

func (g *gallery) keepsInventory(t *testing.T, call caller) {
	t.Helper()
	push := &findingspb.PushInventoryRequest{
		GroupUid: g.folder, Place: "prod", Entries: []*findingspb.InventoryEntry{{Digest: g.digest}},
	}
	remove := &findingspb.DeleteInventoryRequest{GroupUid: g.folder, Place: "prod"}
	viewer := g.hierarchy.caller(t, g.folder, g.viewer())
	creator := g.hierarchy.caller(t, g.folder, g.role(t, g.org, g.name(), capabilities("registry.deployments.create")...))
	caps := resource.NewCapabilities(resource.DeploymentsList)
	narrow := g.mint(t, g.Owner, token.Claims{Caps: &caps})
	dry := proto.Clone(push).(*findingspb.PushInventoryRequest)
	dry.ValidateOnly = true
	must[*findingspb.InventoryPlace](t, call, creator, dry)
	if n := g.runs(t, call, g.full["org"]); n != 0 {
		t.Errorf("%d running images after a dry run", n)
	}
	for who, bearer := range map[string]string{
		"another organization": g.full["other"],
		"a sibling":            g.full["sibling"],
		"a viewer":             viewer,
		"a narrowed token":     narrow,
	} {
		for _, in := range []proto.Message{push, remove} {
			if _, st := call(t, bearer, in); st.Code() != codes.PermissionDenied {
				t.Errorf("%T as %s: %v", in, who, st)
			}
		}
	}
	for _, in := range []proto.Message{
		push, remove, &findingspb.ListInventoryRequest{}, &findingspb.ListInventoryPlacesRequest{},
	} {
		if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
			t.Errorf("%T without a token: %v", in, st)
		}
	}
	// A UID that consists of the caller's own organization and the last segment of a foreign group does not name a
	// group.
	stolen := &findingspb.PushInventoryRequest{
		GroupUid: g.other + g.folder[strings.LastIndexByte(g.folder, '/'):], Place: "prod", Entries: push.GetEntries(),
	}
	if _, st := call(t, g.full["other"], stolen); st.Code() != codes.NotFound {
		t.Errorf("inventory for a foreign group: %v", st)
	}
	p := must[*findingspb.InventoryPlace](t, call, creator, push)
	if p.GetEntries() != 1 || p.GetIdentityUid() == "" ||
		p.GetExpireTime().AsTime().Sub(p.GetPushTime().AsTime()) != 7*24*time.Hour {
		t.Errorf("unexpected place %v", p)
	}
	for bearer, want := range map[string]int64{
		g.full["org"]: 1, g.full["folder"]: 1, viewer: 1, narrow: 1, creator: 0, g.full["sibling"]: 0, g.full["other"]: 0,
	} {
		if n := g.runs(t, call, bearer); n != want {
			t.Errorf("%d running images, want %d", n, want)
		}
		n := must[*findingspb.ListInventoryPlacesResponse](t, call,
			bearer, &findingspb.ListInventoryPlacesRequest{}).GetTotalCount()
		if n != want {
			t.Errorf("%d places, want %d", n, want)
		}
	}
	// A client that states that nothing runs at the place removes the entries.
	must[*findingspb.InventoryPlace](t, call, creator, &findingspb.PushInventoryRequest{
		GroupUid: g.folder, Place: "prod", Empty: true,
	})
	if n := g.runs(t, call, g.full["org"]); n != 0 {
		t.Errorf("%d running images at a place where nothing runs", n)
	}
	must[*findingspb.InventoryPlace](t, call, creator, push)
	_, st := call(t, g.full["other"], &findingspb.ListInventoryRequest{RepoUid: g.repo})
	if st.Code() != codes.PermissionDenied {
		t.Errorf("inventory of a foreign repo: %v", st)
	}
	try := proto.Clone(remove).(*findingspb.DeleteInventoryRequest)
	try.ValidateOnly = true
	if _, st := call(t, creator, try); st != nil || g.runs(t, call, g.full["org"]) != 1 {
		t.Errorf("dry run of a deletion: %v", st)
	}
	if _, st := call(t, creator, remove); st != nil || g.runs(t, call, g.full["org"]) != 0 {
		t.Errorf("deletion: %v", st)
	}
}

// TestBlastRadius follows an advisory to images, running workloads and people. Each caller must see only the
// resources that the caller may list.
func TestBlastRadius(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		g.publish(t, g.org, osvOf("GHSA-1", "CVE-3", "npm", "left", "1.3.0"))
		g.pushInventory(t, g.Token, g.org, "prod", g.digest)
		g.pushInventory(t, g.full["other"], g.other, "theirs", g.digest) // must not affect the first organization
		g.oci(t, g.RegistryToken, "GET", "/v2/dev/folder/app/manifests/"+g.digest, "")
		procUntil(t, "the match and the pull are known", func() bool {
			totals := g.radius(t, g.overGRPC, g.Token)
			return totals[0] == 1 && totals[4] == 1
		})
		caps := resource.NewCapabilities(resource.RepoList, resource.ReportsList, resource.AdvisoriesList)
		narrow := g.mint(t, g.Owner, token.Claims{Caps: &caps})
		for protocol, call := range g.protocols() {
			totals := g.radius(t, call, g.full["org"])
			diff := cmp.Diff([]int64{1, 1, 1, 1, 1}, totals[:5])
			if diff != "" || totals[5] == 0 || totals[6] == 0 || totals[7] == 0 {
				t.Errorf("the owner over %s: %v %s", protocol, totals, diff)
			}
			for who, tt := range map[string]struct {
				bearer string
				want   []int64
			}{
				"a narrowed token": {narrow, []int64{1, 1, 1, 0, 0, 0, 0, 0}},
			} {
				if diff := cmp.Diff(tt.want, g.radius(t, call, tt.bearer)); diff != "" {
					t.Errorf("%s over %s: %s", who, protocol, diff)
				}
			}
			for _, in := range []proto.Message{
				&findingspb.GetBlastRequest{AdvisoryId: "CVE-3"}, &findingspb.ListBlastStageRequest{AdvisoryId: "CVE-3", Stage: 2},
			} {
				// Callers who may not list the advisory get the same answer as for an unknown one.
				for _, who := range []string{"other", "folder"} {
					if _, st := call(t, g.full[who], in); st.Code() != codes.NotFound {
						t.Errorf("%s over %s: %v", who, protocol, st)
					}
				}
				if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
					t.Errorf("without a token: %v", st)
				}
			}
		}
	})
}

// radius returns the total count of each stage of the blast radius.
func (g *gallery) radius(t *testing.T, call caller, bearer string) (totals []int64) {
	t.Helper()
	for i, s := range must[*findingspb.Blast](t, call, bearer, &findingspb.GetBlastRequest{
		AdvisoryId: "CVE-3",
	}).GetStages() {
		if int(s.GetName()) != i+1 || s.GetComplete() != (len(s.GetGaps()) == 0) ||
			s.GetNextPageToken() == "" && int(s.GetTotalCount()) != len(s.GetItems()) {
			t.Errorf("stage %d: %v", i, s)
		}
		totals = append(totals, s.GetTotalCount())
	}
	return totals
}

// TestBlastPages checks that further pages can be read with only a page token.
func TestBlastPages(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	g.pushImage(t, "dev/folder/app", "v2", "arm64", bookworm(t))
	g.await(t, "v2", findingspb.Inspection_STATE_INDEXED)
	g.pushInventory(t, g.Token, g.org, "a", g.digest)
	g.pushInventory(t, g.Token, g.org, "b", g.digest)
	for _, in := range []proto.Message{
		&findingspb.ListInventoryRequest{GroupUid: g.org, Digest: g.digest, OrderBy: "place desc"},
		&findingspb.ListInventoryPlacesRequest{GroupUid: g.org, OrderBy: "name desc"},
		&findingspb.ListBlastStageRequest{
			Purl: "pkg:npm/left", Range: "<2.0.0", Stage: findingspb.BlastStage_NAME_IMAGES, Days: 3,
		},
		&findingspb.ListBlastStageRequest{Purl: "pkg:npm/left", Stage: findingspb.BlastStage_NAME_RUNNING},
	} {
		t.Run(string(methodOf(in).Name()), func(t *testing.T) { g.walksAlone(t, methodOf(in), in) })
	}
}

// TestApiBadInventory sends invalid values. Each must be refused with an error that names the field.
func TestApiBadInventory(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	long := strings.Repeat("x", 5000)
	with := func(e *findingspb.InventoryEntry) proto.Message {
		return &findingspb.PushInventoryRequest{GroupUid: g.org, Place: "a", Entries: []*findingspb.InventoryEntry{e}}
	}
	stage := func(r *findingspb.ListBlastStageRequest) proto.Message {
		r.Stage = findingspb.BlastStage_NAME_IMAGES
		return r
	}
	var many []*findingspb.InventoryEntry
	for range 10_001 {
		many = append(many, &findingspb.InventoryEntry{Image: "a"})
	}
	g.refuses(t, map[string]badRequest{
		"no place":   {"place", &findingspb.PushInventoryRequest{GroupUid: g.org}},
		"long place": {"place", &findingspb.PushInventoryRequest{GroupUid: g.org, Place: long}},
		"bad place":  {"place", &findingspb.PushInventoryRequest{GroupUid: g.org, Place: "a\x1b[31m"}},
		"short life": {
			"ttl", &findingspb.PushInventoryRequest{GroupUid: g.org, Place: "a", Ttl: durationpb.New(time.Second)},
		},
		"no life": {"ttl", &findingspb.PushInventoryRequest{GroupUid: g.org, Place: "a", Ttl: durationpb.New(0)}},
		"long life": {
			"ttl", &findingspb.PushInventoryRequest{GroupUid: g.org, Place: "a", Ttl: durationpb.New(91 * 24 * time.Hour)},
		},
		"no entries": {"entries", &findingspb.PushInventoryRequest{GroupUid: g.org, Place: "a"}},
		"empty or not": {"empty", &findingspb.PushInventoryRequest{
			GroupUid: g.org, Place: "a", Empty: true, Entries: []*findingspb.InventoryEntry{{Image: "a"}},
		}},
		"too many":       {"entries", &findingspb.PushInventoryRequest{GroupUid: g.org, Place: "a", Entries: many}},
		"nothing":        {"entries[0].digest", with(&findingspb.InventoryEntry{})},
		"bad digest":     {"entries[0].digest", with(&findingspb.InventoryEntry{Digest: "sha256:1"})},
		"long namespace": {"entries[0].namespace", with(&findingspb.InventoryEntry{Digest: g.digest, Namespace: long})},
		"long image":     {"entries[0].image", with(&findingspb.InventoryEntry{Image: long})},
		"long platform":  {"entries[0].platform", with(&findingspb.InventoryEntry{Digest: g.digest, Platform: long})},
		"copies":         {"entries[0].copies", with(&findingspb.InventoryEntry{Digest: g.digest, Copies: -1})},
		"list digest":    {"digest", &findingspb.ListInventoryRequest{Digest: "x"}},
		"list place":     {"place", &findingspb.ListInventoryRequest{Place: long}},
		"list repo":      {"repo_uid", &findingspb.ListInventoryRequest{RepoUid: "x"}},
		"list order":     {"order_by", &findingspb.ListInventoryRequest{OrderBy: "digest"}},
		"places order":   {"order_by", &findingspb.ListInventoryPlacesRequest{OrderBy: "time"}},
		"delete nothing": {"place", &findingspb.DeleteInventoryRequest{GroupUid: g.org}},
		"blast nothing":  {"advisory_id", stage(&findingspb.ListBlastStageRequest{})},
		"blast both":     {"advisory_id", stage(&findingspb.ListBlastStageRequest{AdvisoryId: "CVE-1", Purl: "pkg:npm/a"})},
		"blast long id":  {"advisory_id", stage(&findingspb.ListBlastStageRequest{AdvisoryId: long})},
		"blast purl":     {"purl", stage(&findingspb.ListBlastStageRequest{Purl: "a"})},
		"blast range":    {"range", stage(&findingspb.ListBlastStageRequest{Purl: "pkg:npm/a", Range: "<<"})},
		"blast days":     {"days", stage(&findingspb.ListBlastStageRequest{AdvisoryId: "CVE-1", Days: 366})},
		"blast group":    {"group_uid", stage(&findingspb.ListBlastStageRequest{AdvisoryId: "CVE-1", GroupUid: "x"})},
		"blast stage":    {"stage", &findingspb.ListBlastStageRequest{AdvisoryId: "CVE-1", Stage: 99}},
		"blast no stage": {"stage", &findingspb.ListBlastStageRequest{AdvisoryId: "CVE-1"}},
		"blast size":     {"page_size", &findingspb.GetBlastRequest{AdvisoryId: "CVE-1", PageSize: -1}},
	})
}
