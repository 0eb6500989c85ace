package main

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
)

const (
	consoleTurns  = 12
	consoleTarget = 0.150 // seconds from the click to the content, beyond what an empty page takes
	navigations   = 1000
)

// consoleViews measures in Chromium how long views take from a click to their content, beside a
// page of the same server that asks for nothing, and what a thousand of them leave in memory.
// Behind them are as many groups as the run has rows, a tenth as many repos and identities, and
// 1.3 times as many advisories.
func consoleViews(ctx context.Context, m *measurement) {
	d := m.consoleData(ctx)
	p := m.holdfastd(ctx, "", d.url, "HOLDFAST_ENCRYPTION_KEY="+encryptionKey)
	w := m.window(ctx, p)
	empty := w.median(func(i int) string { return fmt.Sprint("/nothing?turn=", i) }, "main h1")
	m.under("console: an empty page", empty.Seconds(), 0, seconds)
	folders := d.folders()
	at := func(format string) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, folders[i%len(folders)]) }
	}
	const rows, items = "main tbody tr", "main li"
	for _, v := range []struct {
		name, shows string
		path        func(int) string
	}{
		{"tree: a level of a hundredth of the groups", `[role="treeitem"]`, at("/tree?open=" + string(d.org) + ".%s")},
		{"tree: a filter over all", rows, func(i int) string { return fmt.Sprintf("/tree?name=g-%02x", i+16) }},
		{"group: its folders", rows, at("/groups/%s")},
		{"group: who has roles", rows, at("/groups/%s?tab=people")},
		{"group: its repos", rows, at("/groups/%s?tab=repos")},
		{"search", items, func(i int) string { return fmt.Sprintf("/search?q=g-%03x", i+256) }},
		{"repos: all", rows, func(i int) string {
			return fmt.Sprint("/repos?turn=", i, "&order=", []string{"name", "create_time"}[i%2])
		}},
		{"repos: of a folder", rows, at("/repos?group=%s")},
		{"workloads: all", rows, func(i int) string { return fmt.Sprint("/workloads?turn=", i) }},
		{"access: who can", rows, at("/access?capability=repo.create&place=%s")},
		{"advisories: first page", rows, func(i int) string { return fmt.Sprint("/vulnerabilities?turn=", i) }},
		{"advisories: by package", rows, func(i int) string { return fmt.Sprintf("/vulnerabilities?package=package-%d", i) }},
		{"audit", items, at("/audit?group=%s")},
	} {
		took := w.median(v.path, v.shows+", main .empty")
		m.under("console: "+v.name+", beyond an empty page", max(0, (took-empty).Seconds()), consoleTarget, seconds)
	}
	m.under("console: bytes more after a thousand views", w.growth(at("/groups/%s")), 3e6, megabytes)
}

// consoleData returns a database with something behind every view.
func (m *measurement) consoleData(ctx context.Context) dataset {
	n := m.bench.rows
	name := fmt.Sprintf("console_%d", n)
	if url, found := m.engine.create(ctx, name); found {
		if org := loaded(ctx, url); org != "" {
			return dataset{tree: tree{org: org, groups: n}, url: url, identities: n / 10}
		}
	}
	d := m.load(ctx, name, tree{groups: n}, n/10, nil)
	count := counters{}
	m.engine.fill(ctx, d.url, []table{d.repoTable(n / 10).counted(count)})
	db := m.engine.connect(d.url, 1)
	count.write(ctx, db)
	check(db.Close())
	m.importInto(ctx, d, n*13/10)
	return d
}

// repoTable has n repos, in folders in turn.
func (t tree) repoTable(n int) table {
	columns := append(keyColumns[:6:6], "name", "description", "detail", "readme", "create_ms", "update_ms")
	return table{"repos", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(5, uint64(n)))
		folders := t.folders()
		for i := range n {
			uid, at := folders[i%len(folders)]+resource.UID(segment(r)), int64(epoch+i)
			if !yield(append(keys(uid), fmt.Sprintf("repo-%08x", r.Uint32()), "", "{}", "", at, at)) {
				return
			}
		}
	}}
}

// importInto imports n advisories into the organization of a dataset.
func (m *measurement) importInto(ctx context.Context, d dataset, n int) {
	db := must(store.Open(ctx, d.url))
	defer db.Close()
	checker := must(authz.Load(ctx, db, slog.New(slog.DiscardHandler)))
	s := advisory.New(advisorydb.New(db), checker, page.NewTokens([]byte("bench"), time.Now), advisory.Config{})
	var identity string
	check(db.Row(ctx, `SELECT identity FROM role_bindings AS b, groups AS g WHERE b.parent = g.seg AND g.uid = $1 LIMIT 1`,
		[]any{string(d.org)}, &identity))
	ctx = authz.WithCaller(ctx, authz.Caller{Identity: resource.UID(identity)})
	f, size := openSized(m.archive(n))
	defer func() { check(f.Close()) }()
	begin := time.Now()
	all := must(s.NewImport(ctx, d.org, "bench", nil))
	err := all.Add(iter.Seq[format.Record](format.Read(ctx, "all.zip", f, size, format.Limits{})))
	_, closing := all.Close()
	check(errors.Join(err, closing))
	m.say("imported %d advisories in %.0f s", n, time.Since(begin).Seconds())
}

// A window is one of Chromium, signed in to the console.
type window struct {
	ctx context.Context
}

func (m *measurement) window(ctx context.Context, p *process) *window {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("js-flags", "--expose-gc"))
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	m.atEnd(func() error { stop(); return nil })
	ctx, end := chromedp.NewContext(ctx)
	m.atEnd(func() error { end(); return nil })
	check(chromedp.Run(ctx, chromedp.EmulateViewport(1280, 800),
		chromedp.Navigate(p.address+"/signin?return="+url.QueryEscape("/console/")),
		chromedp.SendKeys(`#email`, p.dev.OwnerEmail), chromedp.SendKeys(`#password`, p.dev.OwnerPassword),
		chromedp.Submit(`#password`), chromedp.WaitVisible(`main h1`)))
	return &window{ctx}
}

// follow clicks a link to a view, as the navigation is one, and returns how long it takes until
// what the view is for is there.
const follow = `(path, shows) => new Promise((done, failed) => {
	const link = document.createElement("a");
	link.href = "/console" + path;
	document.body.append(link);
	const old = new Set(document.querySelectorAll(shows)), begin = performance.now();
	link.click();
	link.remove();
	const look = () => {
		const found = [...document.querySelectorAll(shows)].some((e) => !old.has(e) || location.pathname + location.search !== look.was);
		if (found && !document.querySelector("main .waiting") && document.querySelector(shows)) return done(performance.now() - begin);
		if (performance.now() - begin > 20000) return failed(new Error("nothing is shown at " + path));
		requestAnimationFrame(look);
	};
	look.was = "";
	requestAnimationFrame(look);
})`

// visit returns how long a view took.
func (w *window) visit(path, shows string) time.Duration {
	var took float64
	check(chromedp.Run(w.ctx, chromedp.Evaluate(fmt.Sprintf("(%s)(%q, %q)", follow, path, shows), &took,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })))
	return time.Duration(took * float64(time.Millisecond))
}

// median visits a view with other things each time, because what was seen lately is kept. The
// first visit loads its script. Between them is a page that shows nothing.
func (w *window) median(path func(int) string, shows string) time.Duration {
	var all []time.Duration
	for i := range consoleTurns + 1 {
		w.visit(fmt.Sprint("/confirmed?turn=", i), "main h1")
		took := w.visit(path(i), shows)
		if i > 0 {
			all = append(all, took)
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// growth returns how many bytes more the page uses after many views than after some.
func (w *window) growth(path func(int) string) float64 {
	var before, after float64
	used := func(into *float64) {
		time.Sleep(time.Minute) // answers are kept that long
		check(chromedp.Run(w.ctx, chromedp.Evaluate(`gc(), gc(), performance.memory.usedJSHeapSize`, into)))
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
