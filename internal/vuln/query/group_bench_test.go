package query_test

import (
	"context"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

var benchImages = flag.Int("images", 5000, "number of `images` in BenchmarkGroup")

const (
	imagesOfGroup   = 5000
	imagesOfRepo    = 10
	packagesOfImage = 200
	benchPackages   = 20_000
	benchAdvisories = 10_000
)

// BenchmarkGroup measures how long it takes to list and count findings. It does this for a group of up to 5,000 images
// with 200 packages each, and for the whole organization. It does both without exceptions and with 100 exceptions.
func BenchmarkGroup(b *testing.B) {
	for engine, url := range map[string]func(testing.TB) string{"sqlite": storetest.SQLite,
		"postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			r := newReplica(b, url(b), func() int { return 1 })
			defer r.Close()
			org, folder, caller := fillGroups(b, r)
			ctx := authz.WithCaller(b.Context(), caller)
			benchGroups(ctx, b, r, "", map[string]resource.UID{"group": folder, "all": org})
			fillExceptions(b, r, org)
			benchGroups(ctx, b, r, "/exceptions", map[string]resource.UID{"group": folder})
		})
	}
}

func benchGroups(ctx context.Context, b *testing.B, r *replica, with string, places map[string]resource.UID) {
	for name, place := range places {
		b.Run("list/"+name+with, func(b *testing.B) {
			var got page.Page[query.GroupFinding]
			for b.Loop() {
				var err error
				got, _, err = r.service.ListGroup(ctx, query.Place{Group: place}, query.Filter{}, page.Params{})
				must(b, err)
			}
			b.ReportMetric(float64(got.Total), "findings")
		})
		b.Run("summary/"+name+with, func(b *testing.B) {
			for b.Loop() {
				_, _, err := r.service.Summarize(ctx, query.Place{Group: place}, 30, page.Params{})
				must(b, err)
			}
		})
	}
}

// fillExceptions creates 100 exceptions on the organization. Half of them select findings by CVE, and half by package.
func fillExceptions(b *testing.B, r *replica, org resource.UID) {
	now := r.DB.Time()
	var exceptions []vuln.Exception
	for i := range 100 {
		e := vuln.Exception{UID: org.NewChild(), Target: org, Reason: "r", CreateTime: now, UpdateTime: now, ApproveTime: now,
			Advisory: fmt.Sprint("CVE-2026-", 1000+37*i)}
		if i%2 == 1 {
			e.Advisory, e.PURL = "", fmt.Sprint("pkg:npm/p", 100*i)
		}
		exceptions = append(exceptions, e)
	}
	must(b, r.InsertExceptions(b.Context(), org, exceptions))
}

// fillBitmaps stores which images have each package. has maps image numbers to package
// IDs.
func fillBitmaps(b *testing.B, r *replica, has map[int64][]int64) {
	type key struct{ chunk, id int64 }
	sets := map[key]*bitmap.Set{}
	for n, ids := range has {
		chunk, place := bitmap.At(n)
		for _, id := range ids {
			if sets[key{chunk, id}] == nil {
				sets[key{chunk, id}] = &bitmap.Set{}
			}
			sets[key{chunk, id}].Add(place)
		}
	}
	var rows [][]any
	for k, set := range sets {
		rows = append(rows, []any{k.chunk, k.id, set.Encode()})
	}
	for batch := range slices.Chunk(rows, 5000) {
		must(b, r.Write(b.Context(), func(t *store.Tx) error {
			return t.InsertRows(b.Context(), `INSERT INTO package_images (chunk, package, bits)`, batch, "")
		}))
	}
}

// fillGroups creates an organization with groups that contain images. It returns the organization, one of the groups,
// and the owner.
func fillGroups(b *testing.B, r *replica) (org, folder resource.UID, _ authz.Caller) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	org, identity := resource.NewRoot(), resource.NewRoot()
	_, err := r.InsertGroup(b.Context(), resource.Group{UID: org, Name: "a", CreateTime: now, UpdateTime: now})
	must(b, err)
	_, err = r.InsertBindings(b.Context(), []resource.RoleBinding{{UID: org.NewChild(), Identity: identity,
		Role: resource.OwnerRole, CreateTime: now}})
	must(b, err)
	ids := fillPackages(b, r, org, rng)
	has := map[int64][]int64{}
	for i := 0; i < *benchImages; i += imagesOfRepo {
		if i%imagesOfGroup == 0 {
			folder = org.NewChild()
			_, err := r.InsertGroup(b.Context(), resource.Group{UID: folder, Name: fmt.Sprint("g", i), CreateTime: now,
				UpdateTime: now})
			must(b, err)
		}
		repo := folder.NewChild()
		must(b, r.InsertRepo(b.Context(), registry.Repo{UID: repo, Name: fmt.Sprint("r", i), CreateTime: now,
			UpdateTime: now}))
		fillRepo(b, r, repo, i, ids, rng, has)
	}
	fillBitmaps(b, r, has)
	if r.Engine.Postgres {
		_, err := r.Exec(b.Context(), `ANALYZE`)
		must(b, err)
	}
	return org, folder, authz.Caller{Identity: identity}
}

// fillRepo creates tagged images. Each image takes most of its packages from one of a hundred base images.
func fillRepo(
	b *testing.B, r *replica, repo resource.UID, first int, ids []int64, rng *mathrand.Rand, packagesOf map[int64][]int64,
) {
	must(b, r.Write(b.Context(), func(t *store.Tx) error {
		var manifests, tags, images, history [][]any
		for n := first; n < first+imagesOfRepo; n++ {
			d, uid := digest(fmt.Sprint("image ", n)), repo.NewChild()
			base := 100 * rng.IntN(100)
			var has []int64
			var packages []registry.ImagePackage
			for i := range packagesOfImage {
				id := ids[(base+i)%len(ids)]
				if i > packagesOfImage*3/4 {
					id = ids[rng.IntN(len(ids))]
				}
				has, packages = append(has, id), append(packages, registry.ImagePackage{Place: "x"})
			}
			if _, err := findingdb.In(t).SaveInspection(b.Context(), registry.Inspection{Digest: d, Packages: packages},
				has); err != nil {
				return err
			}
			packagesOf[int64(n)] = has
			key, root := store.Segment(repo), store.Segment(repo.Root())
			manifests = append(manifests, []any{key, d, registry.ImageManifests[0], 1, "", "", "", 1, []byte("{}")})
			tags = append(tags, []any{store.Segment(uid), string(uid), key, fmt.Sprint("v", n), d, 0, false, "[]", 1, 1})
			images = append(images, []any{key, d, root, string(repo), n, int(registry.ImageIndexed), "", 1, 0, 0, 1, 1})
			history = append(history, []any{key, fmt.Sprint("v", n), d, "{}",
				time.Now().Add(-24 * time.Hour * time.Duration(rng.IntN(200))).UnixMilli()})
		}
		for _, step := range []struct {
			head string
			rows [][]any
		}{
			{`INSERT INTO manifests (repo, digest, media_type, size, subject, artifact_type, annotations, push_ms, body)`,
				manifests},
			{`INSERT INTO tags (seg, uid, parent, name, digest, class, deprecated, bundles, create_ms, update_ms)`, tags},
			{`INSERT INTO images (repo, digest, root, uid, number, state, reason, extractors, tries, rank,
				update_ms, indexed_ms)`, images},
			{`INSERT INTO tag_history (repo, name, digest, actor, at_ms)`, history},
		} {
			if err := t.InsertRows(b.Context(), step.head, step.rows, ""); err != nil {
				return err
			}
		}
		return nil
	}))
}

// fillPackages creates packages, and advisories that affect four packages each. It returns the IDs of the packages.
func fillPackages(b *testing.B, r *replica, org resource.UID, rng *mathrand.Rand) []int64 {
	var packages []registry.Package
	for i := range benchPackages {
		name := fmt.Sprint("p", i)
		packages = append(packages, registry.Package{Ecosystem: "npm", Name: name, Version: "1.0.0",
			PURL: "pkg:npm/" + name + "@1.0.0"})
	}
	ids, err := r.AddPackages(b.Context(), packages)
	must(b, err)
	var advisories []vuln.Advisory
	for i := range benchAdvisories {
		a := vuln.Advisory{ID: fmt.Sprint("GHSA-", i), Aliases: []string{fmt.Sprint("CVE-2026-", 1000+i)}, Summary: "bad"}
		for range 4 {
			a.Affected = append(a.Affected, vuln.Affected{Ecosystem: "npm", Name: fmt.Sprint("p", rng.IntN(benchPackages)),
				Ranges: []vuln.AffectedRange{{Type: "SEMVER", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "1.2.0"}}}}})
		}
		a.Source.Digest = []byte(fmt.Sprint(i))
		advisories = append(advisories, a)
	}
	for batch := range slices.Chunk(advisories, 500) {
		_, err := r.ImportAdvisories(b.Context(), org, "test", batch)
		must(b, err)
	}
	r.matcher.Pairs = 100_000
	for did := true; did; {
		did, err = r.matcher.Match(b.Context())
		must(b, err)
	}
	return ids
}
