package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// retain sets the retention rules of a group or a repo.
func (w *world) retain(t *testing.T, uid string, r *ocipb.Retention) {
	t.Helper()
	r.Uid = uid
	must[proto.Message](t, w.overGRPC, w.Token, &ocipb.SetRetentionRequest{Retention: r})
}

// TestRetention pushes images over the registry protocol, previews which images the rules would delete, and runs the
// rules. Exactly these images must be deleted, and it must be possible to restore them.
func TestRetention(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "kept")
		repo := w.repo(t, folder, "app")
		old := w.pushIndex(t, "dev/kept/app", "1.0.0", "amd64", "arm64")
		w.pushImage(t, "dev/kept/app", "1.1.0", "amd64", "second")
		kept := w.pushIndex(t, "dev/kept/app", "1.2.0", "amd64", "riscv64") // this index shares an image with 1.0.0
		w.retain(t, folder, &ocipb.Retention{KeepMinors: 2})
		if got := w.askRegistry(t, w.RegistryToken, "GET", "dev/kept/app/manifests/1.0.0"); got != http.StatusOK {
			t.Fatalf("GET: %d", got)
		}
		plan := must[*ocipb.RetentionPlan](t, w.overHTTP, w.Token, &ocipb.PreviewRetentionRequest{Uid: repo})
		second := must[*ocipb.RetentionPlan](t, w.overGRPC, w.Token, &ocipb.PreviewRetentionRequest{Uid: repo})
		if plan.GetFingerprint() != second.GetFingerprint() || len(plan.GetGoing()) != 2 ||
			plan.GetGoing()[0].GetTags()[0] != "only-arm64" ||
			plan.GetGoing()[1].GetDigest() != old || plan.GetBytes() == 0 || plan.GetRestorableDays() != 7 {
			t.Errorf("plan = %v", plan)
		}
		if got := w.askRegistry(t, w.RegistryToken, "GET", "dev/kept/app/manifests/1.0.0"); got != http.StatusOK {
			t.Errorf("GET after a preview: %d", got)
		}
		must[proto.Message](t, w.overHTTP, w.Token, &ocipb.RunRetentionRequest{Uid: repo, Fingerprint: plan.GetFingerprint()})
		for target, want := range map[string]int{
			"1.0.0": http.StatusNotFound, old: http.StatusNotFound, "1.1.0": http.StatusOK, "1.2.0": http.StatusOK,
			kept: http.StatusOK, "only-arm64": http.StatusNotFound, "only-amd64": http.StatusOK,
		} {
			if got := w.askRegistry(t, w.RegistryToken, "GET", "dev/kept/app/manifests/"+target); got != want {
				t.Errorf("GET %s after the run: %d, want %d", target, got, want)
			}
		}
		_, st := w.overGRPC(t, w.Token, &ocipb.RunRetentionRequest{Uid: repo, Fingerprint: plan.GetFingerprint()})
		if st.Code() != codes.FailedPrecondition ||
			!strings.Contains(st.Message(), "nothing was deleted, because the images have changed since the preview") {
			t.Errorf("the same run again: %v", st)
		}
		e := w.trashed(t, repo, func(e *ocipb.TrashEntry) bool { return e.GetDigest() == old && e.GetTag() == "" })
		must[proto.Message](t, w.overGRPC, w.Token, &ocipb.RestoreTrashEntryRequest{Uid: e.GetUid()})
		if got := w.askRegistry(t, w.RegistryToken, "GET", "dev/kept/app/manifests/1.0.0"); got != http.StatusOK {
			t.Errorf("GET after the restore: %d", got)
		}
	})
}

// TestRetentionAttacks checks that callers without the needed rights cannot set, preview or run retention rules.
func TestRetentionAttacks(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		repo := h.repo(t, h.folder, "app")
		digest := h.pushImage(t, "dev/folder/app", "v1", "amd64", "layer")
		h.pushImage(t, "dev/folder/app", "v2", "amd64", "other layer")
		h.retain(t, h.folder, &ocipb.Retention{KeepNewest: 1})
		plan := must[*ocipb.RetentionPlan](t, w.overGRPC, w.Token, &ocipb.PreviewRetentionRequest{Uid: repo})
		pusher := h.caller(t, h.folder,
			h.role(t, h.org, h.name(),
				capabilities("repo.update", "manifest.create", "tag.create", "repo.list", "tag.list", "registry.settings.list")...))
		cleaner := h.caller(t, h.folder,
			h.role(t, h.org, h.name(), capabilities("manifest.delete", "tag.delete", "repo.list", "tag.list")...))
		set := func(uid string) proto.Message {
			return &ocipb.SetRetentionRequest{
				Retention: &ocipb.Retention{Uid: uid, KeepMatching: []string{"nothing"}, EveryDays: 1},
			}
		}
		run := func(uid string) proto.Message {
			return &ocipb.RunRetentionRequest{Uid: uid, Fingerprint: plan.GetFingerprint()}
		}
		look := func(uid string) proto.Message { return &ocipb.PreviewRetentionRequest{Uid: uid} }
		segment := func(uid string) string { return uid[strings.LastIndexByte(uid, '/'):] }
		for name, tt := range map[string]struct {
			bearer string
			in     proto.Message
			code   codes.Code
		}{
			"set without a token":               {"", set(repo), codes.Unauthenticated},
			"run without a token":               {"", run(repo), codes.Unauthenticated},
			"run with a token for the registry": {w.RegistryToken, run(repo), codes.Unauthenticated},
			"set another organization's":        {h.full["other"], set(repo), codes.PermissionDenied},
			"set what is above":                 {h.full["folder"], set(h.org), codes.PermissionDenied},
			"set a sibling's":                   {h.full["sibling"], set(h.folder), codes.PermissionDenied},
			"set the segment of another's":      {h.full["other"], set(h.other + segment(h.folder)), codes.NotFound},
			"set what is not there": {
				h.full["other"], set(h.folder + "/0123456789abcdef"), codes.PermissionDenied,
			},
			"set rules that run as one who may push": {pusher, set(repo), codes.PermissionDenied},
			"set rules without repo.update":          {cleaner, set(repo), codes.PermissionDenied},
			"take rules away as one who may push": {
				pusher, &ocipb.DeleteRetentionRequest{Uid: h.folder}, codes.PermissionDenied,
			},
			"take another organization's away": {
				h.full["other"], &ocipb.DeleteRetentionRequest{Uid: h.folder}, codes.PermissionDenied,
			},
			"preview as one who may push":      {pusher, look(repo), codes.PermissionDenied},
			"preview another organization's":   {h.full["other"], look(repo), codes.PermissionDenied},
			"preview the segment of another's": {h.full["other"], look(h.other + segment(repo)), codes.NotFound},
			"preview a repo without the group above it": {
				h.full["other"], look(h.other + segment(h.folder) + segment(repo)), codes.NotFound,
			},
			"run without tag.delete": {h.lacking["tag.delete"], run(repo), codes.PermissionDenied},
			"run without repo.list":  {h.lacking["repo.list"], run(repo), codes.PermissionDenied},
			"run a sibling's":        {h.full["sibling"], run(repo), codes.PermissionDenied},
			"run with a bad fingerprint in the dark": {
				h.full["other"], &ocipb.RunRetentionRequest{Uid: repo, Fingerprint: "x"}, codes.PermissionDenied,
			},
			"read another organization's rules": {
				h.full["other"], &ocipb.GetRetentionRequest{Uid: h.folder}, codes.PermissionDenied,
			},
		} {
			for protocol, call := range w.protocols() {
				if out, st := call(t, tt.bearer, tt.in); st.Code() != tt.code {
					t.Errorf("%s over %s: %v, %v", name, protocol, out, st)
				}
			}
		}
		if got := w.askRegistry(t, w.RegistryToken, "GET", "dev/folder/app/manifests/"+digest); got != http.StatusOK {
			t.Errorf("an image is gone: status %d", got)
		}
		h.pullers(t, repo, cleaner)
		must[proto.Message](t, w.overGRPC, cleaner, run(repo))
	})
}

// pullers checks that only callers who may list identities see who pulled an image.
func (h *hierarchy) pullers(t *testing.T, repo, cleaner string) {
	t.Helper()
	procUntil(t, "a record of the pull", func() bool {
		pulls := must[*ocipb.ListPullsResponse](t, h.overGRPC, h.Token, &ocipb.ListPullsRequest{
			Uidp: &commonpb.UIDPFilter{ChildrenOf: repo}, Direction: ocipb.Direction_DIRECTION_PULL})
		return len(pulls.GetPulls()) > 0
	})
	for bearer, told := range map[string]bool{h.Token: true, cleaner: false} {
		plan := must[*ocipb.RetentionPlan](t, h.overGRPC, bearer, &ocipb.PreviewRetentionRequest{Uid: repo})
		if g := plan.GetGoing()[0]; g.GetPullTime() == nil || (g.GetPullerUid() != "") != told ||
			(g.GetPuller() != "") != told {
			t.Errorf("who pulled it, told: %v: %v", told, g)
		}
	}
}

// TestRetentionByItself checks that garbage collection applies the retention rules that are due.
func TestRetentionByItself(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		clock := newClock()
		w := serve(t, url, server.Config{Now: clock.now, GCInterval: 50 * time.Millisecond}, nil)
		w.repo(t, string(w.Organization), "app")
		manual := w.repo(t, string(w.Organization), "own")
		for _, name := range []string{"app", "own"} {
			w.pushImage(t, "dev/"+name, "v1", "amd64", "one")
			w.pushImage(t, "dev/"+name, "v2", "amd64", "two")
		}
		must[proto.Message](t, w.overGRPC, w.Token, &ocipb.UpdateSettingsRequest{
			// Public, because the tokens expire before the rules are due.
			Settings: &ocipb.Settings{Uid: string(w.Organization), Public: true}})
		w.retain(t, string(w.Organization), &ocipb.Retention{KeepNewest: 1, EveryDays: 1})
		w.retain(t, manual, &ocipb.Retention{KeepNewest: 1}) // these rules do not run automatically
		clock.advance(23 * time.Hour)
		runs := func() float64 { return w.metrics(t)[`holdfast_gc_runs_total{outcome="ok"}`] }
		before := runs()
		procUntil(t, "two collections", func() bool { return runs() > before+1 })
		if got := w.askRegistry(t, "", "GET", "dev/app/manifests/v1"); got != http.StatusOK {
			t.Fatalf("the image is gone before the rules are due: status %d", got)
		}
		clock.advance(2 * time.Hour)
		procUntil(t, "retention", func() bool {
			return w.askRegistry(t, "", "GET", "dev/app/manifests/v1") == http.StatusNotFound
		})
		before = runs()
		procUntil(t, "two collections", func() bool { return runs() > before+1 })
		for _, target := range []string{"dev/app/manifests/v2", "dev/own/manifests/v1", "dev/own/manifests/v2"} {
			if got := w.askRegistry(t, "", "GET", target); got != http.StatusOK {
				t.Errorf("GET %s: %d", target, got)
			}
		}
	})
}
