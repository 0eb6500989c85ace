package query_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// An openImage is an image with open findings, and the group that contains the advisories of these findings.
type openImage struct {
	vuln.NewsImage
	advisoryOf resource.UID
}

// A listener reads the events about findings, and records which findings are open according to these events.
type listener struct {
	*game
	seq   int64
	open  map[openImage][][]string // names of the findings that were opened and not closed
	sums  int                      // number of events about several findings in several images
	pairs map[resource.UID]int     // number of open pairs of a finding and an image, by the advisories' group
}

func newListener(t *testing.T, url string) *listener {
	t.Helper()
	return &listener{game: newGame(t, url), open: map[openImage][][]string{}, pairs: map[resource.UID]int{}}
}

// listen reads the events that were written since the last call.
func (l *listener) listen(t *testing.T) {
	t.Helper()
	for {
		events, err := outbox.Read(t.Context(), l.DB, l.seq, 1000)
		must(t, err)
		for _, e := range events {
			l.seq = e.Seq
			if e.Type == resource.FindingOpened || e.Type == resource.FindingClosed {
				l.hear(t, e)
			}
		}
		if len(events) == 0 {
			return
		}
	}
}

func (l *listener) hear(t *testing.T, e resource.Event) {
	t.Helper()
	var n vuln.FindingNews
	must(t, json.Unmarshal(e.After, &n))
	if e.Subject != e.Group || !e.Group.Covers(n.Group) || !e.Group.Covers(n.AdvisoryGroup) {
		t.Fatalf("an event of %s about images in %s and advisories in %s, subject %s", e.Group, n.Group, n.AdvisoryGroup,
			e.Subject)
	}
	change := n.Pairs
	if e.Type == resource.FindingClosed {
		change = -change
	}
	l.pairs[n.AdvisoryGroup] += change
	if len(n.Findings) != min(n.FindingCount, 20) || len(n.Images) != min(n.ImageCount, 20) {
		t.Fatalf("an event about %d findings and %d images has %+v", n.FindingCount, n.ImageCount, n)
	}
	if n.FindingCount > 1 && n.ImageCount > 1 {
		l.sums++
	} else if n.Pairs != n.FindingCount*n.ImageCount {
		t.Fatalf("%d pairs of %d findings and %d images", n.Pairs, n.FindingCount, n.ImageCount)
	}
	if l.plain || n.FindingCount*n.ImageCount > 1 { // such an event does not list each pair
		return
	}
	f := n.Findings[0]
	image, names := openImage{n.Images[0], n.AdvisoryGroup}, append([]string{f.ID}, f.Aliases...)
	if e.Group != lowest(image.Repo.Parent(), n.AdvisoryGroup) {
		t.Fatalf("an event of %s about an image in %s and an advisory in %s", e.Group, image.Repo, n.AdvisoryGroup)
	}
	shares := func(called []string) bool {
		return slices.ContainsFunc(called, func(name string) bool { return slices.Contains(names, name) })
	}
	if e.Type == resource.FindingClosed {
		l.open[image] = slices.DeleteFunc(l.open[image], shares)
		return
	}
	if slices.ContainsFunc(l.open[image], shares) {
		t.Fatalf("%v of %v is opened twice", names, image)
	}
	l.open[image] = append(l.open[image], names)
}

func lowest(a, b resource.UID) resource.UID {
	for !a.Covers(b) {
		a = a.Parent()
	}
	return a
}

// forget removes the findings of deleted images from open.
func (l *listener) forget() {
	maps.DeleteFunc(l.open, func(i openImage, _ [][]string) bool { _, ok := l.repos[i.Repo][i.Digest]; return !ok })
}

// interrupt runs the indexers and matchers of all replicas for a short time, and then stops them.
func (l *listener) interrupt(t *testing.T, moment time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), moment)
	defer stop()
	var running sync.WaitGroup
	for _, r := range l.replicas {
		running.Go(func() { _ = r.indexer.Run(ctx) })
		running.Go(func() { _ = r.matcher.Run(ctx) })
	}
	running.Wait()
}

// await runs the replicas until events have announced all changes.
func (l *listener) await(t *testing.T) {
	t.Helper()
	l.settle(t)
	moment := time.Second
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		var n int
		must(t, l.Row(t.Context(), `SELECT count(*) FROM image_news`, nil, &n))
		if n == 0 {
			l.listen(t)
			return
		}
		l.interrupt(t, moment)
		moment *= 2 // a slow machine may finish nothing in a second
	}
	t.Fatal("changes are not announced after two minutes")
}

// sets returns the vulnerability of each name in a group, and the vulnerability of each advisory.
func (l *listener) sets(t *testing.T) (ofName map[[2]string]int64, ofAdvisory map[resource.UID]int64) {
	t.Helper()
	ofName, ofAdvisory = map[[2]string]int64{}, map[resource.UID]int64{}
	groups := map[int64]resource.UID{}
	must(t, l.Rows(t.Context(), `SELECT a.uid, v.vulnerability FROM matched_advisories AS a
		JOIN advisory_vulnerabilities AS v ON v.advisory = a.advisory`, nil,
		func(row store.Scanner) (bool, error) {
			var uid resource.UID
			var set int64
			err := row.Scan(&uid, &set)
			ofAdvisory[uid], groups[set] = set, uid.Parent()
			return false, err
		}))
	must(t, l.Rows(t.Context(), `SELECT name, vulnerability FROM vulnerability_names`, nil,
		func(row store.Scanner) (bool, error) {
			var name string
			var set int64
			err := row.Scan(&name, &set)
			ofName[[2]string{string(groups[set]), name}] = set
			return false, err
		}))
	return ofName, ofAdvisory
}

// compare compares the findings that are open according to the events with findings that it computes from the
// model.
func (l *listener) compare(t *testing.T) {
	t.Helper()
	ofName, ofAdvisory := l.sets(t)
	want, got := map[openImage][]int64{}, map[openImage][]int64{}
	pairs := map[resource.UID]int{}
	for repo, images := range l.repos {
		for d, word := range images {
			for uid, a := range l.advisories {
				if uid.Root() == repo.Root() && slices.ContainsFunc(l.has(repo, d, word),
					func(p inspect.Package) bool { return affects(a, p) }) {
					image := openImage{vuln.NewsImage{Repo: repo, Digest: d}, uid.Parent()}
					want[image] = append(want[image], ofAdvisory[uid])
				}
			}
		}
	}
	for image, findings := range l.open {
		for _, names := range findings {
			got[image] = append(got[image], ofName[[2]string{string(image.advisoryOf), names[0]}])
		}
	}
	for _, m := range []map[openImage][]int64{want, got} {
		for image := range m {
			slices.Sort(m[image])
			if m[image] = slices.Compact(m[image]); len(m[image]) == 0 {
				delete(m, image)
			}
		}
	}
	for image, sets := range want {
		pairs[image.advisoryOf] += len(sets)
	}
	maps.DeleteFunc(l.pairs, func(_ resource.UID, n int) bool { return n == 0 })
	if l.plain {
		if diff := gocmp.Diff(pairs, l.pairs, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the events do not add up to the number of open findings: %s", diff)
		}
		return
	}
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), gocmp.AllowUnexported(openImage{})); diff != "" {
		t.Fatalf("the events do not add up to the open findings: %s", diff)
	}
}

// TestEventsAddUp checks that the findings that events have opened and not closed are the open findings, after any
// actions, and whenever replicas are killed. If events are bundled, it compares only the numbers. Otherwise it compares
// the findings of each image.
func TestEventsAddUp(t *testing.T) {
	t.Parallel()
	for name, single := range map[string]int{"single": 1000, "bundled": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.EachURL(t, func(t *testing.T, url string) {
				l := newListener(t, url)
				l.plain = single == 1
				// A bundled event is rare. So the test repeats until it has seen one.
				for n := 0; n < *rounds || l.plain && l.sums == 0 && n < 5**rounds; n++ {
					for _, r := range l.replicas {
						r.matcher.Single = single
						if l.plain {
							r.matcher.Pairs = 1000 // makes one turn cover many pairs
						}
					}
					for range 25 {
						// There is an additional import, because act imports too rarely for advisories to share names.
						l.importOne(t)
						if l.act(t); l.rng.IntN(4) == 0 {
							l.interrupt(t, time.Duration(l.rng.IntN(100))*time.Millisecond)
						}
						l.listen(t)
						l.forget()
					}
					l.await(t)
					l.compare(t)
					l.restart(t, url)
				}
				if l.plain && l.sums == 0 {
					t.Error("no event was about many findings of many images")
				}
			})
		})
	}
}

// TestEventOfAnImport checks that an advisory that affects many images of a group causes one event. The event must
// belong to the lowest group that contains the advisory and the images. It must contain the owners, and the lowest
// version that fixes each package.
func TestEventOfAnImport(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		l := newListener(t, url)
		org, folder, deep := l.groups[0], l.groups[3], l.groups[4]
		now := time.Now().UTC()
		repo := registry.Repo{UID: folder.NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
		must(t, l.InsertRepo(t.Context(), repo))
		have := 0
		for _, r := range l.replicas {
			r.matcher.Pairs = 1000 // makes the matcher compare everything in one turn
		}
		for n := range 120 {
			word := fmt.Sprintf("%c%d", 'a'+n%20, n/20)
			push(t, l.Store, repo, word)
			if slices.ContainsFunc(contents(word, 1), func(p inspect.Package) bool {
				return p.Name == "p0" && p.Owner == "" && p.SourceName == ""
			}) {
				have++
			}
		}
		l.await(t)
		for in, eventGroup := range map[resource.UID]resource.UID{org: org, deep: folder} {
			ranges := func(introduced, fixed string) vuln.AffectedRange {
				return vuln.AffectedRange{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: introduced}, {Fixed: fixed}}}
			}
			a := vuln.Advisory{ID: "CVE-1", Aliases: []string{"GHSA-1"}, Affected: []vuln.Affected{{Ecosystem: "npm", Name: "p0",
				Ranges: []vuln.AffectedRange{ranges("0", "0.1.0"), ranges("2.0.0", "2.1.0"), ranges("0.2.0", "1.9.0")}}},
				Severities: []vuln.Severity{{Type: vuln.CVSSv3, Score: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}}}
			a.Source.Digest = []byte("1")
			_, err := l.ImportAdvisories(advisorydb.WithSource(t.Context(), "feed 1"), in, "test", []vuln.Advisory{a})
			must(t, err)
			got, events := l.opened(t)
			if len(got) != 1 {
				t.Fatalf("%d events, want 1: %+v", len(got), got[:min(1, len(got))])
			}
			n := got[0]
			if have <= 20 || n.ImageCount != have || len(n.Images) != 20 || n.FindingCount != 1 || n.Group != folder ||
				n.AdvisoryGroup != in || n.Source != "feed 1" || events[0].Group != eventGroup ||
				!slices.Equal(n.Owners, []resource.UID{l.callers["of a folder"].Identity}) {
				t.Errorf("in %s: %+v of %d images", events[0].Group, n, have)
			}
			f := n.Findings[0]
			if f.ID != "CVE-1" || !slices.Equal(f.Aliases, []string{"GHSA-1"}) || f.Score != 98 || len(f.Packages) == 0 {
				t.Errorf("the finding is %+v", f)
			}
			for _, p := range f.Packages {
				if p.Fixed != "1.9.0" {
					t.Errorf("%s %s is fixed in %q", p.Name, p.Version, p.Fixed)
				}
			}
		}
	})
}

// opened waits until events have announced all changes. It returns the findings that were opened since the last call,
// and their events.
func (l *listener) opened(t *testing.T) (opened []vuln.FindingNews, events []resource.Event) {
	t.Helper()
	before := l.seq
	l.await(t)
	got, err := outbox.Read(t.Context(), l.DB, before, 1000)
	must(t, err)
	for _, e := range got {
		if e.Type == resource.FindingOpened {
			var n vuln.FindingNews
			must(t, json.Unmarshal(e.After, &n))
			opened, events = append(opened, n), append(events, e)
		}
	}
	return opened, events
}

// TestEventsOfBackfill checks that no events are written about findings in images that a newer version of the
// extractors inspects again.
func TestEventsOfBackfill(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		l := newListener(t, url)
		l.plain = true
		for range 60 {
			l.act(t)
		}
		l.await(t)
		l.extractors++
		l.restart(t, url)
		if got, _ := l.opened(t); len(got) != 0 {
			t.Errorf("%d events about images that were read again: %+v", len(got), got[0])
		}
		for range 20 {
			l.importOne(t)
		}
		if got, _ := l.opened(t); len(got) == 0 {
			t.Error("no event about new findings")
		}
	})
}
