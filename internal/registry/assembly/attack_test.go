package assembly_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// pushAbout pushes a manifest that has a note in its annotations, and returns its digest. The manifest has a subject
// unless subject is "".
func (r *rig) pushAbout(t *testing.T, repo, subject, note string) string {
	t.Helper()
	config := r.pushBlob(t, repo, []byte("{}"))
	about := ""
	if subject != "" {
		about = fmt.Sprintf(`"subject":{"mediaType":%q,"digest":%q,"size":1},`, ocispec.MediaTypeImageManifest,
			subject)
	}
	m := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"artifactType":"x/y",`+
		`"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2},`+
		`"layers":[],%s"annotations":{"note":%q}}`, ocispec.MediaTypeImageManifest, config.Digest, about, note)
	r.want(t, r.putting(repo, sha(m), m), 201)
	return sha(m)
}

// noteReferrers pushes an index that lists referrers to the referrers tag of a subject. Clients do this if a registry
// cannot list referrers.
func (r *rig) noteReferrers(t *testing.T, repo, subject string, digests ...string) {
	t.Helper()
	var list []string
	for _, d := range digests {
		list = append(list, fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":1,"artifactType":"x/y"}`,
			ocispec.MediaTypeImageManifest, d))
	}
	c := r.putting(repo, strings.Replace(subject, ":", "-", 1),
		fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"manifests":[%s]}`, ocispec.MediaTypeImageIndex,
			strings.Join(list, ",")))
	c.headers = []string{"Content-Type", ocispec.MediaTypeImageIndex}
	r.want(t, c, 201)
}

// referrers reads all pages of the referrers of a subject. It returns how often each referrer is listed, the number of
// pages, and the size of the largest page in bytes.
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

// TestAttackReferrers pushes referrers with annotations of the maximum size, and a referrer that a tag lists
// thousands of times. It checks that no response is larger than a manifest may be, because clients could not read it,
// and that each referrer is listed exactly once.
func TestAttackReferrers(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
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
		if largest > manifest {
			t.Errorf("an answer of %d bytes", largest)
		}
	})
}

// TestManyReferrers checks that referrers with a subject and referrers from tags are listed in pages, each once.
func TestManyReferrers(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
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

// pushTags adds n tags to an image.
func (r *rig) pushTags(t *testing.T, repo string, m []byte, n int) {
	t.Helper()
	const atOnce = 100
	for i := 0; i < n; i += atOnce {
		c := r.putting(repo, sha(m), m)
		c.path += "?tag=t" + fmt.Sprint(i)
		for j := i + 1; j < min(n, i+atOnce); j++ {
			c.path += "&tag=t" + fmt.Sprint(j)
		}
		r.want(t, c, 201)
	}
}

// TestAttackManyTags deletes an image with thousands of tags. It checks that the deletion does not block other
// writes, and that all tags stay if one of them may not be deleted.
func TestAttackManyTags(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		const repo, n = "acme/team/app", 2000
		r := newRig(t, s, assembly.Config{})
		m := r.pushImage(t, repo, "v1", "x")
		r.pushTags(t, repo, m, n)
		del := call{method: "DELETE", path: "/v2/" + repo + "/manifests/" + sha(m), who: "owner"}
		r.settings(t, r.folder.UID, func(set *registry.Settings) {
			set.ImmutableTags, set.ImmutableExcept = true, []string{"t*"}
		})
		r.want(t, del, 405)
		a := r.want(t, call{method: "GET", path: "/v2/" + repo + "/tags/list", who: "owner"}, 200)
		if got := bytes.Count(a.body, []byte(`"t`)); got < n {
			t.Errorf("%d of %d tags are left although the image stays", got, n)
		}
		r.settings(t, r.folder.UID, func(set *registry.Settings) { set.ImmutableTags = false })
		done := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					r.group(t, r.org.UID, fmt.Sprint("other-", i))
				}
			}
		})
		r.want(t, del, 202)
		close(done)
		others.Wait()
		r.want(t, call{method: "GET", path: "/v2/" + repo + "/manifests/t7", who: "owner"}, 404)
		events, err := outbox.Read(t.Context(), s.DB, 0, 100_000)
		must(t, err)
		untagged, between := 0, 0
		for _, e := range events {
			switch {
			case e.Type == resource.TagDeleted:
				untagged++
			case e.Type == resource.GroupCreated && untagged > 0 && untagged <= n:
				between++
			}
		}
		if untagged != n+1 || between == 0 {
			t.Errorf("%d tags are gone, and %d writes of others came in between", untagged, between)
		}
	})
}

// TestAttackManyVariants checks that the variants of an index that lists one large image hundreds of times are never
// all in memory together.
func TestAttackManyVariants(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	const repo, config = "acme/team/app", 3 << 20
	large := r.pushBlob(t, repo, []byte(`{"architecture":"amd64","os":"linux","x":"`+strings.Repeat("x", config)+`"}`))
	m := image(large)
	r.want(t, r.putting(repo, sha(m), m), 201)
	one := fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d,"platform":{"architecture":"amd64","os":"linux"}}`,
		ocispec.MediaTypeImageManifest, sha(m), len(m))
	index := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"manifests":[%s]}`, ocispec.MediaTypeImageIndex,
		one+strings.Repeat(","+one, 255))
	c := r.putting(repo, sha(index), index)
	c.headers = []string{"Content-Type", ocispec.MediaTypeImageIndex}
	r.want(t, c, 201)
	uid, err := s.RepoAt(t.Context(), strings.Split(repo, "/"))
	must(t, err)
	got, err := r.Images.Image(t.Context(), uid, sha(index))
	must(t, err)
	held := 0
	for _, v := range got.Variants {
		held += len(v.Config)
	}
	if held > 48<<20 || len(got.Variants) == 0 || got.Variants[0].Architecture != "amd64" {
		t.Errorf("%d variants with %d bytes of configurations", len(got.Variants), held)
	}
}

// TestAttackManyRanges checks that a request for a thousand ranges of a blob gets the whole blob, because each range
// would cost a request to an object store.
func TestAttackManyRanges(t *testing.T) {
	r := newRig(t, storetest.Open(t, storetest.SQLite(t)), assembly.Config{})
	content := strings.Repeat("0123456789", 10_000)
	d := r.pushBlob(t, "acme/team/app", []byte(content))
	get := call{method: "GET", path: "/v2/acme/team/app/blobs/" + d.Digest.String(), who: "viewer"}
	many := "bytes=0-0"
	for i := range 1000 {
		many += fmt.Sprintf(",%d-%d", 2*i+2, 2*i+2)
	}
	for header, status := range map[string]int{"bytes=5-9": 206, "bytes=0-1,4-5": 206, "bytes=-3": 206, many: 200} {
		get.headers = []string{"Range", header}
		if a := r.want(t, get, status); status == 200 && string(a.body) != content {
			t.Errorf("%d bytes of %d", len(a.body), len(content))
		}
	}
}
