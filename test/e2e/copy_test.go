package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// TestCopyImages copies an index with its images. It must be possible to pull the whole copy, even after the original
// repo was deleted.
func TestCopyImages(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		staging, prod := w.child(t, string(w.Organization), "staging"), w.child(t, string(w.Organization), "prod")
		repo := w.repo(t, staging, "app")
		index := w.pushIndex(t, "dev/staging/app", "1.0", "amd64", "arm64")
		image := w.pushImage(t, "dev/staging/app", "1.1", "amd64", "layer of a copy")
		in := &ocipb.CopyImagesRequest{GroupUid: prod, Repo: "app", FromRepoUid: repo, TagPattern: "1.*"}
		dry := proto.Clone(in).(*ocipb.CopyImagesRequest)
		dry.ValidateOnly = true
		tried := must[*ocipb.ImageCopy](t, w.overHTTP, w.Token, dry)
		if got := w.askRegistry(t, w.RegistryToken, "GET", "dev/prod/app/manifests/1.0"); got != http.StatusNotFound {
			t.Errorf("HTTP status after a dry run: %d", got)
		}
		done := must[*ocipb.ImageCopy](t, w.overGRPC, w.Token, in)
		if len(done.GetImages()) != 2 || done.GetManifests() != tried.GetManifests() ||
			done.GetBytes() != tried.GetBytes() || done.GetBytes() == 0 {
			t.Errorf("dry run %v, copy %v", tried, done)
		}
		must[proto.Message](t, w.overGRPC, w.Token, &registrypb.DeleteRepoRequest{Uid: repo})
		for _, target := range []string{
			"manifests/1.0", "manifests/1.1", "manifests/" + index, "manifests/" + image, "blobs/" + digestOf("layer of a copy"),
		} {
			if got := w.askRegistry(t, w.RegistryToken, "GET", "dev/prod/app/"+target); got != http.StatusOK {
				t.Errorf("GET %s of the copy: %d", target, got)
			}
		}
	})
}

// TestCopyAttacks checks that a caller cannot copy from a repo without the right to pull from it, or to a repo
// without the right to push to it.
func TestCopyAttacks(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		secret := h.repo(t, h.folder, "secret")
		digest := h.pushImage(t, "dev/folder/secret", "v1", "amd64", "a secret layer")
		theirs := h.repo(t, h.other, "own")
		mine := h.pushImage(t, "other/own", "v1", "amd64", "my layer")
		open := h.child(t, h.org, "open")
		must[proto.Message](t, w.overGRPC, w.Token, &ocipb.UpdateSettingsRequest{
			Settings: &ocipb.Settings{Uid: open, Public: true},
		})
		public := h.repo(t, open, "app")
		h.pushImage(t, "dev/open/app", "v1", "amd64", "an open layer")
		segment := func(uid string) string { return uid[strings.LastIndexByte(uid, '/'):] }
		request := func(group, repo, from, reference string) *ocipb.CopyImagesRequest {
			return &ocipb.CopyImagesRequest{GroupUid: group, Repo: repo, FromRepoUid: from, References: []string{reference}}
		}
		pattern := request(h.folder, "copy", secret, "v1")
		pattern.References, pattern.TagPattern = nil, "*"
		referrers := request(h.folder, "copy", secret, "v1")
		referrers.WithReferrers = true
		for name, tt := range map[string]struct {
			bearer string
			in     proto.Message
			code   codes.Code
		}{
			"without a token":               {"", request(h.folder, "copy", secret, "v1"), codes.Unauthenticated},
			"with a token for the registry": {w.RegistryToken, request(h.folder, "copy", secret, "v1"), codes.Unauthenticated},
			"out of another organization":   {h.full["other"], request(h.other, "copy", secret, "v1"), codes.PermissionDenied},
			"out of another organization, by digest": {
				h.full["other"], request(h.other, "copy", secret, digest), codes.PermissionDenied,
			},
			"out of a sibling": {
				h.full["sibling"], request(h.sibling, "copy", secret, "v1"), codes.PermissionDenied,
			},
			"of another's image, from an own repo": {h.full["other"], request(h.other, "copy", theirs, digest), codes.NotFound},
			"out of the segment of another's repo": {
				h.full["other"], request(h.other, "copy", h.other+segment(secret), "v1"), codes.NotFound,
			},
			"out of a public group's name for it": {
				h.full["other"], request(h.other, "copy", open+segment(secret), "v1"), codes.PermissionDenied,
			},
			"into another organization": {h.full["other"], request(h.folder, "secret", theirs, "v1"), codes.PermissionDenied},
			"into the segment of another's group": {
				h.full["other"], request(h.other+segment(h.folder), "secret", theirs, "v1"), codes.NotFound,
			},
			"into the segment of another's group, new": {
				h.full["other"], request(h.other+segment(h.folder), "new", theirs, mine), codes.NotFound,
			},
			"into what is above": {h.full["folder"], request(h.org, "copy", secret, "v1"), codes.PermissionDenied},
			"into a public repo": {h.full["other"], request(open, "app", theirs, "v1"), codes.PermissionDenied},
			"into a new repo without repo.create": {
				h.lacking["repo.create"], request(h.folder, "new", public, "v1"), codes.PermissionDenied,
			},
			"into a repo without tag.create": {
				h.lacking["tag.create"], request(h.folder, "secret", public, "v1"), codes.PermissionDenied,
			},
			"with referrers, without referrers.list": {h.lacking["referrers.list"], referrers, codes.PermissionDenied},
			"by a pattern, without tag.list":         {h.lacking["tag.list"], pattern, codes.PermissionDenied},
			"to nowhere, which must not tell what there": {
				h.full["other"], request(h.folder+"/0123456789abcdef", "x", theirs, "v1"), codes.PermissionDenied,
			},
		} {
			for protocol, call := range w.protocols() {
				if out, st := call(t, tt.bearer, tt.in); st.Code() != tt.code {
					t.Errorf("%s over %s: %v, %v", name, protocol, out, st)
				}
			}
		}
		for target, want := range map[string]int{
			"other/copy/manifests/v1":             http.StatusNotFound,
			"dev/folder/new/manifests/v1":         http.StatusNotFound,
			"dev/folder/secret/manifests/" + mine: http.StatusNotFound,
			"dev/open/app/manifests/" + mine:      http.StatusNotFound,
		} {
			if got := w.askRegistry(t, w.RegistryToken, "GET", target); got != want && got != http.StatusForbidden {
				t.Errorf("GET %s: %d", target, got)
			}
		}
		// Everybody may pull from this repo, so the copy is allowed.
		must[proto.Message](t, w.overGRPC, h.full["other"], request(h.other, "copy", public, "v1"))
	})
}
