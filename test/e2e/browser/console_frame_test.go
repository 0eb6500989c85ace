package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// TestConsoleMenu checks that the navigation of a phone is closed until a button opens it, and closes again.
func TestConsoleMenu(t *testing.T) {
	t.Parallel()
	s, b := newSite(t), newTab(t)
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	b.run("on a phone", chromedp.EmulateViewport(390, 800))
	closed, open := chromedp.WaitNotVisible(`#nav`, chromedp.ByQuery), chromedp.WaitVisible(`#nav`, chromedp.ByQuery)
	b.run("it is closed", closed)
	b.press("Menu")
	b.run("it is open", open)
	b.fits("menu", 390)
	b.loadRules()
	b.obeys("menu", 390, "light")
	b.obeys("menu", 390, "dark")
	b.keep("menu", 390, "light")
	b.run("on a phone", chromedp.EmulateViewport(390, 800), open)
	b.keys(kb.Escape)
	b.run("Escape closes it", closed)
	b.press("Menu")
	b.press("Repos")
	b.see("Repos")
	b.run("another page closes it", closed)
	b.run("on a desktop", chromedp.EmulateViewport(1280, 800), open)
}

// TestConsoleTrend checks that the trend has the stored counts of the days, and says so if there is no second day.
func TestConsoleTrend(t *testing.T) { onBoth(t, walkTrend) }

func walkTrend(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	group := resource.UID(p.resolve("dev/platform", "groups"))
	b.console(s, "/console/groups/"+string(group), s.OwnerEmail, s.OwnerPassword)
	b.read("The findings are counted once an hour")
	const missing = 5 // days ago
	var days []vuln.FindingDay
	for ago := 40; ago > 0; ago-- { // the server itself counts today
		at := time.Now().AddDate(0, 0, -ago)
		if ago != missing {
			open := [5]int{0, 1, 2, 3, 100 + ago}
			days = append(days, vuln.FindingDay{Group: group, Day: vuln.DayOf(at), Time: at, Open: open})
		}
	}
	if err := s.openStore(t).PutDays(t.Context(), resource.UID(s.OrganizationUID), days, nil); err != nil {
		t.Fatal(err)
	}
	b.run("reload", chromedp.Reload())
	b.run("see the chart", chromedp.WaitVisible(`figure.chart svg[role="img"]`, chromedp.ByQuery))
	b.press("The numbers")
	var rows []string
	b.run("read the table", chromedp.Evaluate(`[...document.querySelectorAll("figure.chart tbody tr")].map(
		row => row.innerText.split(/\s+/).join(" "))`, &rows))
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format("2 Jan ") }
	if want := day(1) + "101 3 2 1 0 107"; !slices.Contains(rows, want) {
		t.Errorf("the table lacks %q: %q", want, rows)
	}
	if slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(row, day(missing)) }) {
		t.Errorf("the table has a day that was not counted: %q", rows)
	}
	b.judge("trend")
	b.press("90 days")
	b.run("see older days", chromedp.Poll(`document.querySelectorAll("figure.chart tbody tr").length > 35`, nil,
		chromedp.WithPollingTimeout(patience)))
}

// TestConsoleCreate checks that a person can create folders and repos, and that a person without permission does not
// see the buttons.
func TestConsoleCreate(t *testing.T) { onBoth(t, walkCreate) }

func walkCreate(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/groups/"+s.OrganizationUID, s.OwnerEmail, s.OwnerPassword)
	b.press("New folder")
	b.fill("Name", "Not Lower Case")
	b.press("Create the folder")
	b.run("the name is refused", chromedp.WaitVisible(`dialog [aria-invalid]`, chromedp.ByQuery))
	b.fill("Name", "payments")
	b.fill("Description", "of the payments team "+hostile)
	b.judge("create-folder")
	b.collectMessages()
	b.press("Create the folder")
	b.see("payments")
	b.tells("The folder payments was created")
	b.unharmed("create-folder")
	b.press("New repo")
	b.fill("Name", "ledger")
	b.press("Create the repo")
	b.see("ledger")
	b.read("docker pull")
	p.resolve("dev/payments/ledger", "repos")

	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/groups/" + s.OrganizationUID)
	eve.read("payments")
	eve.lacks("New folder", "New repo")
}

// collectMessages makes the page remember all messages about finished actions, because they disappear.
func (b *tab) collectMessages() {
	b.t.Helper()
	b.run("collect messages", chromedp.Evaluate(`window.messages = []; new MutationObserver(() => messages.push(
		...[...document.querySelectorAll(".toast bdi")].map(m => m.innerText))).observe(
		document.querySelector(".toasts"), {childList: true, subtree: true})`, nil))
}

// tells waits for a message that the page shows after collectMessages.
func (b *tab) tells(message string) {
	b.t.Helper()
	b.run("wait for the message "+message,
		chromedp.Poll(fmt.Sprintf(`window.messages.includes(%q)`, message), nil, chromedp.WithPollingTimeout(patience)))
}

// openStore opens the database of the server from this process.
func (s *site) openStore(t *testing.T) *storetest.Store {
	t.Helper()
	path := s.database
	// The server has locked the path of its SQLite file, so open the file through a symbolic link.
	if !strings.HasPrefix(path, "postgres") {
		path = filepath.Join(t.TempDir(), "holdfast.db")
		if err := os.Symlink(s.database, path); err != nil {
			t.Fatal(err)
		}
	}
	return storetest.Open(t, path)
}
