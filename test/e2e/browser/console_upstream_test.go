package browser_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleUpstreams adds an upstream registry to a group, sees that the upstream fails, changes it and deletes it.
// The password must never be shown. A viewer must see no buttons, and the API must refuse a viewer's requests.
func TestConsoleUpstreams(t *testing.T) { onBoth(t, walkUpstreams) }

func walkUpstreams(t *testing.T, s *site) {
	const secret = "robot:s3cret-of-far"
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer far.Close()
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "mirror", "--parent", "dev")
	group := p.resolve("dev/mirror", "groups")
	view := "/console/groups/" + group + "?tab=upstreams"
	b.console(s, view, s.OwnerEmail, s.OwnerPassword)
	b.read("Nothing here is fetched from another registry")
	b.judge("upstreams-none")
	b.press("Fetch from a registry…")
	b.fill("Name", "far")
	b.fill("Address, if it differs from the name", "ftp://far.example.com")
	b.fill("User and password, with a colon between", secret)
	b.press("Fetch from it")
	b.run("an address that cannot be used is refused", chromedp.WaitVisible(`dialog [aria-invalid]`, chromedp.ByQuery))
	b.judge("upstream-new")
	b.fill("Address, if it differs from the name", far.URL)
	b.fill("Patterns of the repos that are fetched", "library/* !library/secret")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	if !strings.Contains(command, "--credentials FILE") || strings.Contains(command, "s3cret") {
		t.Errorf("the command is %s", command)
	}
	b.press("Fetch from it")
	b.closed()
	b.read("with a password")
	b.read("it answers with status 500") // as the server saw when it tried the new address
	b.lacks("Fetch from a registry…")    // a group has at most one upstream

	s.pull(t, "dev/mirror/library/app", http.StatusBadGateway)
	b.reload("it answers with status 500")
	b.judge("upstreams")
	b.press("Change far")
	b.read("Leave this empty to keep it.")
	b.fill("Minutes for which a tag is cached", "5")
	b.judge("upstream-change")
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Save")
	b.closed()
	b.read("5 min")
	b.read("with a password")
	b.read("no failure") // the changed upstream has no failures yet
	p.shell("the same change", command)
	var page string
	b.run("look for the password",
		chromedp.Evaluate(`document.documentElement.outerHTML + [...document.querySelectorAll("input")].map(i => i.value)`,
			&page))
	if strings.Contains(page, "s3cret") {
		t.Error("the page contains the password")
	}

	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + view)
	eve.read("with a password")
	eve.lacks("Change…", "Delete…", "Fetch from a registry…")
	upstream := p.run("registry", "upstreams", "list", "--parent", "dev/mirror", "-o", "id")
	eve.refused("DELETE", "/oci/v1/upstreams/"+upstream, "")
	eve.refused("PATCH", "/oci/v1/upstreams/"+upstream+"?updateMask=address", `{"address": "https://evil.example.com"}`)

	b.press("Change far")
	b.run("take the password away",
		chromedp.Click(`//label[contains(., "Remove the password")]/input`, chromedp.NodeVisible))
	b.press("Save")
	b.closed()
	if got := p.run("registry", "upstreams", "list", "--parent", "dev/mirror",
		"--jq", ".[0].hasCredentials"); got == "true" {
		t.Error("the upstream still has a password")
	}
	b.press("Delete far")
	b.read("stay. Other images are no longer found")
	b.judge("upstream-delete")
	b.press("Delete")
	b.closed()
	b.read("Nothing here is fetched from another registry")
}

// pull requests the manifest of the tag v1 in a repo, and checks the status.
func (s *site) pull(t *testing.T, repo string, want int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.BaseURL+"/v2/"+repo+"/manifests/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("_token", s.RegistryToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		t.Errorf("a pull of %s: %d %s", repo, resp.StatusCode, text)
	}
}
