package browser_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "folder to put pictures of all views into, to look at them")

// A view is a page in one of its possible states.
type view struct {
	file    string // path of the page's template in this repository
	picture bool   // whether docs/sign-in has a screenshot of the view
}

// views are all pages in their different states. The tests fail if a page is missing here, or if no test has
// inspected one of the views.
var views = map[string]view{
	"signin":           {"internal/signin/site/pages/signin.html", true},
	"signin-wrong":     {"internal/signin/site/pages/signin.html", true},
	"signin-forgot":    {"internal/signin/site/pages/signin.html", false},
	"signin-provider":  {"internal/signin/site/pages/signin.html", true},
	"signin-again":     {"internal/signin/site/pages/signin.html", false},
	"signin-unknown":   {"internal/signin/site/pages/signin.html", false},
	"signin-invite":    {"internal/signin/site/pages/signin.html", true},
	"join":             {"internal/signin/site/pages/join.html", true},
	"join-wrong":       {"internal/signin/site/pages/join.html", false},
	"welcome":          {"internal/signin/site/pages/welcome.html", true},
	"choose":           {"internal/signin/site/pages/choose.html", true},
	"factor":           {"internal/signin/site/pages/factor.html", true},
	"factor-passkey":   {"internal/signin/site/pages/factor.html", false},
	"confirm":          {"internal/signin/site/pages/confirm.html", true},
	"confirm-device":   {"internal/signin/site/pages/confirm.html", true},
	"confirm-invite":   {"internal/signin/site/pages/confirm.html", false},
	"device":           {"internal/signin/site/pages/device.html", true},
	"device-wrong":     {"internal/signin/site/pages/device.html", false},
	"done":             {"internal/signin/site/pages/done.html", false},
	"denied":           {"internal/signin/site/pages/done.html", false},
	"signed-out":       {"internal/signin/site/pages/done.html", false},
	"link":             {"internal/signin/site/pages/link.html", false},
	"account":          {"internal/signin/site/pages/account.html", true},
	"account-wrong":    {"internal/signin/site/pages/account.html", false},
	"account-provider": {"internal/signin/site/pages/account.html", false},
	"passkey":          {"internal/signin/site/pages/account.html", false},
	"totp":             {"internal/signin/site/pages/totp.html", false},
	"recovery":         {"internal/signin/site/pages/recovery.html", true},
	"trial":            {"internal/signin/site/pages/trial.html", true},
	"problem":          {"internal/signin/site/pages/problem.html", true},
	"missing":          {"internal/signin/site/pages/problem.html", false},
	"home":             {"internal/signin/site/pages/home.html", false},
	"home-signed-in":   {"internal/signin/site/pages/home.html", false},
	"setup":            {"internal/server/setup.html", true},
	"setup-code":       {"internal/server/setup.html", false},
	"setup-wrong":      {"internal/server/setup.html", false},
	"setup-done":       {"internal/server/setup.html", false},
	"command":          {"cmd/holdfast/internal/signin/loopback.html", false},
	"command-refused":  {"cmd/holdfast/internal/signin/loopback.html", false},
	"docs-services":    {"internal/api/manual/services.html", false},
	"docs-service":     {"internal/api/manual/service.html", false},
	"docs-search":      {"internal/api/manual/search.html", false},
	"report":           {"cmd/holdfast/internal/report/page.html", false},
	"console":          {"console/index.html", false},
}

// inspected contains the names of the views that a test has inspected.
var inspected sync.Map

// TestEveryPageIsListed fails if a page is not in views, or if the page of a view does not exist.
func TestEveryPageIsListed(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	listed := map[string]bool{}
	for name, v := range views {
		if listed[v.file] = true; !exists(filepath.Join(root, v.file)) {
			t.Errorf("view %s: there is no page %s", name, v.file)
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() &&
			(name == "node_modules" || name == "bin" || name == "dist" || name == ".git" || name == "testdata") {
			return fs.SkipDir
		}
		file, err := filepath.Rel(root, path)
		if filepath.ToSlash(file) == "internal/signin/token/testsignin.html" { // only developers see the test issuer
			return err
		}
		part := d.Name() == "layout.html" || strings.HasPrefix(d.Name(), "_")
		if filepath.Ext(path) == ".html" && !part && !listed[filepath.ToSlash(file)] {
			t.Errorf("%s is in no row of views: add one, and a test that inspects it", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// notInspected returns the views that no test has inspected. It returns nil if only some of the tests ran.
func notInspected() (missing []string) {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return nil
		}
	}
	if os.Getenv("HOLDFAST_TEST_BROWSER") == "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(views)) {
		if _, ok := inspected.Load(name); !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

// The color schemes and widths in which every page is inspected.
var (
	schemes = []string{"light", "dark"}
	widths  = []int64{1280, 390}
)

// inspect checks the open page. It must break no accessibility rule and must not scroll sideways, in the light and in
// the dark scheme, on a desktop and on a phone. With -update it takes the screenshots for the documentation.
func (b *tab) inspect(name string) {
	b.t.Helper()
	v, ok := views[name]
	if !ok {
		b.t.Fatalf("%s is in no row of views", name)
	}
	inspected.Store(name, true)
	base := strings.TrimSuffix(filepath.Base(v.file), ".html")
	var shown string
	b.run("find out which page it is", chromedp.Evaluate(`document.body.dataset.page ?? ""`, &shown))
	if strings.HasPrefix(v.file, "internal/signin/site/") && shown != base {
		b.t.Errorf("%s shows the page %q, want %q\n%s", name, shown, base, b.shown())
	}
	// This does not start the page's own scripts.
	b.run("let the rules run", emulation.SetScriptExecutionDisabled(false))
	b.loadRules()
	for _, width := range widths {
		b.run("resize", chromedp.EmulateViewport(width, 800))
		b.fits(name, width)
		for _, scheme := range schemes {
			b.obeys(name, width, scheme)
			if *pictures != "" {
				b.shootTo(filepath.Join(*pictures, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), width, scheme)
				b.run("resize", chromedp.EmulateViewport(width, 800))
			}
		}
	}
	b.run("back to the desktop", chromedp.EmulateViewport(1100, 800), b.scheme("light"),
		emulation.SetScriptExecutionDisabled(!b.scripted))
	if *update && v.picture {
		b.shoot(name+"-desktop", 1100, "light")
		b.shoot(name+"-phone", 390, "dark")
	}
}

// loadRules loads the accessibility rules into the page.
func (b *tab) loadRules() {
	b.t.Helper()
	source, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.run("load the rules", chromedp.Evaluate(source+"; undefined", nil))
}

// obeys fails the test if the page breaks an accessibility rule. In the dark scheme it checks only the contrast,
// because the other rules do not depend on colors.
func (b *tab) obeys(name string, width int64, scheme string) {
	b.t.Helper()
	options := `{resultTypes: ["violations"]}`
	if scheme == "dark" {
		options = `{resultTypes: ["violations"], runOnly: ["color-contrast"]}`
	}
	var broken []violation
	b.run("check accessibility", b.scheme(scheme),
		chromedp.Evaluate(`axe.run(document, `+options+`).then(r => r.violations)`, &broken,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	for _, v := range broken {
		b.t.Errorf("%s, %d points wide, %s: %s (%s, %s): %s", name, width, scheme, v.Help, v.ID, v.Impact, v.Nodes[0].HTML)
	}
}

// fits fails the test if the page scrolls sideways.
func (b *tab) fits(name string, width int64) {
	b.t.Helper()
	var needs int64
	b.run("measure", chromedp.Evaluate(`document.documentElement.scrollWidth`, &needs))
	if needs > width {
		b.t.Errorf("%s is %d points wide on a screen of %d", name, needs, width)
	}
}
