package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// An attachment is a manifest that was attached to an image.
type attachment struct {
	digest string       // digest of the manifest
	word   string       // word that determines the packages in the SBOM; "" if the document is not an SBOM
	by     resource.UID // the identity that attached it
	tag    string       // tag through which the manifest is attached, or ""
	index  string       // digest of the index through which the manifest is attached, or ""
}

// claimed returns the packages in the SBOM that is made from a word. Some images have the same packages, with other
// package URLs.
func claimed(word string) (packages []inspect.Package) {
	rng := mathrand.New(mathrand.NewPCG(7, uint64(word[1])))
	for range 1 + rng.IntN(6) {
		name, v := fmt.Sprintf("p%d", rng.IntN(6)), fmt.Sprintf("1.%d.0", rng.IntN(5))
		p := inspect.Package{Ecosystem: "npm", Name: name, Version: v, Purl: "pkg:npm/" + name + "@" + v + "?by=sbom"}
		if rng.IntN(3) == 0 {
			p = inspect.Package{Ecosystem: "Debian:12", Name: "lib" + name, Version: v, SourceName: name, SourceVersion: v,
				Purl: "pkg:deb/debian/lib" + name + "@" + v + "?upstream=" + name + "&distro=debian-12"}
		}
		packages = append(packages, p)
	}
	return packages
}

// readClaim replaces the child process that reads a document. If the document's word begins with x, the document is not
// an SBOM. If the word begins with y, the document cannot be read.
func readClaim(_ context.Context, _ string, document inspect.Layer, _ string) (inspect.Result, error) {
	loaded, _ := words.Load(document.Digest)
	switch word := loaded.(string); {
	case strings.HasPrefix(word, "x"):
		return inspect.Result{}, inspect.ErrNoSBOM
	case strings.HasPrefix(word, "y"):
		return inspect.Result{}, &inspect.NotUnderstood{Reason: "bad"}
	default:
		return inspect.Result{Packages: claimed(word), Document: &inspect.Document{Format: "SPDX", Tool: "t"}}, nil
	}
}

// nameVersion returns the name and version of a package, which are the same in files and SBOMs.
func nameVersion(p inspect.Package) string { return p.Name + " " + p.Version }

// has returns the packages of an image in a repo: the packages in its files, and the packages that only its SBOMs list.
func (g *game) has(repo resource.UID, d, word string) []inspect.Package {
	packages := contents(word, g.extractors)
	known := map[string]bool{}
	for _, p := range packages {
		known[nameVersion(p)] = true
	}
	for _, a := range g.attached[repo][d] {
		for _, p := range a.claims() {
			if !known[nameVersion(p)] {
				known[nameVersion(p)] = true
				packages = append(packages, p)
			}
		}
	}
	return packages
}

func (a attachment) claims() []inspect.Package {
	if a.word == "" {
		return nil
	}
	return claimed(a.word)
}

// checkOrigins checks that a package lists all its origins: the files, and each SBOM that contains the package.
func (g *game) checkOrigins(t *testing.T, repo resource.UID, d, word string, p registry.ImagePackage) {
	t.Helper()
	var want []registry.Origin
	lists := func(packages []inspect.Package) bool {
		return slices.ContainsFunc(packages, func(v inspect.Package) bool { return nameVersion(v) == p.Name+" "+p.Version })
	}
	if lists(contents(word, g.extractors)) {
		want = append(want, registry.Origin{})
	}
	for _, a := range g.attached[repo][d] {
		if lists(a.claims()) {
			want = append(want, registry.Origin{Manifest: a.digest, By: a.by})
		}
	}
	if diff := gocmp.Diff(want, p.Origins, cmpopts.IgnoreFields(registry.Origin{}, "Time"), cmpopts.SortSlices(
		func(a, b registry.Origin) bool { return a.Manifest < b.Manifest })); diff != "" {
		t.Fatalf("the origins of %s %s in %s: %s", p.Name, p.Version, word, diff)
	}
}

// anySubject returns a random image, or an image that has not been pushed yet.
func (g *game) anySubject(t *testing.T) (repo registry.Repo, image string) {
	t.Helper()
	repos := slices.Sorted(maps.Keys(g.repos))
	repo = g.named[repos[g.rng.IntN(len(repos))]]
	images := slices.Sorted(maps.Keys(g.repos[repo.UID]))
	if len(images) == 0 || g.rng.IntN(5) == 0 {
		return repo, digest(string(bodyOf(fmt.Sprintf("%c%d", 'a'+g.rng.IntN(20), g.rng.IntN(3)))))
	}
	return repo, images[g.rng.IntN(len(images))]
}

// attachOne attaches a document to an image, in one of the ways that clients use.
func (g *game) attachOne(t *testing.T) {
	t.Helper()
	repo, image := g.anySubject(t)
	a := attachment{word: fmt.Sprintf("%c%d", "sssxy"[g.rng.IntN(5)], g.rng.IntN(9)), by: resource.NewRoot()}
	subject := image
	switch g.rng.IntN(4) {
	case 0:
		a.tag, subject = strings.Replace(image, ":", "-", 1)+[]string{".att", ".sbom"}[g.rng.IntN(2)], ""
	case 1:
		if _, exists := g.repos[repo.UID][image]; exists {
			a.index, subject = "-", ""
		}
	}
	a.digest = g.attach(t, repo, a, subject, a.word)
	if a.index != "" {
		a.index = g.pushIndex(t, repo, image, a.digest)
	}
	if a.word[0] != 's' {
		a.word = ""
	}
	if g.attached[repo.UID] == nil {
		g.attached[repo.UID] = map[string][]attachment{}
	}
	g.attached[repo.UID][image] = append([]attachment{a}, slices.DeleteFunc(g.attached[repo.UID][image],
		func(b attachment) bool { return a.tag != "" && b.tag == a.tag })...)
}

// attach pushes a document and returns its digest. Each document is unique, because it
// names the identity that pushed it.
func (g *game) attach(t *testing.T, repo registry.Repo, a attachment, subject, word string) string {
	t.Helper()
	ctx := resource.WithActor(t.Context(), resource.Actor{Subject: a.by})
	layer := digest(word)
	body, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": registry.ImageManifests[0], "annotations": map[string]string{"by": string(a.by)},
		"config": map[string]any{"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest("config"), "size": 2},
		"layers": []any{map[string]any{"mediaType": "application/spdx+json", "digest": layer, "size": 1}},
	})
	must(t, err)
	ref := registrydb.RepoRef{Group: repo.UID.Parent(), Name: repo.Name}
	_, err = g.AddBlob(ctx, ref, registry.Upload{}, "", registry.Blob{Digest: layer, Size: 1,
		Path: "/blobs/" + string(a.by)})
	must(t, err)
	m := registry.Manifest{Digest: digest(string(body)), MediaType: registry.ImageManifests[0], Subject: subject,
		ArtifactType: "application/spdx+json", Size: int64(len(body)), Body: body, Needs: []registry.Need{{Digest: layer}}}
	var tags []string
	if a.tag != "" {
		tags = []string{a.tag}
	}
	_, err = g.PutManifest(ctx, ref, m, tags)
	must(t, err)
	return m.Digest
}

// pushIndex pushes an index with an image and an attestation about it.
func (g *game) pushIndex(t *testing.T, repo registry.Repo, image, attestation string) string {
	t.Helper()
	const kind = "application/vnd.oci.image.index.v1+json"
	body, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": kind, "manifests": []any{
		map[string]any{"mediaType": registry.ImageManifests[0], "digest": image, "size": 1},
		map[string]any{"mediaType": registry.ImageManifests[0], "digest": attestation, "size": 1,
			"annotations": map[string]string{"vnd.docker.reference.digest": image}},
	}})
	must(t, err)
	m := registry.Manifest{Digest: digest(string(body)), MediaType: kind, Size: int64(len(body)), Body: body,
		Needs: []registry.Need{{Digest: image, Manifest: true}, {Digest: attestation,
			Manifest: true}}, About: []string{image}}
	_, err = g.PutManifest(t.Context(), registrydb.RepoRef{Group: repo.UID.Parent(), Name: repo.Name}, m, nil)
	must(t, err)
	return m.Digest
}

// detachOne removes an attachment by deleting its manifest, its tag or its index.
func (g *game) detachOne(t *testing.T) {
	t.Helper()
	for _, repo := range slices.Sorted(maps.Keys(g.attached)) {
		for _, image := range slices.Sorted(maps.Keys(g.attached[repo])) {
			attachments := g.attached[repo][image]
			if len(attachments) == 0 || g.rng.IntN(2) == 0 {
				continue
			}
			i := g.rng.IntN(len(attachments))
			switch a := attachments[i]; {
			case a.index != "":
				must(t, g.DeleteManifest(t.Context(), repo, a.index, nil))
			case a.tag != "" && g.rng.IntN(2) == 0:
				must(t, g.DeleteTagNamed(t.Context(), repo, a.tag, nil))
			default:
				err := g.DeleteManifest(t.Context(), repo, a.digest, nil)
				if !errors.Is(err, fault.NotFound) { // it may already be deleted, because its tag was moved
					must(t, err)
				}
			}
			g.attached[repo][image] = slices.Delete(attachments, i, i+1)
			return
		}
	}
}

// TestClaimsOfOthers checks a caller who pushes the manifest of another organization's image without its layers, and
// attaches an SBOM. The caller must get the packages in the SBOM, and learn nothing about the packages in the image,
// even after the image was read again.
func TestClaimsOfOthers(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGame(t, url)
		now := time.Now().UTC().Truncate(time.Millisecond)
		var repos []registry.Repo
		for i := range 2 {
			repos = append(repos, registry.Repo{UID: g.groups[i].NewChild(), Name: "app", CreateTime: now, UpdateTime: now})
			must(t, g.InsertRepo(t.Context(), repos[i]))
		}
		d := push(t, g.Store, repos[0], "a0")
		stolen, err := g.Manifest(t.Context(), repos[0].UID, d)
		must(t, err)
		stolen.ArtifactType, stolen.Needs = registry.ImageConfigs[0], []registry.Need{{Digest: digest("a0"), Optional: true}}
		_, err = g.PutManifest(t.Context(), registrydb.RepoRef{Group: repos[1].UID.Parent(), Name: "app"}, stolen, nil)
		must(t, err)
		g.attach(t, repos[1], attachment{by: resource.NewRoot()}, d, "s1")
		thief := authz.WithCaller(t.Context(), g.callers["owner of b"])
		for range 2 {
			g.settle(t)
			got, _, err := g.service.ListPackages(thief, finding.Image{Repo: repos[1].UID, Reference: d}, page.Params{Size: 100})
			must(t, err)
			for _, p := range got.Items {
				if len(p.Origins) != 1 || p.Origins[0].Manifest == "" || !strings.Contains(p.PURL, "by=sbom") &&
					!strings.Contains(p.PURL, "upstream=") {
					t.Errorf("the thief sees %+v", p)
				}
			}
			for _, p := range contents("a0", g.extractors) {
				if p.SourceName != "" || slices.ContainsFunc(claimed("s1"),
					func(c inspect.Package) bool { return nameVersion(c) == nameVersion(p) }) {
					continue
				}
				found, err := g.service.Search(thief, "pkg:npm/"+p.Name+"@"+p.Version, "", query.Place{}, page.Params{})
				must(t, err)
				if found.Total != 0 {
					t.Errorf("the thief finds %s", p.Purl)
				}
			}
			g.extractors++
			g.restart(t, url)
		}
	})
}

// TestReadAgain checks that the packages that SBOMs list stay listed when a newer version of the extractors finds other
// packages in an image. If the image can no longer be read, they must be its only packages.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		org := resource.Group{UID: resource.NewRoot(), Name: "org", CreateTime: time.Now().UTC(),
			UpdateTime: time.Now().UTC()}
		_, err := s.InsertGroup(t.Context(), org)
		must(t, err)
		repo := registry.Repo{UID: org.UID.NewChild(), Name: "app", CreateTime: time.Now().UTC(),
			UpdateTime: time.Now().UTC()}
		must(t, s.InsertRepo(t.Context(), repo))
		d := push(t, s, repo, "a0")
		ids, err := s.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "both"},
			{Ecosystem: "npm", Name: "before"},
			{Ecosystem: "npm", Name: "claimed"}})
		must(t, err)
		slices.Sort(ids)
		q, _, err := s.ReserveImage(t.Context(), nil, time.Minute)
		must(t, err)
		having := func(what string, want ...int) {
			t.Helper()
			for i, id := range ids {
				got, err := s.Having(t.Context(), []resource.UID{repo.UID}, []int64{id})
				must(t, err)
				if len(got) != want[i] {
					t.Errorf("%s: %d images have package %d, want %d", what, len(got), i, want[i])
				}
			}
		}
		must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			images, packages := imagedb.In(tx), findingdb.In(tx)
			n, err := images.NumberImage(t.Context(), q)
			must(t, err)
			_, _, err = packages.SaveSBOMs(t.Context(), repo.UID, d,
				[]registry.SBOM{{Origin: registry.Origin{Manifest: digest("sbom")}, IDs: []int64{ids[0], ids[2]}}})
			must(t, err)
			return packages.ChangeImages(t.Context(), []int64{n}, ids, nil)
		}))
		having("at first", 1, 1, 1)
		must(t, s.Write(t.Context(), func(tx *store.Tx) error {
			images, packages := imagedb.In(tx), findingdb.In(tx)
			n, err := images.NumberImage(t.Context(), q)
			must(t, err)
			// The files no longer contain these packages.
			return packages.TakePackages(t.Context(), d, []int64{n}, ids[:2])
		}))
		having("after it was read again", 1, 0, 1)
	})
}

// TestAttachAtOnce runs three replicas that read images and SBOMs. At the same time clients push, attach, detach and
// delete in repos with the same images, and the images of an organization are read again. It checks that each repo
// finally has the result of its own actions.
func TestAttachAtOnce(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	g := newGame(t, url)
	const players = 4
	now := time.Now().UTC().Truncate(time.Millisecond)
	games := make([]*game, players)
	for i := range games {
		repo := registry.Repo{UID: g.groups[i%2].NewChild(), Name: fmt.Sprintf("at-once-%d", i), CreateTime: now,
			UpdateTime: now}
		must(t, g.InsertRepo(t.Context(), repo))
		one := *g
		one.rng = mathrand.New(mathrand.NewPCG(3, uint64(i)))
		one.named = map[resource.UID]registry.Repo{repo.UID: repo}
		one.repos = map[resource.UID]map[string]string{repo.UID: {}}
		one.attached = map[resource.UID]map[string][]attachment{}
		games[i] = &one
	}
	for range 3 {
		ctx, stop := context.WithCancel(t.Context())
		var readers, clients sync.WaitGroup
		for _, r := range g.replicas {
			readers.Go(func() { _ = r.indexer.Run(ctx) })
		}
		for i, one := range games {
			one.replica = g.replicas[i%len(g.replicas)]
			clients.Go(func() {
				for range 25 {
					one.play(t)
				}
			})
		}
		clients.Wait()
		stop()
		readers.Wait()
		g.extractors++
		g.restart(t, url)
	}
	for _, one := range games {
		maps.Copy(g.named, one.named)
		maps.Copy(g.repos, one.repos)
		maps.Copy(g.attached, one.attached)
	}
	for range 10 {
		g.importOne(t)
	}
	g.settle(t)
	g.check(t)
}

// play performs one random action in the only repo of a game.
func (g *game) play(t *testing.T) {
	for _, repo := range g.named {
		switch n := g.rng.IntN(8); {
		case n < 3:
			word := fmt.Sprintf("%c%d", 'a'+g.rng.IntN(4), g.rng.IntN(2))
			g.repos[repo.UID][push(t, g.Store, repo, word)] = word
		case n < 6:
			g.attachOne(t)
		case n == 6:
			g.detachOne(t)
		default:
			images := slices.Sorted(maps.Keys(g.repos[repo.UID]))
			if len(images) == 0 {
				continue
			}
			if err := g.DeleteManifest(t.Context(), repo.UID, images[0], nil); err == nil {
				delete(g.repos[repo.UID], images[0])
			} else if !errors.Is(err, fault.FailedPrecondition) { // an index lists the image
				t.Error(err)
			}
		}
	}
}
