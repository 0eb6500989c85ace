package query_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
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
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/blast"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/indexer"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/inventory"
	"github.com/holdfast-dev/holdfast/internal/vuln/match"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
	"github.com/holdfast-dev/holdfast/internal/vuln/trend"
)

var rounds = flag.Int("rounds", 2, "number of `rounds` of TestFindings on each engine")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A model is the expected state of the service, in memory.
type model struct {
	repos      map[resource.UID]map[string]string // word that determines an image's packages, by repo and digest
	advisories map[resource.UID]vuln.Advisory
	extractors int
	attached   map[resource.UID]map[string][]attachment // attachments by repo and image, the latest first
}

// contents returns the packages of the image that is made from a word. The result depends on the version of the
// extractors.
func contents(word string, extractors int) (packages []inspect.Package) {
	rng := mathrand.New(mathrand.NewPCG(uint64(extractors),
		uint64(len(word))<<32|uint64(word[0])<<8|uint64(word[len(word)-1])))
	for range 2 + rng.IntN(8) {
		name, v := fmt.Sprintf("p%d", rng.IntN(6)), fmt.Sprintf("1.%d.0", rng.IntN(5))
		p := inspect.Package{Ecosystem: "npm", Name: name, Version: v, Purl: "pkg:npm/" + name + "@" + v,
			Location: "/app/" + name}
		switch rng.IntN(4) {
		case 0: // a distribution's package, which is built from a source package
			p = inspect.Package{Name: "lib" + name, Version: v, Location: "/var/lib/dpkg/status", SourceName: name,
				SourceVersion: v,
				Purl:          "pkg:deb/debian/lib" + name + "@" + v + "?distro=debian-12"}
		case 1:
			p.Owner = "pkg:deb/debian/node@1"
		}
		packages = append(packages, p)
	}
	return packages
}

// A replica is the part of a server process that handles findings.
type replica struct {
	*storetest.Store
	service *query.Service
	policy  *policy.Service
	places  *inventory.Service
	indexer *indexer.Indexer
	matcher *match.Matcher
	checker *authz.Checker
	blast   *blast.Service
	trends  *trend.Service
	reports *report.Service
	limiter *finding.Limiter
}

func newReplica(t testing.TB, url string, extractors func() int) *replica {
	t.Helper()
	db, err := store.Open(t.Context(), url)
	must(t, err)
	s := storetest.Combine(db)
	quiet := slog.New(slog.DiscardHandler)
	must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
	checker, err := authz.Load(t.Context(), s.DB, quiet)
	must(t, err)
	issuer, err := token.New(t.Context(), s.DB, token.Config{Issuer: "http://issuer.test", Key: sealKey})
	must(t, err)
	images := assembly.New(s.DB, checker, issuer, blob.NewFolder(t.TempDir()), assembly.Config{})
	tokens := page.NewTokens([]byte("key"), time.Now)
	r := &replica{Store: s, checker: checker}
	packages, manifests, advisories := findingdb.New(db), registrydb.New(db), advisorydb.New(db)
	repos, limiter := images.Metadata(tokens), finding.NewLimiter(s.DB)
	r.limiter = limiter
	r.service = query.NewService(packages, manifests, advisories, repos, checker, tokens, limiter)
	r.policy = policy.NewService(packages, manifests, advisories, repos, checker, tokens, limiter)
	r.places = inventory.NewService(packages, manifests, checker, tokens)
	people := iam.New(s.DB, checker, tokens, iam.Config{Key: sealKey})
	r.blast = blast.NewService(r.service, packages, manifests, repos, people, checker, tokens, 90*24*time.Hour)
	r.reports = report.NewService(r.service, packages, repos, people, checker, tokens)
	r.trends = trend.NewService(packages, r.service, checker, quiet)
	r.matcher = match.New(packages, advisories, quiet)
	r.matcher.Pairs = 3 // so small that every comparison takes several turns
	r.indexer = indexer.New(imagedb.New(db), packages, images.Images, indexer.Config{
		Version: extractors(), Log: quiet,
		Read: func(_ context.Context, _ string, layers []inspect.Layer) (inspect.Result, error) {
			word, _ := words.Load(layers[0].Digest)
			return inspect.Result{Packages: contents(word.(string), extractors())}, nil
		},
		ReadSBOM: readClaim,
	})
	return r
}

var sealKey = secret.NewKey()

// words maps digests to the words from which the layers with these digests were made.
var words sync.Map

func digest(word string) string {
	d := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(word)))
	words.Store(d, word)
	return d
}

// bodyOf returns the manifest of the image that is made from a word.
func bodyOf(word string) []byte {
	return fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": %q, "config": {"mediaType": %q, "digest": %q, "size": 2},
		"layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": %q, "size": 1}]}`,
		registry.ImageManifests[0], registry.ImageConfigs[0], digest("config"), digest(word))
}

// push pushes the image that is made from a word, and returns its digest.
func push(t *testing.T, s *storetest.Store, repo registry.Repo, word string) string {
	t.Helper()
	layer, body := digest(word), bodyOf(word)
	ref := registrydb.RepoRef{Group: repo.UID.Parent(), Name: repo.Name}
	_, err := s.AddBlob(t.Context(), ref, registry.Upload{}, "",
		registry.Blob{Digest: layer, Size: 1, Path: "/blobs/" + rand.Text()})
	must(t, err)
	m := registry.Manifest{Digest: digest(string(body)), MediaType: registry.ImageManifests[0],
		ArtifactType: registry.ImageConfigs[0], Size: int64(len(body)), Body: body, Needs: []registry.Need{{Digest: layer}}}
	_, err = s.PutManifest(t.Context(), ref, m, []string{"v-" + word})
	must(t, err)
	return m.Digest
}

// A game performs random actions, as people and programs do, and compares the answers of the service with answers that
// it computes from its model.
type game struct {
	*replica
	model
	rng      *mathrand.Rand
	replicas []*replica
	started  bool // whether the replicas were just started, and have not called Sweep yet
	groups   []resource.UID
	callers  map[string]authz.Caller
	sees     map[string][]resource.UID // groups in which a caller has all roles
	named    map[resource.UID]registry.Repo
	extra    tagsAndGroups
	plain    bool // if set, the game only pushes images and imports advisories without aliases
}

// TestFindings performs random pushes, deletions, imports, changes and withdrawals on several replicas, and changes the
// version of the extractors. It checks that each caller gets exactly the findings that follow from the images and
// advisories that the caller may see.
func TestFindings(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		g := newGame(t, url)
		for round := range *rounds {
			for range 30 {
				g.act(t)
			}
			if round == *rounds/2 {
				g.extractors++
				g.restart(t, url)
			}
			g.settle(t)
			g.check(t)
		}
	})
}

func newGame(t *testing.T, url string) *game {
	t.Helper()
	g := &game{rng: mathrand.New(mathrand.NewPCG(1, 2)), callers: map[string]authz.Caller{},
		sees:  map[string][]resource.UID{},
		named: map[resource.UID]registry.Repo{},
		model: model{repos: map[resource.UID]map[string]string{}, advisories: map[resource.UID]vuln.Advisory{}, extractors: 1,
			attached: map[resource.UID]map[string][]attachment{}}}
	g.restart(t, url)
	t.Cleanup(func() {
		for _, r := range g.replicas {
			must(t, r.Close())
		}
	})
	now := time.Now().UTC().Truncate(time.Millisecond)
	add := func(parent resource.UID, name string) resource.UID {
		uid := resource.NewRoot()
		if parent != "" {
			uid = parent.NewChild()
		}
		_, err := g.InsertGroup(t.Context(), resource.Group{UID: uid, Name: name, CreateTime: now, UpdateTime: now})
		must(t, err)
		g.groups = append(g.groups, uid)
		return uid
	}
	a, b, c := add("", "a"), add("", "b"), add("", "c")
	folder := add(a, "folder")
	deep := add(folder, "deep")
	for name, groups := range map[string][]resource.UID{
		"owner of a": {a}, "owner of b": {b}, "owner of c": {c}, "of both": {a, b}, "of all": {a, b, c},
		"of a folder": {folder}, "of a folder below": {deep}, "of b and a folder of a": {b, deep}, "of nothing": nil,
	} {
		identity := resource.NewRoot()
		for _, group := range groups {
			_, err := g.InsertBindings(t.Context(), []resource.RoleBinding{{UID: group.NewChild(), Identity: identity,
				Role: resource.OwnerRole, CreateTime: now}})
			must(t, err)
		}
		g.callers[name], g.sees[name] = authz.Caller{Identity: identity}, groups
	}
	return g
}

// restart stops the replicas and starts new ones. It starts one replica on SQLite, and three on PostgreSQL.
func (g *game) restart(t *testing.T, url string) {
	t.Helper()
	for _, r := range g.replicas {
		must(t, r.Close())
	}
	n := 1
	if strings.HasPrefix(url, "postgres") {
		n = 3
	}
	g.replicas, g.started = nil, true
	for range n {
		g.replicas = append(g.replicas, newReplica(t, url, func() int { return g.extractors }))
	}
	g.replica = g.replicas[0]
}

// act performs one random action.
func (g *game) act(t *testing.T) {
	t.Helper()
	if !g.plain && g.rng.IntN(3) == 0 && g.actMore(t) {
		return
	}
	switch n := g.rng.IntN(14); {
	case g.plain && n >= 4 && n != 8:
		g.importOne(t)
	case n < 4 || len(g.named) == 0:
		g.pushOne(t)
	case n == 4:
		g.deleteOne(t)
	case n < 8:
		g.importOne(t)
	case n == 8:
		g.retract(t)
	case n < 12:
		g.attachOne(t)
	case n == 12:
		g.detachOne(t)
	default: // a replica does a part of its work between two actions
		_, _ = g.matcher.Match(t.Context())
	}
}

func (g *game) pushOne(t *testing.T) {
	t.Helper()
	group := g.groups[g.rng.IntN(len(g.groups))]
	name := fmt.Sprintf("r%d", g.rng.IntN(2))
	var repo registry.Repo
	for _, r := range g.named {
		if r.UID.Parent() == group && r.Name == name {
			repo = r
		}
	}
	if repo.UID == "" {
		repo = registry.Repo{UID: group.NewChild(), Name: name, CreateTime: time.Now().UTC(), UpdateTime: time.Now().UTC()}
		must(t, g.InsertRepo(t.Context(), repo))
		g.named[repo.UID], g.repos[repo.UID] = repo, map[string]string{}
	}
	word := fmt.Sprintf("%c%d", 'a'+g.rng.IntN(20), g.rng.IntN(3))
	d := push(t, g.Store, repo, word)
	g.repos[repo.UID][d] = word
	delete(g.extra.untagged, string(repo.UID)+d) // the push has tagged the image again
}

func (g *game) deleteOne(t *testing.T) {
	t.Helper()
	repos := slices.Sorted(maps.Keys(g.repos))
	repo := repos[g.rng.IntN(len(repos))]
	if g.rng.IntN(3) == 0 {
		must(t, g.DeleteRepo(t.Context(), repo))
		delete(g.repos, repo)
		delete(g.named, repo)
		delete(g.attached, repo)
		return
	}
	for _, d := range slices.Sorted(maps.Keys(g.repos[repo])) {
		err := g.DeleteManifest(t.Context(), repo, d, nil)
		if errors.Is(err, fault.FailedPrecondition) { // an index lists the image
			continue
		}
		must(t, err)
		delete(g.repos[repo], d)
		g.untag(repo, d)
		return
	}
}

// importOne imports an advisory, which may be new or a new version of a stored one.
func (g *game) importOne(t *testing.T) {
	t.Helper()
	group := g.groups[g.rng.IntN(len(g.groups))]
	id := fmt.Sprintf("%s-%d", []string{"CVE", "GHSA", "GO"}[g.rng.IntN(3)], g.rng.IntN(2))
	ecosystem := []string{"npm", "Debian:12", "Debian", "Debian:11"}[g.rng.IntN(4)]
	a := vuln.Advisory{ID: id, Affected: []vuln.Affected{{Ecosystem: ecosystem, Name: fmt.Sprintf("p%d", g.rng.IntN(6)),
		Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{
			{Introduced: fmt.Sprintf("1.%d.0", g.rng.IntN(3))}, {Fixed: fmt.Sprintf("1.%d.0", 3+g.rng.IntN(2))}}}}}}}
	if g.rng.IntN(2) == 0 && !g.plain {
		a.Aliases = []string{fmt.Sprintf("CVE-%d", g.rng.IntN(4))}
	}
	a.Source.Digest = []byte(rand.Text())
	_, err := g.ImportAdvisories(t.Context(), group, "test", []vuln.Advisory{a})
	must(t, err)
	g.relearn(t, group, id)
}

// relearn reads an advisory from the store, and records it in the model.
func (g *game) relearn(t *testing.T, group resource.UID, id string) {
	t.Helper()
	for uid, have := range g.advisories {
		if have.ID == id && uid.Parent() == group {
			stored, err := g.Advisory(t.Context(), uid)
			must(t, err)
			g.advisories[uid] = stored
			return
		}
	}
	found, err := g.Advisories(t.Context(), store.Reach{Under: []resource.UID{group}},
		vuln.AdvisoryFilter{IDs: []string{id}},
		page.Request{Size: 10, Order: page.Order{Field: "uid"}}, true)
	must(t, err)
	for _, v := range found.Items {
		if v.UID.Parent() == group {
			g.advisories[v.UID] = v
		}
	}
}

func (g *game) retract(t *testing.T) {
	t.Helper()
	for _, uid := range slices.Sorted(maps.Keys(g.advisories)) {
		must(t, g.DeleteAdvisory(t.Context(), uid))
		delete(g.advisories, uid)
		return
	}
}

// settle runs the indexers and matchers of all replicas until their queues are empty.
func (g *game) settle(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, r := range g.replicas {
		if g.started {
			must(t, r.indexer.Sweep(ctx))
		}
		running.Go(func() { _ = r.indexer.Run(ctx) })
		running.Go(func() { _ = r.matcher.Run(ctx) })
	}
	g.started = false // later work does not depend on Sweep
	defer running.Wait()
	defer stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		waiting, err := g.QueueLength(t.Context())
		must(t, err)
		unread, err := g.SBOMQueueLength(t.Context())
		must(t, err)
		fresh, err := g.Unmatched(t.Context(), 1)
		must(t, err)
		changes, err := g.NextChanges(t.Context(), 0, 1)
		must(t, err)
		if waiting+unread == 0 && len(fresh) == 0 && len(changes.Advisories) == 0 {
			return
		}
	}
	t.Fatal("the queues are not empty after a minute")
}

// expected returns the findings of an image for the advisories that a caller may see, according to the model. Each is a
// pair of a package URL and the ID of an advisory.
func (g *game) expected(repo resource.UID, d, word string, sees []resource.UID) (pairs []string) {
	for _, p := range g.has(repo, d, word) {
		for uid, a := range g.advisories {
			if covered(sees, uid) && affects(a, p) {
				pairs = append(pairs, p.Purl+" "+a.ID)
			}
		}
	}
	slices.Sort(pairs)
	return slices.Compact(pairs)
}

func covered(sees []resource.UID, uid resource.UID) bool {
	return slices.ContainsFunc(sees, func(g resource.UID) bool { return g.Covers(uid) })
}

// affects is an independent implementation of whether an advisory of this test affects
// a package.
func affects(a vuln.Advisory, p inspect.Package) bool {
	if p.Owner != "" || !a.DeleteTime.IsZero() {
		return false
	}
	ecosystem, name := "npm", p.Name
	if p.SourceName != "" {
		ecosystem, name = "Debian:12", p.SourceName
	}
	v := a.Affected[0]
	if v.Name != name || v.Ecosystem != ecosystem && (v.Ecosystem != "Debian" || ecosystem != "Debian:12") {
		return false
	}
	events := v.Ranges[0].Events // versions can be compared as strings, because their numbers have one digit
	return p.Version >= events[0].Introduced && p.Version < events[1].Fixed
}

// check compares all answers, for every caller, with the model.
func (g *game) check(t *testing.T) {
	t.Helper()
	for name, caller := range g.callers {
		r := g.replicas[g.rng.IntN(len(g.replicas))]
		ctx := authz.WithCaller(t.Context(), caller)
		g.checkImages(ctx, t, r, name)
		g.checkAffected(ctx, t, r, name)
		g.checkSearch(ctx, t, r, name)
	}
}

func (g *game) checkImages(ctx context.Context, t *testing.T, r *replica, name string) {
	t.Helper()
	for repo, images := range g.repos {
		for d, word := range images {
			got, err := readAll(func(p page.Params) (page.Page[finding.Finding], error) {
				found, _, err := r.service.List(ctx, finding.Image{Repo: repo, Reference: d}, query.Filter{}, p)
				return found, err
			})
			if !covered(g.sees[name], repo) {
				if !errors.Is(err, fault.PermissionDenied) {
					t.Errorf("%s gets the error %v for an image in another group", name, err)
				}
				continue
			}
			must(t, err)
			var pairs []string
			for _, f := range got {
				for _, uid := range f.Advisories {
					pairs = append(pairs, f.Package.PURL+" "+g.advisories[uid].ID)
				}
				g.checkNames(t, f)
				g.checkOrigins(t, repo, d, word, f.Package)
			}
			slices.Sort(pairs)
			if diff := gocmp.Diff(g.expected(repo, d, word, g.sees[name]), slices.Compact(pairs),
				cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("the findings of %s for %s: %s", word, name, diff)
			}
		}
	}
}

// checkNames checks that a finding has all names of its advisories.
func (g *game) checkNames(t *testing.T, f finding.Finding) {
	t.Helper()
	var want []string
	for _, uid := range f.Advisories {
		want = append(append(want, g.advisories[uid].ID), g.advisories[uid].Aliases...)
	}
	slices.Sort(want)
	got := append([]string{f.ID}, f.Aliases...)
	slices.Sort(got)
	if diff := gocmp.Diff(slices.Compact(want), got); diff != "" {
		t.Fatal(diff)
	}
}

func (g *game) checkAffected(ctx context.Context, t *testing.T, r *replica, name string) {
	t.Helper()
	for n := range 4 {
		id := fmt.Sprintf("CVE-%d", n)
		called := g.called(id, g.sees[name])
		var want []string
		for repo, images := range g.repos {
			for d, word := range images {
				if covered(g.sees[name], repo) && slices.ContainsFunc(g.has(repo, d, word), func(p inspect.Package) bool {
					return slices.ContainsFunc(called, func(a vuln.Advisory) bool { return affects(a, p) })
				}) {
					want = append(want, string(repo)+" "+d+" "+g.tagsOf(repo, d, word))
				}
			}
		}
		got, err := readAll(func(p page.Params) (page.Page[query.AffectedImage], error) {
			got, c, err := r.service.AffectedImages(ctx, id, query.Place{}, p)
			if err == nil {
				g.checkAnswer(t, name, c)
			}
			return got, err
		})
		if want := unanswerable(called); want != nil {
			if !errors.Is(err, want) {
				t.Fatalf("%s lists images affected by %s: %v, want %v", name, id, err, want)
			}
			continue
		}
		must(t, err)
		compareImages(t, name+" lists images affected by "+id, want, got)
	}
}

// checkAnswer checks the counts of images in the coverage of an answer about all images that a caller may see.
func (g *game) checkAnswer(t *testing.T, name string, c query.AnswerCoverage) {
	t.Helper()
	images := 0
	for repo, pushed := range g.repos {
		if covered(g.sees[name], repo) {
			images += len(pushed)
		}
	}
	if c.Images != images || c.Indexed != images || (c.Extent == query.ExtentNothing) != (c.Packages.Covered == 0) {
		t.Errorf("the coverage of %s is %+v, but there are %d images", name, c, images)
	}
}

// unanswerable returns the error for a question about advisories, if no answer can be given: nothing is known about an
// unknown name, and about advisories that are all withdrawn.
func unanswerable(called []vuln.Advisory) error {
	valid := slices.ContainsFunc(called, func(a vuln.Advisory) bool { return a.DeleteTime.IsZero() })
	switch {
	case len(called) == 0:
		return fault.NotFound
	case !valid:
		return fault.FailedPrecondition
	}
	return nil
}

// called returns the advisories that have a name, and the advisories that share a name with one of these.
func (g *game) called(id string, sees []resource.UID) []vuln.Advisory {
	names := []string{id}
	for range 2 {
		var connected []string
		for uid, a := range g.advisories {
			called := append([]string{a.ID}, a.Aliases...)
			if covered(sees, uid) && slices.ContainsFunc(called, func(s string) bool { return slices.Contains(names, s) }) {
				connected = append(connected, called...)
			}
		}
		if names[0] == id && len(names) == 1 {
			names = append(names, connected...)
		}
	}
	var found []vuln.Advisory
	for uid, a := range g.advisories {
		called := append([]string{a.ID}, a.Aliases...)
		if covered(sees, uid) && slices.ContainsFunc(called, func(s string) bool { return slices.Contains(names, s) }) {
			found = append(found, a)
		}
	}
	return found
}

func (g *game) checkSearch(ctx context.Context, t *testing.T, r *replica, name string) {
	t.Helper()
	for n := range 6 {
		var want []string
		for repo, images := range g.repos {
			for d, word := range images {
				if covered(g.sees[name], repo) && slices.ContainsFunc(g.has(repo, d, word), func(p inspect.Package) bool {
					return p.SourceName == "" && p.Name == fmt.Sprintf("p%d", n) && p.Version < "1.3.0"
				}) {
					want = append(want, string(repo)+" "+d+" "+g.tagsOf(repo, d, word))
				}
			}
		}
		got, err := readAll(func(p page.Params) (page.Page[query.AffectedImage], error) {
			return r.service.Search(ctx, fmt.Sprintf("pkg:npm/p%d", n), "<1.3.0", query.Place{}, p)
		})
		must(t, err)
		compareImages(t, fmt.Sprintf("%s searches for p%d", name, n), want, got)
	}
}

func compareImages(t *testing.T, what string, want []string, got []query.AffectedImage) {
	t.Helper()
	var texts []string
	for _, i := range got {
		texts = append(texts, string(i.Repo)+" "+i.Digest+" "+strings.Join(i.Tags, ","))
	}
	slices.Sort(want)
	slices.Sort(texts)
	if diff := gocmp.Diff(want, texts, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: %s", what, diff)
	}
}

// readAll reads all pages, with three items each, and checks the total of the last page.
func readAll[T any](read func(page.Params) (page.Page[T], error)) (items []T, _ error) {
	for p := (page.Params{Size: 3}); ; {
		got, err := read(p)
		if err != nil {
			return nil, err
		}
		items = append(items, got.Items...)
		if got.Next == "" {
			if int(got.Total) != len(items) {
				return nil, fmt.Errorf("the total is %d, but there are %d items", got.Total, len(items))
			}
			return items, nil
		}
		p.Token = got.Next
	}
}

// TestLayersOfOthers checks that a caller does not learn which packages are in another organization's image by pushing
// its manifest without its layers. This is possible if the layers have a non-distributable media type.
func TestLayersOfOthers(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGame(t, url)
		now := time.Now().UTC().Truncate(time.Millisecond)
		repos := map[string]registry.Repo{}
		for i, name := range []string{"theirs", "thief's"} {
			repos[name] = registry.Repo{UID: g.groups[i].NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
			must(t, g.InsertRepo(t.Context(), repos[name]))
		}
		d := push(t, g.Store, repos["theirs"], "a0")
		stolen, err := g.Manifest(t.Context(), repos["theirs"].UID, d)
		must(t, err)
		stolen.ArtifactType, stolen.Needs = registry.ImageConfigs[0], []registry.Need{{Digest: digest("a0"), Optional: true}}
		thief := repos["thief's"]
		_, err = g.PutManifest(t.Context(), registrydb.RepoRef{Group: thief.UID.Parent(), Name: thief.Name}, stolen, nil)
		must(t, err)
		g.settle(t)
		for who, want := range map[string]struct {
			repo  resource.UID
			state registry.ImageState
		}{
			"owner of a": {repos["theirs"].UID, registry.ImageIndexed}, "owner of b": {thief.UID, registry.ImageNotUnderstood},
		} {
			k, err := g.service.Inspect(authz.WithCaller(t.Context(), g.callers[who]),
				finding.Image{Repo: want.repo, Reference: d})
			must(t, err)
			if k.State != want.state {
				t.Errorf("%s: state %d, want %d", who, k.State, want.state)
			}
		}
	})
}
