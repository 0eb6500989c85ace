package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/match"
)

// What images have: most of it comes from one of a few hundred base images, each with the
// packages of one release; the rest is of applications. A few packages are in most
// images, and most are in few.
const (
	leastImages = 2_000
	leastAbout  = 20_000

	systemNames = 5_000 // of packages of a distribution
	appNames    = 5_000 // of packages of npm
	eachName    = 5     // versions
	bases       = 500
	fromBase    = 150
	fromApp     = 50

	imageFolders = 10
	imageRepos   = 10 // in each folder

	pullsOfImage = 10 // in the last weeks
	pullers      = 200

	aboutUsed = 10 // one of as many advisories is about a package that images have
)

// A gallery is a database with images and advisories.
type gallery struct {
	url     string
	org     resource.UID
	repos   []resource.UID
	ids     []int64 // of packages, by the number that packageAt takes
	images  int
	about   int
	matched time.Duration // how long it took to compare all advisories
}

// packageAt returns one of the packages: those of the distribution come first.
func packageAt(i int) registry.Package {
	name, v := i/eachName, i%eachName
	if name < systemNames {
		p := registry.Package{Ecosystem: "Debian:12", Name: fmt.Sprintf("lib%d", name), Version: fmt.Sprintf("1.%d.0-1", v),
			SourceName: fmt.Sprintf("source%d", name)}
		p.SourceVersion = p.Version
		p.PURL = fmt.Sprintf("pkg:deb/debian/%s@%s?arch=amd64&distro=debian-12", p.Name, p.Version)
		return p
	}
	p := registry.Package{Ecosystem: "npm", Name: fmt.Sprintf("module%d", name-systemNames), Version: fmt.Sprintf("1.%d.0", v)}
	p.PURL = fmt.Sprintf("pkg:npm/%s@%s", p.Name, p.Version)
	return p
}

// contentOf returns the packages of the i-th image, in order.
func contentOf(i int) []int {
	all := slices.Clone(baseOf(i % bases))
	r := rand.New(rand.NewPCG(8, uint64(i)))
	for z := rand.NewZipf(r, 1.05, 20, appNames-1); len(all) < fromBase+fromApp; {
		all = appendNew(all, (systemNames+int(z.Uint64()))*eachName+r.IntN(eachName))
	}
	slices.Sort(all)
	return all
}

var madeBases [bases][]int // one goroutine loads

// baseOf returns the packages of a base image.
func baseOf(base int) []int {
	if madeBases[base] == nil {
		var all []int
		r := rand.New(rand.NewPCG(7, uint64(base)))
		for z := rand.NewZipf(r, 1.15, 8, systemNames-1); len(all) < fromBase; {
			all = appendNew(all, int(z.Uint64())*eachName+base%eachName)
		}
		madeBases[base] = all
	}
	return madeBases[base]
}

func appendNew(all []int, p int) []int {
	if slices.Contains(all, p) {
		return all
	}
	return append(all, p)
}

// foundIn returns the packages of the i-th image as they are found.
func foundIn(i int) (all []registry.ImagePackage) {
	for _, p := range contentOf(i) {
		found := registry.ImagePackage{Package: packageAt(p), Place: "var/lib/dpkg/status"}
		if found.Ecosystem == "npm" {
			found.Layer, found.Place = 1, "app/node_modules/"+found.Name+"/package.json"
		}
		all = append(all, found)
	}
	return all
}

// imageBody returns the manifest of the i-th image.
func imageBody(i int) []byte {
	return fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":37},"layers":[%s]}`,
		ociImage, registry.ImageConfigs[0], digestOf([]byte("config")), descriptor(digestOf(fmt.Appendf(nil, "layer %d", i)), 1))
}

// aboutOne returns the i-th advisory, of a version of the record.
func aboutOne(i, edition int) vuln.Advisory {
	r := rand.New(rand.NewPCG(9, uint64(i)))
	ecosystem, name := "npm", fmt.Sprintf("unused%d", i)
	if i%aboutUsed == 0 {
		if n := r.IntN(systemNames + appNames); n < systemNames {
			ecosystem, name = "Debian:12", fmt.Sprintf("source%d", n)
		} else {
			name = fmt.Sprintf("module%d", n-systemNames)
		}
	}
	return advisoryOn(fmt.Sprintf("BENCH-%d", i), fmt.Sprintf("CVE-2026-%d", 100_000+i), ecosystem, name,
		1+(r.IntN(eachName)+edition)%eachName, edition)
}

// advisoryOn returns an advisory about all versions below 1.fixed.0.
func advisoryOn(id, alias, ecosystem, name string, fixed, edition int) vuln.Advisory {
	to := fmt.Sprintf("1.%d.0", fixed)
	if ecosystem != "npm" {
		to += "-1"
	}
	a := vuln.Advisory{ID: id, Aliases: []string{alias}, Summary: "Reads past the end of what it was given",
		Details:    "A request that is shorter than it says makes the reader return what was in memory before it.",
		Severities: []vuln.Severity{{Type: vuln.CVSSv3, Score: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N"}},
		Affected: []vuln.Affected{{Ecosystem: ecosystem, Name: name, Ranges: []vuln.AffectedRange{{
			Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: to}}}}}}}
	a.Source.Digest = fmt.Appendf(nil, "%s %d", id, edition)
	return a
}

// gallery returns a database with images and advisories that were compared with each other.
func (m *measurement) gallery(ctx context.Context) *gallery {
	g := &gallery{images: m.bench.images, about: m.bench.about, url: empty(ctx, m.engine, "findings")}
	begin := time.Now()
	s := m.startService(ctx, g.url)
	g.org = s.org
	check(s.stop())
	g.makeRepos(ctx)
	g.addPackages(ctx)
	count := counters{}
	m.engine.fill(ctx, g.url, append([]table{g.tagTable().counted(count), g.manifestTable(), g.pullTable()}, g.imageTables()...))
	m.say("%s: loaded %d images in %.0f s", m.engine.name(), g.images, time.Since(begin).Seconds())
	g.addAdvisories(ctx)
	m.say("%s: imported %d advisories and compared them in %.0f s, after %.0f s in all", m.engine.name(), g.about,
		g.matched.Seconds(), time.Since(begin).Seconds())
	db := m.engine.connect(g.url, 1)
	count.write(ctx, db)
	check(db.Close())
	return g
}

// openStore opens the database, for f.
func (g *gallery) openStore(ctx context.Context, f func(*store.DB) error) {
	db := must(store.Open(ctx, g.url))
	check(errors.Join(f(db), db.Close()))
}

func (g *gallery) makeRepos(ctx context.Context) {
	g.openStore(ctx, func(db *store.DB) error {
		now := time.Now().UTC().Truncate(time.Millisecond)
		for i := range imageFolders {
			folder := resource.Group{UID: g.org.NewChild(), Name: fmt.Sprintf("folder-%d", i), CreateTime: now, UpdateTime: now}
			must(iamdb.New(db).InsertGroup(ctx, folder))
			for k := range imageRepos {
				repo := registry.Repo{UID: folder.UID.NewChild(), Name: fmt.Sprintf("repo-%d", k), CreateTime: now, UpdateTime: now}
				check(registrydb.New(db).InsertRepo(ctx, repo))
				g.repos = append(g.repos, repo.UID)
			}
		}
		return nil
	})
	slices.Sort(g.repos)
}

// repoOf returns the repo of the i-th image.
func (g *gallery) repoOf(i int) resource.UID { return g.repos[i%len(g.repos)] }

// addPackages adds all packages, and has them compared with no advisories.
func (g *gallery) addPackages(ctx context.Context) {
	all := make([]registry.Package, (systemNames+appNames)*eachName)
	for i := range all {
		all[i] = packageAt(i)
	}
	g.openStore(ctx, func(db *store.DB) (err error) {
		g.ids, err = findingdb.New(db).AddPackages(ctx, all)
		return err
	})
	g.match(ctx)
}

// match compares what is to be compared.
func (g *gallery) match(ctx context.Context) {
	g.openStore(ctx, func(db *store.DB) error {
		m := match.New(findingdb.New(db), advisorydb.New(db), slog.New(slog.DiscardHandler))
		return matchAll(ctx, db, m)
	})
}

// matchAll runs a matcher until there is nothing left.
func matchAll(ctx context.Context, db *store.DB, m *match.Matcher) error {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	err := awaitMatched(ctx, db)
	stop()
	return errors.Join(err, <-done)
}

// awaitMatched waits until everything is compared.
func awaitMatched(ctx context.Context, db *store.DB) error {
	for {
		var left int64
		err := db.Row(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM advisory_changes LIMIT 1) AS c)
			+ (SELECT count(*) FROM (SELECT 1 FROM packages WHERE NOT matched LIMIT 1) AS p)`, nil, &left)
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// addAdvisories imports the advisories, and has them compared.
func (g *gallery) addAdvisories(ctx context.Context) {
	g.openStore(ctx, func(db *store.DB) error {
		s := advisorydb.New(db)
		for i := 0; i < g.about; i += 1000 {
			var some []vuln.Advisory
			for k := i; k < min(i+1000, g.about); k++ {
				some = append(some, aboutOne(k, 0))
			}
			must(s.ImportAdvisories(ctx, g.org, "bench", some))
		}
		return nil
	})
	begin := time.Now()
	g.match(ctx)
	g.matched = time.Since(begin)
}

func (g *gallery) tagTable() table {
	columns := append(keyColumns[:6:6], "name", "digest", "class", "deprecated", "bundles", "create_ms", "update_ms")
	return table{"tags", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(10, 1))
		for i := range g.images {
			uid := g.repoOf(i) + resource.UID(segment(r))
			if !yield(append(keys(uid), fmt.Sprintf("v%d", i), digestOf(imageBody(i)), int64(resource.PlainTag), false, "[]",
				int64(epoch+i), int64(epoch+i))) {
				return
			}
		}
	}}
}

func (g *gallery) manifestTable() table {
	columns := []string{"repo", "digest", "media_type", "size", "subject", "artifact_type", "annotations", "push_ms", "body"}
	return table{"manifests", columns, func(yield func([]any) bool) {
		for i := range g.images {
			body := imageBody(i)
			if !yield([]any{number(g.repoOf(i)), digestOf(body), ociImage, int64(len(body)), "", registry.ImageConfigs[0], "",
				int64(epoch + i), body}) {
				return
			}
		}
	}}
}

// pullTable returns pulls of all images.
func (g *gallery) pullTable() table {
	columns := append(keyColumns[:6:6], "push", "digest", "tag", "identity", "remote", "agent", "create_ms")
	return table{"pulls", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(11, 1))
		var who [pullers]string
		for i := range who {
			who[i] = string(resource.NewRoot())
		}
		now := time.Now().UnixMilli()
		for i := range g.images * pullsOfImage {
			image := i % g.images
			uid := g.repoOf(image) + resource.UID(segment(r))
			if !yield(append(keys(uid), false, digestOf(imageBody(image)), fmt.Sprintf("v%d", image), who[r.IntN(pullers)],
				"192.0.2.1", "bench", now-r.Int64N(28*24*time.Hour.Milliseconds()))) {
				return
			}
		}
	}}
}

// imageTables returns what is known about the images, as an indexer would have stored it.
func (g *gallery) imageTables() []table {
	images := []string{"repo", "digest", "root", "uid", "number", "state", "reason", "extractors", "tries", "rank", "due_ms",
		"update_ms"}
	return []table{
		{"images", images, func(yield func([]any) bool) {
			for i := range g.images {
				repo := g.repoOf(i)
				if !yield([]any{number(repo), digestOf(imageBody(i)), number(repo.Root()), string(repo), int64(i),
					int64(registry.ImageIndexed), "", int64(inspect.Version), int64(0), int64(0), nil, int64(epoch + i)}) {
					return
				}
			}
		}},
		{"image_chunks", []string{"chunk", "used", "gone"}, func(yield func([]any) bool) {
			for at := 0; at < g.images; at += bitmap.Size {
				if !yield([]any{int64(at / bitmap.Size), int64(min(bitmap.Size, g.images-at)), int64(0)}) {
					return
				}
			}
		}},
		{"group_images", []string{"grp", "chunk", "bits"}, g.bitmaps(func(i int, add func(int64)) {
			for uid := g.repoOf(i); uid != ""; uid = uid.Parent() {
				add(number(uid))
			}
		}, func(chunk, of int64, bits []byte) []any { return []any{of, chunk, bits} })},
		{"package_images", []string{"chunk", "package", "bits"}, g.bitmaps(func(i int, add func(int64)) {
			for _, p := range contentOf(i) {
				add(g.ids[p])
			}
		}, func(chunk, of int64, bits []byte) []any { return []any{chunk, of, bits} })},
		{"inspections", []string{"digest", "extractors", "update_ms", "distribution", "warnings", "packages", "places"},
			g.inspections},
	}
}

// bitmaps yields a row for each chunk and each of what its images have.
func (g *gallery) bitmaps(
	each func(image int, add func(int64)), row func(chunk, of int64, bits []byte) []any,
) func(func([]any) bool) {
	return func(yield func([]any) bool) {
		for at := 0; at < g.images; at += bitmap.Size {
			sets := map[int64]*bitmap.Set{}
			for i := at; i < min(at+bitmap.Size, g.images); i++ {
				each(i, func(of int64) {
					if sets[of] == nil {
						sets[of] = &bitmap.Set{}
					}
					sets[of].Add(i - at)
				})
			}
			var all []int64
			for of := range sets {
				all = append(all, of)
			}
			slices.Sort(all)
			for _, of := range all {
				if !yield(row(int64(at/bitmap.Size), of, sets[of].Encode())) {
					return
				}
			}
		}
	}
}

func (g *gallery) inspections(yield func([]any) bool) {
	const distribution = `{"id":"debian","version":"12","name":"Debian GNU/Linux 12 (bookworm)"}`
	for i := range g.images {
		var ids []int64
		for _, p := range contentOf(i) {
			ids = append(ids, g.ids[p])
		}
		packages, places, err := findingdb.Encode(ids, foundIn(i))
		check(err)
		if !yield([]any{digestOf(imageBody(i)), int64(inspect.Version), int64(epoch + i), distribution, "null", packages, places}) {
			return
		}
	}
}
