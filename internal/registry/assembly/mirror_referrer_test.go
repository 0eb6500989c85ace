package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// about returns the artifact types of the referrers of a manifest in a repo, and the Warning header of the response.
func (m *mirrorRig) about(t testing.TB, repo string, subject []byte) (all []string, warning string) {
	t.Helper()
	for query := ""; ; {
		got := m.get(t, repo+"/referrers/"+sha(subject)+query, http.StatusOK)
		var index ocispec.Index
		must(t, json.Unmarshal(got.body, &index))
		for _, d := range index.Manifests {
			all = append(all, d.ArtifactType)
		}
		_, next, more := strings.Cut(strings.TrimSuffix(got.header.Get("Link"), `>; rel="next"`), "?")
		if !more {
			return all, got.header.Get("Warning")
		}
		query = "?" + next
	}
}

// TestMirrorReferrers checks that the referrers of an image are fetched from the upstream, and fetched again when the
// stored referrers are no longer fresh.
func TestMirrorReferrers(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		img := o.image("app", "v1", "layer")
		signature := o.about("app", img, "signature")
		list := func() (all []string, warning string) {
			t.Helper()
			return m.about(t, at+"/app", img)
		}
		if all, warning := list(); len(all) != 1 || all[0] != "application/x-signature" || warning != "" {
			t.Errorf("referrers %v, %q", all, warning)
		}
		m.get(t, at+"/app/manifests/"+sha(signature), http.StatusOK)
		m.get(t, at+"/app/blobs/"+sha([]byte("signature")), http.StatusOK)
		o.about("app", img, "sbom")
		o.total()
		if all, _ := list(); len(all) != 1 || o.total() != 0 {
			t.Errorf("what is fresh was asked for again: %v", all)
		}
		m.pass(2 * time.Hour)
		if all, _ := list(); len(all) != 2 {
			t.Errorf("referrers %v", all)
		}
		o.behave(status(http.StatusInternalServerError))
		m.pass(2 * time.Hour)
		if all, warning := list(); len(all) != 2 || warning == "" {
			t.Errorf("referrers of an upstream that fails: %v, %q", all, warning)
		}
	})
}

// TestMirrorReferrerPages checks that all pages of a list of referrers are read up to a limit, and that the response
// has a warning if there are more.
func TestMirrorReferrerPages(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		o.perPage = 10
		img := o.image("app", "v1", "layer")
		for i := range 25 {
			o.about("app", img, fmt.Sprint(i))
		}
		if all, warning := m.about(t, at+"/app", img); len(all) != 25 || warning != "" || o.count("GET referrers") != 3 {
			t.Errorf("%d referrers, %q", len(all), warning)
		}
		for i := range 60 {
			o.about("app", img, fmt.Sprint("later ", i))
		}
		m.pass(2 * time.Hour)
		for range 2 { // the warning is repeated while the stored referrers are fresh
			if all, warning := m.about(t, at+"/app", img); len(all) < 64 || len(all) >= 85 ||
				!strings.Contains(warning, "origin lists more than 64 referrers") {
				t.Errorf("%d referrers, %q", len(all), warning)
			}
		}
		if n := o.count("GET referrers"); n != 7 {
			t.Errorf("%d pages were read, want 7", n)
		}
	})
}

// TestMirrorReferrerLoops checks that reading a list of referrers stops if the list is endless, and that links to
// other hosts are not followed.
func TestMirrorReferrerLoops(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, other := newMirrorRig(t, s, nil), newOrigin(t)
		n := 0
		for name, tt := range map[string]struct {
			link func(page int) string
			asks int
		}{
			"to itself":         {func(int) string { return "?" }, 1},
			"to the same":       {func(int) string { return "?last=a" }, 2},
			"to the one before": {func(page int) string { return fmt.Sprintf("?last=%d", page%2) }, 3},
			"without end":       {func(page int) string { return fmt.Sprintf("?last=%d", page) }, 16},
			"elsewhere":         {func(int) string { return other.URL + "/v2/app/referrers/x?last=a" }, 2},
			"to a manifest":     {func(int) string { return "/v2/app/manifests/v1?last=a" }, 2},
			"to nowhere":        {func(int) string { return "/v2/%zz?last=a" }, 1},
		} {
			n++
			o := newOrigin(t)
			at, _ := m.mirrors(t, fmt.Sprint("m", n), o.URL, nil)
			t.Run(name, func(t *testing.T) {
				img := o.image("app", "v1", "layer")
				o.about("app", img, "signature")
				pages := 0
				o.behave(func(w http.ResponseWriter, r *http.Request) bool {
					if strings.Contains(r.URL.Path, "/referrers/") {
						pages++
						r.URL.RawQuery = ""
						w.Header().Set("Link", "<"+tt.link(pages)+`>; rel="next"`)
					}
					return false
				})
				all, warning := m.about(t, at+"/app", img)
				if len(all) != 1 || !strings.Contains(warning, "not all were fetched") {
					t.Errorf("referrers %v, %q", all, warning)
				}
				if pages != tt.asks {
					t.Errorf("it was asked %d times, want %d", pages, tt.asks)
				}
			})
		}
		if n := other.total(); n != 0 {
			t.Errorf("another registry was asked %d times", n)
		}
	})
}

// TestMirrorReferrersOfHoldfast checks that referrers are fetched from another Holdfast server, whose pages have the
// maximum size.
func TestMirrorReferrersOfHoldfast(t *testing.T) {
	far := newRig(t, storetest.Open(t, storetest.SQLite(t)), assembly.Config{})
	img := far.pushImage(t, "acme/team/app", "v1", "from afar")
	for i := range 3 {
		far.pushAbout(t, "acme/team/app", sha(img), strings.Repeat(fmt.Sprint(i), 3<<20))
	}
	m := newMirrorRig(t, storetest.Open(t, storetest.SQLite(t)), nil)
	at, _ := m.mirrors(t, "mirror", far.url, func(u *registry.Upstream) {
		u.Credentials.Plain = protocol.LoginName + ":" + far.tokens["viewer"]
	})
	if all, warning := m.about(t, at+"/acme/team/app", img); len(all) != 3 || warning != "" {
		t.Errorf("referrers %v, %q", all, warning)
	}
}

// TestMirrorReferrersByTag checks that the index at the referrers tag is used if the upstream does not have the
// referrers endpoint.
func TestMirrorReferrersByTag(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		for _, answer := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
			o.behave(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/referrers/") {
					w.WriteHeader(answer)
					return true
				}
				return false
			})
			img := o.image("app", "", fmt.Sprint("layer ", answer))
			if all, warning := m.about(t, at+"/app", img); len(all) != 0 || warning != "" {
				t.Errorf("referrers %v, %q", all, warning)
			}
			gone := o.about("elsewhere", img, "gone")
			o.index("app", strings.Replace(sha(img), ":", "-", 1), o.about("app", img, "signature"), gone,
				o.about("app", img, "sbom"))
			m.pass(2 * time.Hour)
			if all, warning := m.about(t, at+"/app", img); len(all) != 2 || warning != "" {
				t.Errorf("referrers %v, %q", all, warning)
			}
		}
	})
}
