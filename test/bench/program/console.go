package program

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	consoleTurns  = 12
	consoleTarget = 0.150 // seconds from the click to the content, in addition to the time for an empty page
	navigations   = 1000
)

// Console measures in Chromium how long pages of the console take from a click to their content. It compares them
// with a page of the same server that loads no data. It also measures by how much a thousand page views increase the
// memory of the browser. The database has as many groups as the run has rows, a tenth as many repos and identities,
// and 1.3 times as many advisories.
func Console(ctx context.Context, m *rig.Measurement) {
	d := consoleData(ctx, m)
	p := m.StartHoldfastd(ctx, "", d.URL, "HOLDFAST_ENCRYPTION_KEY="+rig.EncryptionKey)
	w := openWindow(ctx, m, p)
	empty := w.median(func(i int) string { return fmt.Sprint("/nothing?turn=", i) }, "main h1")
	m.Below("console: an empty page", empty.Seconds(), 0, rig.Seconds)
	folders := d.Folders()
	inFolder := func(format string) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, folders[i%len(folders)]) }
	}
	const rows, items = "main tbody tr", "main li"
	for _, v := range []struct {
		name, shows string
		path        func(int) string
	}{
		{"tree: a level of a hundredth of the groups", `[role="treeitem"]`, inFolder("/tree?open=" + string(d.Org) + ".%s")},
		{"tree: a filter over all", rows, func(i int) string { return fmt.Sprintf("/tree?name=g-%02x", i+16) }},
		{"group: its folders", rows, inFolder("/groups/%s")},
		{"group: who has roles", rows, inFolder("/groups/%s?tab=people")},
		{"group: its repos", rows, inFolder("/groups/%s?tab=repos")},
		{"search", items, func(i int) string { return fmt.Sprintf("/search?q=g-%03x", i+256) }},
		{"repos: all", rows, func(i int) string {
			return fmt.Sprint("/repos?turn=", i, "&order=", []string{"name", "create_time"}[i%2])
		}},
		{"repos: of a folder", rows, inFolder("/repos?group=%s")},
		{"workloads: all", rows, func(i int) string { return fmt.Sprint("/workloads?turn=", i) }},
		{"access: who can", rows, inFolder("/access?capability=repo.create&place=%s")},
		{"advisories: first page", rows, func(i int) string {
			return fmt.Sprint("/vulnerabilities?tab=advisories&turn=", i)
		}},
		{"advisories: by package", rows, func(i int) string {
			return fmt.Sprintf("/vulnerabilities?tab=advisories&artifact=package-%d", i)
		}},
		{"audit", items, inFolder("/audit?group=%s")},
	} {
		took := w.median(v.path, v.shows+", main .empty")
		m.Below("console: "+v.name+", beyond an empty page", max(0, (took-empty).Seconds()), consoleTarget, rig.Seconds)
	}
	m.Below("console: bytes more after a thousand views", w.growth(inFolder("/groups/%s")), 3e6, rig.Megabytes)
}

// consoleData returns a database with content for every page of the console.
func consoleData(ctx context.Context, m *rig.Measurement) rig.Dataset {
	n := m.Bench.Rows
	name := fmt.Sprintf("console_%d", n)
	if url, found := m.Engine.Create(ctx, name); found {
		if org := rig.LoadedOrg(ctx, url); org != "" {
			return rig.Dataset{Tree: rig.Tree{Org: org, Groups: n}, URL: url, Identities: n / 10}
		}
	}
	d := m.Load(ctx, name, rig.Tree{Groups: n}, n/10, nil)
	count := rig.Counters{}
	m.Engine.Fill(ctx, d.URL, []rig.Table{repoTable(d.Tree, n/10).Counted(count)})
	db := m.Engine.Connect(d.URL, 1)
	count.Write(ctx, db)
	rig.Check(db.Close())
	importInto(ctx, m, d, n*13/10)
	return d
}

// repoTable returns the rows for n repos, distributed over the folders.
func repoTable(t rig.Tree, n int) rig.Table {
	columns := append(rig.KeyColumns[:6:6], "name", "description", "detail", "readme", "create_ms", "update_ms")
	return rig.Table{Name: "repos", Columns: columns, Rows: func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(5, uint64(n)))
		folders := t.Folders()
		for i := range n {
			uid, createMS := folders[i%len(folders)]+resource.UID(rig.RandomSegment(r)), int64(rig.Epoch+i)
			if !yield(append(rig.Keys(uid), fmt.Sprintf("repo-%08x", r.Uint32()), "", "{}", "", createMS, createMS)) {
				return
			}
		}
	}}
}

// importInto imports n advisories into the organization of a dataset.
func importInto(ctx context.Context, m *rig.Measurement, d rig.Dataset, n int) {
	db := rig.Must(store.Open(ctx, d.URL))
	defer db.Close()
	checker := rig.Must(authz.Load(ctx, db, slog.New(slog.DiscardHandler)))
	s := advisory.New(advisorydb.New(db), checker, page.NewTokens([]byte("bench"), time.Now), advisory.Config{})
	var identity string
	rig.Check(db.Row(ctx, `
		SELECT identity FROM role_bindings AS b, groups AS g WHERE b.parent = g.seg AND g.uid = $1 LIMIT 1`,
		[]any{string(d.Org)}, &identity))
	ctx = authz.WithCaller(ctx, authz.Caller{Identity: resource.UID(identity)})
	f, size := rig.OpenSized(m.Archive(n))
	defer func() { rig.Check(f.Close()) }()
	begin := time.Now()
	batch := rig.Must(s.NewImport(ctx, d.Org, "bench", nil))
	err := batch.Add(iter.Seq[format.Record](format.Read(ctx, "all.zip", f, size, format.Limits{})))
	_, closing := batch.Close()
	rig.Check(errors.Join(err, closing))
	m.Logf("imported %d advisories in %.0f s", n, time.Since(begin).Seconds())
}

// A window is a Chromium window that is signed in to the console.
type window struct {
	ctx context.Context
}

func openWindow(ctx context.Context, m *rig.Measurement, p *rig.Process) *window {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("js-flags", "--expose-gc"))
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	m.AtEnd(func() error { stop(); return nil })
	ctx, end := chromedp.NewContext(ctx)
	m.AtEnd(func() error { end(); return nil })
	rig.Check(chromedp.Run(ctx, chromedp.EmulateViewport(1280, 800),
		chromedp.Navigate(p.Address+"/signin?return="+url.QueryEscape("/console/")),
		chromedp.SendKeys(`#email`, p.Dev.OwnerEmail), chromedp.SendKeys(`#password`, p.Dev.OwnerPassword),
		chromedp.Submit(`#password`), chromedp.WaitVisible(`main h1`)))
	return &window{ctx}
}

// follow is a script that clicks a link to a page of the console, like a link in the navigation. It returns the time
// in milliseconds until the content of the page is shown.
const follow = `(path, shows) => new Promise((done, failed) => {
	const link = document.createElement("a");
	link.href = "/console" + path;
	document.body.append(link);
	const old = new Set(document.querySelectorAll(shows)), begin = performance.now();
	link.click();
	link.remove();
	const look = () => {
		const found = [...document.querySelectorAll(shows)]
			.some((e) => !old.has(e) || location.pathname + location.search !== look.was);
		if (found && !document.querySelector("main .waiting") && document.querySelector(shows)) {
			return done(performance.now() - begin);
		}
		if (performance.now() - begin > 20000) return failed(new Error("nothing is shown at " + path));
		requestAnimationFrame(look);
	};
	look.was = "";
	requestAnimationFrame(look);
})`

// visit opens a page of the console and returns the time until its content was shown.
func (w *window) visit(path, shows string) time.Duration {
	var took float64
	rig.Check(chromedp.Run(w.ctx, chromedp.Evaluate(fmt.Sprintf("(%s)(%q, %q)", follow, path, shows), &took,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })))
	return time.Duration(took * float64(time.Millisecond))
}

// median visits a page several times and returns the median of the times. Each visit has another path, because the
// console caches recent responses. The first visit loads the page's script and is not counted. An empty page is
// opened before each visit.
func (w *window) median(path func(int) string, shows string) time.Duration {
	var times []time.Duration
	for i := range consoleTurns + 1 {
		w.visit(fmt.Sprint("/confirmed?turn=", i), "main h1")
		took := w.visit(path(i), shows)
		if i > 0 {
			times = append(times, took)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// growth returns by how many bytes the memory of the page grows between the first hundred page views and the last.
func (w *window) growth(path func(int) string) float64 {
	var before, after float64
	used := func(into *float64) {
		time.Sleep(time.Minute) // responses are cached for a minute
		rig.Check(chromedp.Run(w.ctx, chromedp.Evaluate(`gc(), gc(), performance.memory.usedJSHeapSize`, into)))
	}
	for i := range 100 {
		w.visit(path(i), "main tbody tr, main .empty")
	}
	used(&before)
	for i := range navigations {
		w.visit(path(i), "main tbody tr, main .empty")
	}
	used(&after)
	return max(0, after-before)
}
