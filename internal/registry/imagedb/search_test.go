package imagedb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestSearchManifests checks that images are found by their organization, and other manifests by
// their digest.
func TestSearchManifests(t *testing.T) {
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		org, rival := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "rival")
		folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "folder")
		repo := func(in resource.UID, name string) resource.UID {
			r := registry.Repo{UID: in.NewChild(), Name: name, CreateTime: org.CreateTime, UpdateTime: org.CreateTime}
			testkit.Must(t, s.InsertRepo(t.Context(), r))
			return r.UID
		}
		a, b, theirs := repo(org.UID, "a"), repo(folder.UID, "b"), repo(rival.UID, "theirs")
		digest := func(start string) string { return "sha256:" + start + strings.Repeat("0", 64-len(start)) }
		put := func(repo resource.UID, digest string, image bool) {
			err := s.Write(t.Context(), func(x *store.Tx) error {
				_, err := x.Exec(t.Context(), `INSERT INTO manifests
					(repo, digest, media_type, size, subject, artifact_type, annotations, push_ms, body)
					VALUES ($1, $2, '', 0, '', '', '', 0, $3)`, store.Segment(repo), digest, []byte{})
				if err != nil || !image {
					return err
				}
				_, err = x.Exec(t.Context(), `INSERT INTO images
					(repo, digest, root, uid, state, reason, extractors, tries, rank, update_ms)
					VALUES ($1, $2, $3, $4, 0, '', 0, 0, 0, 0)`, store.Segment(repo), digest, store.Segment(repo.Root()), string(repo))
				return err
			})
			testkit.Must(t, err)
		}
		one, two, other := digest("abcdef0123"), digest("abcdef0199"), digest("ffffffff")
		put(a, one, true)
		put(b, one, false)
		put(b, two, true)
		put(theirs, one, true)
		put(theirs, other, false)
		type found = map[string][]resource.UID
		everything := []resource.UID{org.UID}
		for name, tt := range map[string]struct {
			under  []resource.UID
			prefix string
			n      int
			want   found
		}{
			"a beginning":               {everything, "sha256:abcdef01", 5, found{one: {a, b}, two: {b}}},
			"a longer one":              {everything, "sha256:abcdef0199", 5, found{two: {b}}},
			"a whole digest":            {everything, one, 5, found{one: {a, b}}},
			"in a folder":               {[]resource.UID{folder.UID}, "sha256:abcdef01", 5, found{one: {b}, two: {b}}},
			"only the first":            {[]resource.UID{folder.UID}, "sha256:abcdef01", 1, found{one: {b}}},
			"of another's":              {everything, "sha256:ffffffff", 5, found{}},
			"by the other":              {[]resource.UID{rival.UID}, "sha256:", 5, found{one: {theirs}, other: {theirs}}},
			"of nothing":                {everything, "sha256:00000000", 5, found{}},
			"with another algorithm":    {everything, "sha512:abcdef01", 5, found{}},
			"beyond the last character": {everything, one + "0", 5, found{}},
		} {
			got, err := s.SearchManifests(t.Context(), store.Reach{Under: tt.under}, tt.prefix, tt.n)
			testkit.Must(t, err)
			all := found{}
			for _, m := range got {
				all[m.Digest] = append(all[m.Digest], m.Repo)
			}
			for _, want := range tt.want {
				slices.Sort(want)
			}
			if diff := cmp.Diff(tt.want, all); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}
