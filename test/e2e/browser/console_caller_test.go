package browser_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A caller is a person with certain roles, in a browser window of their own.
type caller struct {
	name string
	tab  *tab
	said *complaints
}

// invite creates an account without a role, grants roles on groups, and signs the person in.
func (s *site) invite(t *testing.T, name string, roles map[string]string) caller {
	t.Helper()
	p := s.owner(t)
	var made struct {
		Account struct{ IdentityUID string }
		Link    struct{ URL string }
	}
	p.json(&made, "iam", "accounts", "create", name+"@example.com", "--parent", "dev", "--name", name)
	for group, role := range roles {
		p.run("iam", "role-bindings", "create", "--parent", group, "--identity", made.Account.IdentityUID, "--role", role)
	}
	b := newTab(t)
	b.unjudged = s.unjudged
	b.open(made.Link.URL)
	b.fill("Password", "nine unrelated words")
	b.press("Begin")
	b.see("Your account")
	return caller{name: name, tab: b}
}

// TestConsoleCallers opens every view as five kinds of callers. No view states something false about what the caller
// may not see: it starts at the groups in which the caller has a role, and names missing permissions.
func TestConsoleCallers(t *testing.T) { onBoth(t, walkCallers) }

func walkCallers(t *testing.T, s *site) {
	s.furnish(t)
	p := s.owner(t)
	p.run("iam", "groups", "create", "other", "--root")
	p.run("iam", "groups", "create", "lab", "--parent", "other")
	owner := newTab(t)
	owner.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	callers := []caller{
		{name: "owner", tab: owner},
		s.invite(t, "editor", map[string]string{"dev/platform": "editor"}),
		s.invite(t, "pusher", map[string]string{"dev/platform": "registry.push"}),
		s.invite(t, "guest", map[string]string{"dev/platform/edge": "viewer", "other/lab": "viewer"}),
		s.invite(t, "nobody", nil),
	}
	group, repo := p.resolve("dev/platform", "groups"), p.resolve("dev/platform/web", "repos")
	for _, c := range callers {
		c.said = c.tab.complaints()
		for _, v := range callerViews(group, repo) {
			c.walks(t, s, v)
		}
	}
}

// A callerView is a view and the text that each caller reads in it.
type callerView struct{ path, owner, editor, pusher, guest, nobody string }

// textFor returns the text that a caller reads.
func (v callerView) textFor(name string) string {
	return map[string]string{
		"owner": v.owner, "editor": v.editor, "pusher": v.pusher, "guest": v.guest, "nobody": v.nobody,
	}[name]
}

const (
	noRole    = "You hold no role yet"
	forbidden = "You may not see"
	denied    = "Permission denied: "
)

func callerViews(group, repo string) []callerView {
	group, repo = "/console/groups/"+group, "/console/repos/"+repo
	all := func(path, text string) callerView { return callerView{path, text, text, text, text, text} }
	return []callerView{
		{"/console/", "CVE-2026-1000", "dev/platform", "dev/platform", "other/lab", noRole},
		{"/console/", "1 can be fixed", "Findings through the others are not shown", "You may not see findings here",
			"There is no image that you may see", noRole},
		{"/console/tree", "dev", "dev/platform", "dev/platform", "dev/platform/edge", noRole},
		{"/console/tree", "other", "1 folder · 1 repo", "1 folder · 1 repo", "other/lab", noRole},
		{"/console/search?q=web", "dev/platform/web", "dev/platform/web", "dev/platform/web", "Nothing that you may see",
			"Nothing that you may see"},
		{"/console/access", "owner", "editor", forbidden, "viewer", noRole},
		{"/console/access?show=unused", "Use is recorded since", "Use is recorded since", "Use is recorded since",
			"Use is recorded since", ""},
		{"/console/access?show=reach", "owner", "editor", forbidden, "viewer", noRole},
		all("/console/access?show=requests", "Nobody has asked for a role"),
		{"/console/people", "Dev Owner", "editor", forbidden, "guest", noRole},
		{"/console/people?tab=invites", "ann@example.com", "ann@example.com", forbidden, "No invite is pending", noRole},
		{"/console/people?tab=accounts", "guest@example.com", "No account belongs to this group", forbidden,
			"No account belongs to this group", noRole},
		{"/console/workloads", "https://issuer.example.com", "https://issuer.example.com", forbidden,
			"There is no workload in it", noRole},
		{"/console/sign-in", "https://sso.invalid", "No provider is connected", forbidden, "No provider is connected",
			noRole},
		{"/console/repos", "dev/platform", "dev/platform", "dev/platform", "There is no repo that you may see", noRole},
		{"/console/vulnerabilities?tab=advisories", "GHSA-left", "No advisory that you may see", forbidden,
			"No advisory that you may see", noRole},
		{"/console/vulnerabilities", "CVE-2026-1000", "Findings through the others are not shown", forbidden,
			"There is no tagged image that you may see", noRole},
		{"/console/vulnerabilities?tab=exceptions", "CVE-2026-9999", "CVE-2026-9999", forbidden,
			"No exception that you may see", noRole},
		{"/console/vulnerabilities?tab=feeds", "broken", "No feed that you may see", forbidden, "No feed that you may see",
			noRole},
		{"/console/audit", "iam.", "iam.", forbidden, "", noRole},
		{"/console/events", "https://hooks.invalid/holdfast", "No subscription that you may see", forbidden,
			"No subscription that you may see", noRole},
		{"/console/events?tab=deliveries", "No delivery", "No delivery that you may see", forbidden,
			"No delivery that you may see", noRole},
		{group, "edge", "edge", "edge", denied, denied},
		{group + "?tab=people", "ci", "ci", forbidden, denied, denied},
		{group + "?tab=roles", "has no roles of its own", "has no roles of its own", forbidden, denied, denied},
		{group + "?tab=repos", "web", "web", "web", denied, denied},
		{group + "?tab=rules", "No rule is in this group", "No rule is in this group", forbidden, denied, denied},
		{repo, "docker pull", "docker pull", "docker pull", denied, denied},
		{repo + "?tab=findings", "CVE-2026-1000", "Findings through the others are not shown", forbidden, denied,
			denied},
		{repo + "/images/v1", "CVE-2026-1000", "Findings through the others are not shown", forbidden, denied,
			denied},
		{repo + "/images/v1?tab=runs", "prod-eu", "No inventory that you may see", forbidden, denied, denied},
		{repo + "/images/v1?tab=pulls", "push", "push", "push", denied, denied},
	}
}

// falseToSome are sentences that are false for a person who sees a part of an organization.
var falseToSome = []string{
	"You are in no organization", "There is no group that you may see", "Nothing was pushed yet",
	"No critical or exploited finding is open", "There is no repo yet", "Everything was delivered", "No finding matches",
	"none open",
}

// walks opens a view, and checks its text.
func (c caller) walks(t *testing.T, s *site, v callerView) {
	t.Helper()
	c.tab.open(s.BaseURL + v.path)
	c.tab.run(c.name+" sees the view "+v.path, chromedp.WaitVisible(`main h1, main .forbidden`, chromedp.ByQuery))
	if text := v.textFor(c.name); text != "" && !c.tab.reads(text) {
		t.Errorf("%s does not read %q at %s:\n%s", c.name, text, v.path, c.tab.shown())
	}
	var shown string
	c.tab.run("read the view", chromedp.Evaluate(`document.querySelector("main").innerText`, &shown))
	for _, sentence := range falseToSome {
		if c.name != "owner" && strings.Contains(shown, sentence) {
			t.Errorf("%s reads %q at %s, which is not true", c.name, sentence, v.path)
		}
	}
	for _, complaint := range c.said.take() {
		if !strings.Contains(complaint, "status of 403") { // the browser reports an answer that the view explains
			t.Errorf("%s at %s: %s", c.name, v.path, complaint)
		}
	}
	if name := strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(v.path); len(name) < 40 {
		c.tab.keep(fmt.Sprintf("%s%s", c.name, strings.TrimPrefix(name, "-console")), 1280, "light")
		c.tab.keep(fmt.Sprintf("%s%s", c.name, strings.TrimPrefix(name, "-console")), 390, "dark")
	}
}

// reads reports whether the view shows the text within a few seconds.
func (b *tab) reads(text string) bool {
	b.t.Helper()
	var shown bool
	b.run("read "+text, chromedp.Evaluate(fmt.Sprintf(`new Promise(done => {
		const late = Date.now() + 8000, look = () =>
			document.querySelector("main")?.innerText.replace(/\s+/g, " ").includes(%q) ? done(true) :
			Date.now() > late ? done(false) : setTimeout(look, 50)
		look()
	})`, text), &shown,
		func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return shown
}
