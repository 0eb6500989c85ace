package registry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// pushAbout pushes a manifest about another, or about nothing, with a note in its
// annotations, and returns its digest.
func (r *rig) pushAbout(t *testing.T, repo, subject, note string) string {
	t.Helper()
	config := r.pushBlob(t, repo, []byte("{}"))
	about := ""
	if subject != "" {
		about = fmt.Sprintf(`"subject":{"mediaType":%q,"digest":%q,"size":1},`, ocispec.MediaTypeImageManifest, subject)
	}
	m := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"artifactType":"x/y","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2},`+
		`"layers":[],%s"annotations":{"note":%q}}`, ocispec.MediaTypeImageManifest, config.Digest, about, note)
	r.want(t, r.putting(repo, sha(m), m), 201)
	return sha(m)
}

// noteReferrers notes digests as referrers of a subject as clients do where a
// registry does not list them.
func (r *rig) noteReferrers(t *testing.T, repo, subject string, digests ...string) {
	t.Helper()
	var list []string
	for _, d := range digests {
		list = append(list, fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":1,"artifactType":"x/y"}`, ocispec.MediaTypeImageManifest, d))
	}
	c := r.putting(repo, strings.Replace(subject, ":", "-", 1),
		fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"manifests":[%s]}`, ocispec.MediaTypeImageIndex, strings.Join(list, ",")))
	c.headers = []string{"Content-Type", ocispec.MediaTypeImageIndex}
	r.want(t, c, 201)
}

// referrers follows the pages of referrers to their end, and returns how often
// each is listed and how many bytes the largest page has.
func (r *rig) referrers(t *testing.T, repo, subject string) (listed map[string]int, pages, largest int) {
	t.Helper()
	listed = map[string]int{}
	for path := "/v2/" + repo + "/referrers/" + subject; path != ""; pages++ {
		a := r.want(t, call{method: "GET", path: path, who: "viewer"}, 200)
		largest = max(largest, len(a.body))
		var index ocispec.Index
		must(t, json.Unmarshal(a.body, &index))
		for _, d := range index.Manifests {
			listed[d.Digest.String()]++
		}
		path, _, _ = strings.Cut(strings.TrimPrefix(a.header.Get("Link"), "<"), ">")
	}
	return listed, pages, largest
}

// TestAttackReferrers pushes manifests about another whose annotations are as
// long as manifests may be, and one that is noted thousands of times: no answer
// is larger than two manifests, nothing is listed twice, and all of it is found.
func TestAttackReferrers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		r := newRig(t, s, registry.Config{})
		const repo, manifest = "acme/team/app", 4 << 20
		subject := sha(r.pushImage(t, repo, "v1", "x"))
		want := map[string]int{}
		for i := range 12 {
			want[r.pushAbout(t, repo, subject, fmt.Sprint(i)+strings.Repeat("a", manifest*3/4))] = 1
		}
		var noted []string
		for i := range 4096 {
			if i%1024 == 0 {
				d := r.pushAbout(t, repo, "", fmt.Sprint(i)+strings.Repeat("b", manifest*3/4))
				want[d] = 1
				noted = append(noted, d)
				continue
			}
			noted = append(noted, noted[i-1])
		}
		r.noteReferrers(t, repo, subject, noted...)
		listed, _, largest := r.referrers(t, repo, subject)
		if fmt.Sprint(listed) != fmt.Sprint(want) {
			t.Errorf("listed: %v, want %v", listed, want)
		}
		if largest > 2*manifest {
			t.Errorf("an answer of %d bytes", largest)
		}
	})
}

// TestManyReferrers lists those that name their subject and those that are noted
// elsewhere, in pages, each once.
func TestManyReferrers(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, registry.Config{})
	const repo = "acme/team/app"
	subject := sha(r.pushImage(t, repo, "v1", "x"))
	want := map[string]int{}
	var noted []string
	for i := range 500 {
		if i%2 == 0 {
			want[r.pushAbout(t, repo, subject, fmt.Sprint(i))] = 1
			continue
		}
		noted = append(noted, r.pushAbout(t, repo, "", fmt.Sprint(i)))
		want[noted[len(noted)-1]] = 1
	}
	r.noteReferrers(t, repo, subject, noted...)
	listed, pages, _ := r.referrers(t, repo, subject)
	if fmt.Sprint(listed) != fmt.Sprint(want) || pages != 3 {
		t.Errorf("%d referrers on %d pages, want %d on 3", len(listed), pages, len(want))
	}
}
