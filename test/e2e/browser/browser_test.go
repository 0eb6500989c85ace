// Package browser_test tests the pages and the console in a real browser, together with the command-line program.
package browser_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

var update = flag.Bool("update", false, "take the pictures of docs/sign-in anew")

// patience is the longest time to wait for an expected event.
const patience = 90 * time.Second

// needs returns the folder with the programs that scripts/with-browser has prepared.
func needs(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("HOLDFAST_TEST_BROWSER")
	if folder == "" {
		t.Skip("HOLDFAST_TEST_BROWSER is not set: make test sets it")
	}
	return folder
}

// chromium is the browser process that all tests share.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop context.CancelFunc
	err  error
}

func startChromium() {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // tests may run as root; they open only their own servers
		chromedp.Flag("disable-dev-shm-usage", true),
		// Pages cannot load anything from another host.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	)
	if path, err := exec.LookPath("chromium-headless-shell"); err == nil { // needs half the processor time of chromium
		options = append(options, chromedp.ExecPath(path))
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	chromium.ctx, chromium.stop = ctx, func() { stop(); stopAllocator() }
	chromium.err = chromedp.Run(ctx)
}

func TestMain(m *testing.M) {
	if inspect.IsChild() { // this process was started by a server to inspect an image
		inspect.Child()
	}
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	if missing := notInspected(); code == 0 && len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "no test has inspected the views %s\n", strings.Join(missing, ", "))
		code = 1
	}
	os.Exit(code)
}

// A tab is a browser window of a new visitor, without cookies.
type tab struct {
	t        *testing.T
	ctx      context.Context
	person   cdp.BrowserContextID
	scripted bool      // whether pages may run scripts
	schemes  [2]string // color schemes in which pages are checked: on a desktop, on a phone
	unjudged bool      // whether another test checks the look of the pages
}

// newTab opens a window with its own cookies.
func newTab(t *testing.T) *tab {
	t.Helper()
	needs(t)
	chromium.once.Do(startChromium)
	if chromium.err != nil {
		t.Fatalf("start Chromium: %v", chromium.err)
	}
	var id target.ID
	browser := cdp.WithExecutor(chromium.ctx, chromedp.FromContext(chromium.ctx).Browser)
	person, err := target.CreateBrowserContext().Do(browser)
	if err == nil {
		id, err = target.CreateTarget("about:blank").WithBrowserContextID(person).WithNewWindow(true).Do(browser)
	}
	if err != nil {
		t.Fatalf("open a window: %v", err)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithTargetID(id))
	t.Cleanup(func() {
		cancel()
		// An error does not matter, because the context ends with the browser.
		_ = target.DisposeBrowserContext(person).Do(browser)
	})
	// Without a timeout, because the window lives only as long as the context of its first run.
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("open a window: %v", err)
	}
	b := &tab{t: t, ctx: ctx, person: person, scripted: true, schemes: [2]string{"light", "dark"}}
	b.run("open a window", chromedp.EmulateViewport(1100, 800))
	return b
}

// run executes actions one after the other, with a time limit. If one of them fails, it reports the content of the
// page.
func (b *tab) run(what string, actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v\n%s", what, err, b.shown())
	}
}

// shown returns the address and the text of the page.
func (b *tab) shown() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	var text string
	if err := chromedp.Run(ctx,
		chromedp.Evaluate(`location.href + "\n" + (document.body?.innerText ?? "")`, &text)); err != nil {
		return fmt.Sprintf("(the page cannot be read: %v)", err)
	}
	return text
}

func (b *tab) open(address string) {
	b.t.Helper()
	b.run("open "+address, chromedp.Navigate(address))
}

// see waits until the page has a heading that contains the text.
func (b *tab) see(heading string) {
	b.t.Helper()
	b.run(fmt.Sprintf("see %q", heading), chromedp.WaitVisible(fmt.Sprintf(`//h1[contains(., %q)]`, heading)))
}

// read waits until the text is visible anywhere on the page.
func (b *tab) read(text string) {
	b.t.Helper()
	b.run(fmt.Sprintf("read %q", text),
		chromedp.WaitVisible(fmt.Sprintf(`//main//*[contains(normalize-space(), %q)]`, text)))
}

// fill replaces the text in the field that has this label.
func (b *tab) fill(label, text string) {
	b.t.Helper()
	var found bool
	quoted, _ := json.Marshal(label)
	find := fmt.Sprintf(`(e => { e?.focus(); e?.select(); return !!e })(`+
		`[...document.querySelectorAll("label")].find(l => l.innerText.trim() === %s)?.control)`, quoted)
	b.run(fmt.Sprintf("find %q", label), chromedp.Evaluate(find, &found))
	if !found {
		b.t.Fatalf("no field is labeled %q\n%s", label, b.shown())
	}
	b.keys(text)
}

// press clicks the button, link or summary with this name.
func (b *tab) press(name string) {
	b.t.Helper()
	where := fmt.Sprintf(`//button[normalize-space()=%[1]q or @aria-label=%[1]q] | `+
		`//a[normalize-space()=%[1]q] | //summary[normalize-space()=%[1]q]`, name)
	b.run(fmt.Sprintf("press %q", name),
		chromedp.WaitVisible(where), resting(where), chromedp.Click(where, chromedp.NodeVisible))
}

// resting waits until an element has not moved for 50 ms, because a click on a moving element could miss it. The Go
// code waits, not a script in the page, because some tests turn off the scripts of pages.
func resting(where string) chromedp.Action {
	quoted, _ := json.Marshal(where)
	script := fmt.Sprintf(`(r => r ? [r.x, r.y, r.width, r.height].join() : "")(document.evaluate(%s, document, null,
		XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue?.getBoundingClientRect())`, quoted)
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for last := ""; ; {
			var place string
			if err := chromedp.Evaluate(script, &place).Do(ctx); err != nil {
				return err
			}
			if place != "" && place == last {
				return nil
			}
			last = place
			if err := chromedp.Sleep(50 * time.Millisecond).Do(ctx); err != nil {
				return err
			}
		}
	})
}

// keys presses keys, as a person without a mouse does.
func (b *tab) keys(keys string) {
	b.t.Helper()
	b.run("press keys", chromedp.KeyEvent(keys))
}

// focused returns the name of the element that has the focus.
func (b *tab) focused() string {
	b.t.Helper()
	var name string
	b.run("find the focus",
		chromedp.Evaluate(`(e => e.labels?.[0]?.innerText ?? e.innerText ?? "")(document.activeElement)`, &name))
	return strings.TrimSpace(name)
}

// withoutScripts turns off the scripts of pages. Scripts that the test itself runs still work.
func (b *tab) withoutScripts() {
	b.t.Helper()
	b.scripted = false
	b.run("turn scripts off", emulation.SetScriptExecutionDisabled(true))
}

// address returns the URL of the page.
func (b *tab) address() string {
	b.t.Helper()
	var address string
	b.run("read the address", chromedp.Location(&address))
	return address
}

// A violation is an accessibility rule of axe-core that a page breaks.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

var axe = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile(filepath.Join(os.Getenv("HOLDFAST_TEST_BROWSER"), "node_modules", "axe-core", "axe.min.js"))
	return string(text), err
})

func (b *tab) scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{
		Name: "prefers-color-scheme", Value: name,
	}})
}

func (b *tab) shoot(name string, width int64, scheme string) {
	b.t.Helper()
	b.shootTo(filepath.Join("..", "..", "..", "docs", "sign-in", name+".png"), width, scheme)
}

// shootTo takes a picture of the page and writes it to a file.
func (b *tab) shootTo(file string, width int64, scheme string) {
	b.t.Helper()
	var picture []byte
	b.run("take a picture", chromedp.EmulateViewport(width, 780), b.scheme(scheme),
		chromedp.ActionFunc(func(ctx context.Context) (err error) {
			picture, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).Do(ctx)
			return err
		}), chromedp.EmulateViewport(1100, 800), b.scheme("light"))
	if err := os.WriteFile(file, shrink(b.t, picture), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// shrink returns the picture with at most 256 colors, which suffice for our pages. The result is a quarter as large.
func shrink(t *testing.T, picture []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	size := full.Bounds()
	small := image.NewPaletted(size, nil)
	known := map[color.RGBA]uint8{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			c, _ := color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)
			near := color.RGBA{c.R &^ 7, c.G &^ 7, c.B &^ 7, 255} // merges similar shades at the smooth edges of letters
			index, ok := known[near]
			if !ok && len(known) < 256 {
				index = uint8(len(known))
				known[near] = index
				small.Palette = append(small.Palette, c)
			} else if !ok {
				index = uint8(small.Palette.Index(c))
			}
			small.SetColorIndex(x, y, index)
		}
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
