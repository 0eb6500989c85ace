package browser_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// push pushes an image with one package to a repo, and returns its digest.
func (s *site) push(t *testing.T, repo, tag, version string) string {
	t.Helper()
	var layer bytes.Buffer
	zip := gzip.NewWriter(&layer)
	archive := tar.NewWriter(zip)
	text := fmt.Sprintf(`{"name": "left", "version": %q}`, version)
	err := archive.WriteHeader(&tar.Header{Name: "app/node_modules/left/package.json", Mode: 0o644, Size: int64(len(text))})
	if err == nil {
		_, err = archive.Write([]byte(text))
	}
	for _, c := range []interface{ Close() error }{archive, zip} {
		if err == nil {
			err = c.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	config := []byte(`{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}`)
	manifest := fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": %q, "size": %d},
		"layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": %q, "size": %d}]}`,
		digestOf(config), len(config), digestOf(layer.Bytes()), layer.Len())
	for _, blob := range [][]byte{config, layer.Bytes()} {
		s.send(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+url.QueryEscape(digestOf(blob)), "application/octet-stream", blob)
	}
	s.send(t, http.MethodPut, "/v2/"+repo+"/manifests/"+tag, "application/vnd.oci.image.manifest.v1+json", manifest)
	return digestOf(manifest)
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// send sends something to the registry, which must take it.
func (s *site) send(t *testing.T, method, path, contentType string, body []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.BaseURL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.RegistryToken)
	r.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // nobody reads it
	if answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", method, path, answer.Status)
	}
}

const hostile = `<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">`

// furnish gives the organization something of everything that the console shows: folders, one of
// them with a hostile name, a workload with a role, images, an advisory about them, an exception, a
// rule and a feed.
func (s *site) furnish(t *testing.T) {
	t.Helper()
	p := s.owner(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", hostile+strings.Repeat("W", 300))
	p.run("iam", "groups", "create", "edge", "--parent", "dev/platform")
	p.run("iam", "identities", "create", "ci", "--parent", "dev/platform", "--issuer", "https://issuer.example.com", "--subject", "main")
	p.run("iam", "role-bindings", "create", "--parent", "dev/platform", "--identity", "dev/platform/ci", "--role", "registry.push")
	p.run("iam", "roles", "create", "releaser", "--parent", "dev", "--capability", "tag.list,tag.create")
	old := s.push(t, "dev/platform/web", "v1", "1.2.0")
	digest := s.push(t, "dev/platform/web", "v2", "1.3.0")
	s.push(t, "dev/platform/web", "edge", "1.2.0")
	s.push(t, "dev/platform/web", "edge", "1.3.0")
	p.tellInventory(digest, old)
	p.run("auth", "pull-token", "create", "--group", "dev/platform", "--name", "laptop", "--life", "1d")
	p.run("iam", "invites", "create", "--parent", "dev", "--role", "viewer", "--ttl", "1d", "--email", "soon@example.com")
	s.attach(t, "dev/platform/web", digest)
	p.advise("left \u202eis not right "+hostile, strings.Repeat(hostile+" \u202eabc ", 200), "javascript:window.hacked=1")
	p.run("advisories", "feeds", "create", "broken", "--parent", "dev", "--address", "https://feeds.invalid/osv.zip")
	p.run("findings", "exceptions", "create", "CVE-2026-9999", "--on", "dev/platform", "--until", "30d", "--reason", hostile)
	p.run("findings", "rules", "create", "--parent", "dev", "--min-severity", "critical")
	p.run("iam", "invites", "create", "--parent", "dev/platform", "--role", "viewer", "--ttl", "7d", "--email", "ann@example.com", "--single-use")
	s.deny(t, p.resolve("dev/platform/ci", "identities"))
	p.run("iam", "identity-providers", "create", "sso", "--parent", "dev", "--issuer", "https://sso.invalid", "--client-id", "holdfast", "--pkce", "--groups-claim", "groups", "--default-role", "viewer", "--description", hostile)
	p.run("iam", "group-mappings", "create", hostile, "--provider", "sso", "--role", "editor")
	p.run("events", "subscriptions", "create", "https://hooks.invalid/holdfast", "--parent", "dev")
	p.compared()
}

// attach pushes a signature of an image, with a hostile annotation.
func (s *site) attach(t *testing.T, repo, subject string) {
	t.Helper()
	empty := []byte("{}")
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": "application/vnd.dev.cosign.artifact.sig.v1+json",
		"config": map[string]any{"mediaType": "application/vnd.oci.empty.v1+json", "digest": digestOf(empty), "size": len(empty)},
		"layers": []any{}, "annotations": map[string]any{"note": hostile + " \u202eabc"},
		"subject": map[string]any{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": subject, "size": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.send(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+url.QueryEscape(digestOf(empty)), "application/octet-stream", empty)
	s.send(t, http.MethodPut, "/v2/"+repo+"/manifests/"+digestOf(manifest), "application/vnd.oci.image.manifest.v1+json", manifest)
}

// tellInventory tells that two images run, in a namespace with a hostile name, and as something
// that a spreadsheet would compute.
func (p *person) tellInventory(digest, old string) {
	p.t.Helper()
	body, err := json.Marshal(map[string]any{"place": "prod-eu", "entries": []any{map[string]any{
		"namespace": hostile, "workload": "Deployment/web", "container": "web \u202eabc", "image": "registry.example.com/web:v2", "digest": digest, "copies": 3,
	}, map[string]any{"workload": "=1+1", "digest": old}}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.run("api", "POST", "/findings/v1/inventory/"+p.site.OrganizationUID, "--data", string(body))
}

// advise imports an advisory about the package of the images.
func (p *person) advise(summary, details, reference string) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "left.json")
	advisory, err := json.Marshal(map[string]any{
		"id": "GHSA-left", "aliases": []string{"CVE-2026-1000"}, "modified": "2026-01-02T03:04:05Z",
		"summary": summary, "details": details,
		"severity":   []any{map[string]any{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}},
		"references": []any{map[string]any{"type": "WEB", "url": reference}},
		"affected": []any{map[string]any{
			"package": map[string]any{"ecosystem": "npm", "name": "left"},
			"ranges":  []any{map[string]any{"type": "SEMVER", "events": []any{map[string]any{"introduced": "0"}, map[string]any{"fixed": "1.3.0"}}}},
		}},
	})
	if err == nil {
		err = os.WriteFile(file, advisory, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.run("advisories", "import", file, "--group", "dev")
}

// compared waits until the first image has the finding.
func (p *person) compared() {
	p.t.Helper()
	within(p.t, "the images are compared with the advisory", func() bool {
		found, _, err := p.try("findings", "list", "dev/platform/web:v1", "-o", "id")
		return err == nil && strings.Contains(found, "GHSA-left")
	})
}

// within waits for something that must come.
func within(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !done(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("in %v it is not so that %s", patience, what)
		}
	}
}

// complaints collects what a page must not cause: errors and warnings on the console, which a
// violation of the policy is too, and answers that are the server's fault.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (b *tab) complaints() *complaints {
	c := &complaints{}
	chromedp.ListenTarget(b.ctx, func(event any) {
		said := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			said = e.ExceptionDetails.Error()
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				said = fmt.Sprintf("console: %s", e.Args[0].Value)
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError || e.Entry.Source == log.SourceSecurity {
				said = e.Entry.Text + " " + e.Entry.URL
			}
		case *network.EventResponseReceived:
			if e.Response.Status >= 500 {
				said = fmt.Sprintf("%d %s", e.Response.Status, e.Response.URL)
			}
		}
		if said != "" {
			c.mu.Lock()
			c.said = append(c.said, said)
			c.mu.Unlock()
		}
	})
	return c
}

// take returns what was collected since it was last asked for.
func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.said
	c.said = nil
	return said
}

// resolve returns the uid at a path of names.
func (p *person) resolve(path, kind string) string {
	p.t.Helper()
	var found struct{ Resources []struct{ UID string } }
	p.json(&found, "api", "GET", "/access/v1/resolve?path="+url.QueryEscape(path)+"&kind="+kind)
	if len(found.Resources) == 0 {
		p.t.Fatalf("nothing is at %s", path)
	}
	return found.Resources[0].UID
}

// console signs in on the way to a view of the console, and is led back to it.
func (b *tab) console(s *site, path, email, password string) {
	b.t.Helper()
	b.open(s.BaseURL + path)
	b.signIn(email, password)
	b.run("come back", chromedp.WaitVisible(`nav[aria-label="Console"]`))
	if got := strings.TrimPrefix(b.address(), s.BaseURL); got != path {
		b.t.Errorf("the sign-in leads to %s, want %s", got, path)
	}
}

// TestConsole walks through every view as an owner, with both engines: on one in the light of a
// desktop and in the dark of a phone, and on the other the other way around.
func TestConsole(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		newSite(t).walk(t, "SQLite", [2]string{"light", "dark"})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		needs(t)
		newSiteOn(t, storetest.Postgres(t)).walk(t, "PostgreSQL", [2]string{"dark", "light"})
	})
}

func (s *site) walk(t *testing.T, engine string, schemes [2]string) {
	t.Helper()
	s.furnish(t)
	p, b := s.owner(t), newTab(t)
	b.schemes = schemes
	group, repo := p.resolve("dev/platform", "groups"), p.resolve("dev/platform/web", "repos")
	ci, sso := p.resolve("dev/platform/ci", "identities"), "/console/sign-in/"+p.resolve("dev/sso", "identity_providers")
	b.console(s, "/console/repos?order=name%20desc", s.OwnerEmail, s.OwnerPassword)
	b.read("web")
	said := b.complaints()

	group, repo = "/console/groups/"+group, "/console/repos/"+repo
	walk := []struct{ name, path, heading, text string }{
		{"home", "/console/", "Home", "CVE-2026-1000"},
		{"home-soon", "/console/", "Home", "soon@example.com"},
		{"home-endangered", "/console/", "Home", "Endangered workloads"},
		{"search", "/console/search?q=platf", "Search", "dev/platform"},
		{"search-tag", "/console/search?q=v1", "Search", "dev/platform/web"},
		{"search-advisory", "/console/search?q=cve-2026-1000", "Search", "left"},
		{"search-role", "/console/search?q=releaser", "Search", "Copy the uid"},
		{"search-nothing", "/console/search?q=nosuchthing", "Search", "Nothing that you may see"},
		{"tree", "/console/tree?open=" + s.OrganizationUID, "Tree", "1 folder · 1 repo · 2 workloads · 2 role bindings"},
		{"tree-filter", "/console/tree?name=ed", "Tree", "dev/platform/edge"},
		{"tree-filter-path", "/console/tree?name=dev%2Fplat", "Tree", "dev/platform"},
		{"access", "/console/access?capability=repo.create", "Access", "here"},
		{"access-why", "/console/access?capability=tag.create&identity=" + ci + "&place=" + group[len("/console/groups/"):], "Access", "Yes"},
		{"access-why-not", "/console/access?capability=groups.delete&identity=" + ci + "&place=" + group[len("/console/groups/"):], "Access", "These have it here"},
		{"access-reach", "/console/access?show=reach&capability=tag.create&identity=" + ci, "Access", "registry.push"},
		{"access-reach-nothing", "/console/access?show=reach&capability=groups.delete&identity=" + ci, "Access", "No role of theirs gives groups.delete"},
		{"access-reach-me", "/console/access?show=reach", "Access", "owner"},
		{"people", "/console/people", "People", "owner"},
		{"invites", "/console/people?tab=invites", "People", "ann@example.com"},
		{"joins", "/console/people?tab=joins", "People", "Nobody came"},
		{"accounts", "/console/people?tab=accounts", "People", s.OwnerEmail},
		{"accounts-email", "/console/people?tab=accounts&email=" + url.QueryEscape(s.OwnerEmail), "People", "e-mail: " + s.OwnerEmail},
		{"person", "/console/people/" + s.OwnerUID, "Dev Owner", "this one"},
		{"workloads", "/console/workloads", "Workloads", "https://issuer.example.com"},
		{"workloads-token", "/console/workloads?tab=token", "Workloads", "It is decoded in this browser"},
		{"workload", "/console/workloads/" + ci, "ci", "registry.push"},
		{"workload-setup", "/console/workloads/" + ci + "?tab=setup", "ci", "HOLDFAST_IDENTITY_TOKEN_FILE"},
		{"enroll", "/console/workloads/new?platform=gitlab", "Add a workload", "Path of the project"},
		{"workload-denials", "/console/workloads/" + ci + "?tab=denials", "ci", "https://elsewhere.example.com"},
		{"workload-token", "/console/workloads/" + ci + "?tab=token", "ci", "It is decoded in this browser"},
		{"signin", "/console/sign-in", "Sign-in", "https://sso.invalid"},
		{"signin-rules", "/console/sign-in?tab=rules", "Sign-in", "has not confirmed"},
		{"connect", "/console/sign-in/new?recipe=entra", "Connect a provider", "/oauth/callback"},
		{"provider", sso, "sso", "people cannot be sent there"},
		{"provider-mappings", sso + "?tab=mappings", "sso", "window.hacked"},
		{"provider-preview", sso + "?tab=preview&in=eng&in=" + url.QueryEscape(hostile), "sso", "No mapping names eng"},
		{"operator", "/console/operator", "Operator", engine},
		{"account", "/console/account", "Account", "this one"},
		{"repos", "/console/repos", "Repos", "dev/platform"},
		{"vulnerabilities", "/console/vulnerabilities", "Vulnerabilities", "GHSA-left"},
		{"findings", "/console/vulnerabilities?tab=findings", "Vulnerabilities", "1.3.0"},
		{"exceptions", "/console/vulnerabilities?tab=exceptions", "Vulnerabilities", "CVE-2026-9999"},
		{"feeds", "/console/vulnerabilities?tab=feeds", "Vulnerabilities", "broken"},
		{"audit", "/console/audit?type=iam", "Audit", "iam.role"},
		{"events", "/console/events", "Events", "https://hooks.invalid/holdfast"},
		{"events-of-group", "/console/events?group=" + group[len("/console/groups/"):], "Events", "There is no subscription"},
		{"group", group, "platform", "edge"},
		{"group-people", group + "?tab=people", "platform", "Inherited from dev"},
		{"group-roles", "/console/groups/" + s.OrganizationUID + "?tab=roles", "dev", "releaser"},
		{"group-repos", group + "?tab=repos", "platform", "web"},
		{"group-rules", "/console/groups/" + s.OrganizationUID + "?tab=rules", "dev", "critical or worse"},
		{"group-budget", group + "?tab=budget", "platform", "Workloads"},
		{"repo", repo, "web", "docker pull"},
		{"repo-findings", repo + "?tab=findings", "web", "CVE-2026-1000"},
		{"repo-history", repo + "?tab=history", "web", "sha256:"},
		{"repo-readme", repo + "?tab=readme", "web", "There is no readme"},
		{"image", repo + "/images/v1", "v1", "advisories cover 1 of 1 package"},
		{"image-packages", repo + "/images/v1?tab=packages", "v1", "node_modules/left"},
		{"image-platforms", repo + "/images/v1?tab=platforms", "v1", "1 layer"},
		{"image-pulls", repo + "/images/v1?tab=pulls", "v1", "push"},
		{"image-attached", repo + "/images/v2?tab=attached", "v2", "signature"},
		{"image-attached-nothing", repo + "/images/v1?tab=attached", "v1", "Nothing is attached"},
		{"image-runs", repo + "/images/v2?tab=runs", "v2", "prod-eu"},
		{"image-compare", repo + "/images/v2?tab=compare&with=v1", "v2", "finding fixed"},
		{"image-compare-kind", repo + "/images/v2?tab=compare&with=v1&kind=KIND_PACKAGE_CHANGED", "v2", "1.2.0"},
		{"image-compare-past", repo + "/images/v2?tab=compare&with=edge&at=" + time.Now().Add(24*time.Hour).Format("2006-01-02T15:04"), "v2", "Nothing differs"},
		{"image-compare-nothing", repo + "/images/v2?tab=compare", "v2", "Name a tag or a digest"},
		{"repo-timeline", repo + "?tab=history&tag=edge", "web", "compare with the one before"},
		{"advisory", "/console/advisories/CVE-2026-1000", "CVE-2026-1000", "before 1.3.0"},
		{"advisory-images", "/console/advisories/GHSA-left?tab=images", "GHSA-left", "linux/amd64"},
		{"advisory-blast", "/console/advisories/GHSA-left?tab=blast", "GHSA-left", "Who can push a fix"},
		{"advisory-graph", "/console/advisories/GHSA-left?tab=blast&graph=true", "GHSA-left", "Runs at"},
		{"missing", "/console/nothing", "There is nothing here", "Check the address"},
	}
	var shells sync.WaitGroup
	defer shells.Wait()
	for _, v := range walk {
		b.open(s.BaseURL + v.path)
		b.see(v.heading)
		b.read(v.text)
		b.unharmed(v.name)
		b.judge(v.name)
		for _, command := range b.commands() {
			shells.Go(func() { p.shell(v.name, command) })
		}
		for _, complaint := range said.take() {
			t.Errorf("%s: %s", v.name, complaint)
		}
	}
	b.open(s.BaseURL + "/console/advisories/GHSA-left?tab=blast")
	b.read("Who can push a fix")
	var saved string
	b.run("catch what is saved", chromedp.Evaluate(`URL.createObjectURL = blob => { blob.text().then(text => window.saved = text); return "#" }`, nil))
	b.press("Download as CSV")
	b.run("read it", chromedp.Poll(`window.saved`, &saved))
	for _, want := range []string{"stage,what,id,more\r\n", "tags,dev/platform/web:v1,sha256:", ",'=1+1\r\n"} {
		if !strings.Contains(saved, want) {
			t.Errorf("the file lacks %q:\n%s", want, saved)
		}
	}
	b.open(s.BaseURL + "/console/")
	b.read("CVE-2026-1000")
	b.inspect("console")
}

// TestConsolePicture takes the picture of the documents.
func TestConsolePicture(t *testing.T) {
	if !*update {
		t.Skip("it is taken with -update")
	}
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", "What the platform team runs")
	p.run("iam", "identities", "create", "ci", "--parent", "dev/platform", "--issuer", "https://issuer.example.com", "--subject", "main")
	p.run("iam", "invites", "create", "--parent", "dev", "--role", "owner", "--ttl", "7d")
	s.push(t, "dev/platform/web", "v1", "1.2.0")
	s.push(t, "dev/platform/api", "v7", "1.2.0")
	p.advise("Prototype pollution in left", "A crafted object changes the prototype of all others.", "https://example.com/left")
	p.compared()
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	b.read("CVE-2026-1000")
	b.shootTo(filepath.Join("..", "..", "docs", "console", "home.png"), 1280, "light")
}

// commands returns what "As a command" shows.
func (b *tab) commands() (shown []string) {
	b.t.Helper()
	b.run("ask for the command", chromedp.Evaluate(`new Promise(done => {
		const button = document.querySelector("[popovertarget]");
		if (!button) return done([]);
		button.click();
		const look = () => {
			const shown = [...document.querySelectorAll(".popover pre")].map(p => p.innerText);
			if (shown.length === 0) return setTimeout(look, 10);
			document.querySelector(".popover").hidePopover();
			done(shown);
		};
		look();
	})`, &shown, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return shown
}

// shell runs a line that the console shows, as somebody who pastes it into a terminal.
func (p *person) shell(view, line string) {
	p.t.Helper()
	if strings.Contains(line, "ORGANIZATION") { // for people to fill in
		return
	}
	holdfast := p.command(p.t.Context())
	link := filepath.Join(p.folder, "holdfast")
	if err := os.Symlink(holdfast.Path, link); err != nil && !os.IsExist(err) {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.Replace(line, "curl ", "curl --fail-with-body -sS ", 1))
	cmd.Env = append(holdfast.Env, "PATH="+p.folder+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if no := strings.HasPrefix(line, "holdfast iam can ") && cmd.ProcessState.ExitCode() == 3; err != nil && !no { // no is an answer
		p.t.Errorf("%s shows the command\n%s\n%v: %s", view, line, err, out)
	}
}

// judge holds the rules of accessibility against a view, on a desktop and on a phone, each in one
// of the tab's schemes: all rules in the light, contrast in the dark.
func (b *tab) judge(name string) {
	b.t.Helper()
	b.loadRules()
	b.run("on a desktop", chromedp.EmulateViewport(1280, 800))
	b.fits(name, 1280)
	b.obeys(name, 1280, b.schemes[0])
	b.keep(name, 1280, b.schemes[0])
	b.run("on a phone", chromedp.EmulateViewport(390, 800))
	b.fits(name, 390)
	b.obeys(name, 390, b.schemes[1])
	b.keep(name, 390, b.schemes[1])
	b.run("back to the desktop", chromedp.EmulateViewport(1280, 800), b.scheme("light"))
}

// keep takes a picture of a view of the console if somebody wants to look at it.
func (b *tab) keep(name string, width int64, scheme string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	b.shootTo(filepath.Join(*pictures, fmt.Sprintf("console-%s-%d-%s.png", name, width, scheme)), width, scheme)
}

// unharmed fails the test if the text of somebody else has run as a script.
func (b *tab) unharmed(name string) {
	b.t.Helper()
	var harmed bool
	b.run("look for harm", chromedp.Evaluate(`!!window.hacked || !!document.querySelector("main img, main script, a[href^='javascript']")`, &harmed))
	if harmed {
		b.t.Errorf("%s: the text of somebody else is part of the page", name)
	}
}

// TestConsoleKeys moves through the console without a mouse, and back.
func TestConsoleKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.owner(t).run("iam", "groups", "create", "platform", "--parent", "dev")
	b := newTab(t)
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	b.see("Home")
	var names []string
	b.run("read the navigation", chromedp.Evaluate(`[...document.querySelectorAll('nav[aria-label="Console"] a')].map(a => a.innerText)`, &names))
	if want := []string{"Home", "Search", "Tree", "Access", "People", "Workloads", "Sign-in", "Repos", "Vulnerabilities", "Audit", "Events", "Account", "Operator"}; !slices.Equal(names, want) {
		t.Errorf("the navigation has %q, want %q", names, want)
	}
	b.press("Tree")
	b.see("Tree")
	b.run("go to the tree", chromedp.Focus(`[role="treeitem"]`, chromedp.ByQuery))
	b.keys(kb.ArrowRight)
	b.run("it is open", chromedp.WaitVisible(`[role="treeitem"][aria-level="2"]`, chromedp.ByQuery))
	if !strings.Contains(b.address(), "open="+s.OrganizationUID) {
		t.Errorf("what is open is not in the address %s", b.address())
	}
	b.keys(kb.ArrowRight)
	var leaf string
	b.run("look for the arrow", chromedp.Evaluate(`document.activeElement.getAttribute("aria-expanded") ?? "none"`, &leaf))
	if leaf != "none" {
		t.Errorf("a group without folders can be opened: %s", leaf)
	}
	b.keys(kb.Enter)
	b.see("platform")
	b.run("back", chromedp.NavigateBack())
	b.run("the tree is still open", chromedp.WaitVisible(`[role="treeitem"][aria-level="2"]`, chromedp.ByQuery))
	b.run("reload", chromedp.Reload())
	b.run("and still", chromedp.WaitVisible(`[role="treeitem"][aria-level="2"]`, chromedp.ByQuery))
	b.keys("/")
	if got := b.focused(); got != "Beginning of a name or path" {
		t.Errorf("the focus is on %q, want the filter", got)
	}
	b.run("leave the filter", chromedp.Evaluate(`document.activeElement.blur()`, nil))
	b.keys("?")
	b.run("see the help", chromedp.WaitVisible(`//dialog//h2[.="Keys"]`))
	b.keys(kb.Escape)
	b.run("and no more", chromedp.WaitNotPresent(`dialog`, chromedp.ByQuery))
	b.keys("gr")
	b.see("Repos")
	b.read("There is no repo yet")
	b.open(s.BaseURL + "/")
	b.press("Open the console")
	b.see("Home")
}

// TestConsoleChanges grants and removes a role and deletes tags, as one who may. One who may not
// does not see the buttons, and is refused by the API.
func TestConsoleChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.owner(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	p.run("iam", "identities", "create", "ci", "--parent", "dev/platform", "--issuer", "https://issuer.example.com", "--subject", "main")
	s.push(t, "dev/platform/web", "v1", "1.2.0")
	s.push(t, "dev/platform/web", "v2", "1.3.0")
	group, repo, ci := p.resolve("dev/platform", "groups"), p.resolve("dev/platform/web", "repos"), p.resolve("dev/platform/ci", "identities")

	b := newTab(t)
	b.console(s, "/console/groups/"+group+"?tab=people", s.OwnerEmail, s.OwnerPassword)
	b.read("No role is granted here")
	b.press("Grant a role")
	b.fill("Who", "dev/platform/nobody")
	b.press("Check")
	b.read("Request") // the server's words, and the id to ask about
	b.fill("Who", "dev/platform/ci")
	b.press("Check")
	b.read("and in everything below it")
	b.judge("grant")
	b.press("Grant")
	b.run("see the role", chromedp.WaitVisible(`button[aria-label="Remove viewer of ci"]`, chromedp.ByQuery))
	b.press("Remove viewer of ci")
	b.run("confirm", chromedp.Click(`//dialog//button[.="Remove"]`, chromedp.NodeVisible))
	b.read("No role is granted here")

	b.open(s.BaseURL + "/console/repos/" + repo)
	b.press("Move v1")
	b.fill("Tag or digest of the image that it is to stand for", "nosuch")
	b.press("Check")
	b.run("there is no such image", chromedp.WaitVisible(`dialog .problem`, chromedp.ByQuery))
	b.fill("Tag or digest of the image that it is to stand for", "v2")
	b.press("Check")
	b.read("1 package changed")
	b.judge("move")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Move the tag")
	b.run("it is moved", chromedp.WaitNotPresent(`dialog`, chromedp.ByQuery))
	p.shell("move", command)
	if v1, v2 := p.run("registry", "tags", "get", "dev/platform/web:v1", "--columns", "digest"), p.run("registry", "tags", "get", "dev/platform/web:v2", "--columns", "digest"); v1 != v2 {
		t.Errorf("v1 stands for %s, want %s", v1, v2)
	}
	b.open(s.BaseURL + "/console/repos/" + repo + "?tab=history&tag=v1")
	b.press("Move it back here…")
	b.press("Check")
	b.read("Whoever pulls v1 gets")
	b.press("Move the tag")
	b.run("it is back", chromedp.WaitNotPresent(`dialog`, chromedp.ByQuery))
	if v1, v2 := p.run("registry", "tags", "get", "dev/platform/web:v1", "--columns", "digest"), p.run("registry", "tags", "get", "dev/platform/web:v2", "--columns", "digest"); v1 == v2 {
		t.Error("v1 was not moved back")
	}
	b.open(s.BaseURL + "/console/repos/" + repo)
	b.run("choose a tag", chromedp.Click(`input[aria-label="Select v1"]`, chromedp.ByQuery))
	b.press("Delete 1 tag…")
	b.read("These names stop working")
	b.judge("delete")
	b.press("Delete")
	b.run("it is gone", chromedp.WaitNotPresent(`input[aria-label="Select v1"]`, chromedp.ByQuery))
	b.read("v2")

	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/groups/" + group + "?tab=people")
	eve.read("Inherited from dev")
	eve.lacks("Grant a role", "Remove")
	eve.open(s.BaseURL + "/console/repos/" + repo)
	eve.read("v2")
	eve.lacks("Move…")
	eve.refused("POST", "/registry/v2beta1/tags/"+repo, `{"name": "v2", "digest": "sha256:`+strings.Repeat("0", 64)+`"}`)
	eve.refused("POST", "/iam/v2beta1/roleBindings/"+group, fmt.Sprintf(`{"identityUid": %q, "roleUid": %q}`, ci, resource.OwnerRole))
}

// eve is somebody new in the organization, in a window of hers.
func (s *site) eve(t *testing.T, role ...string) *tab {
	t.Helper()
	return s.newcomer(t, "eve@example.com", "Eve Example", role...)
}

// mallory is somebody who may look.
func (s *site) mallory(t *testing.T) *tab {
	t.Helper()
	return s.newcomer(t, "mallory@example.com", "Mallory Example", "--role", "viewer")
}

func (s *site) newcomer(t *testing.T, email, name string, role ...string) *tab {
	t.Helper()
	var made struct{ Link struct{ URL string } }
	s.owner(t).json(&made, append([]string{"iam", "accounts", "create", email, "--parent", "dev", "--name", name}, role...)...)
	b := newTab(t)
	b.open(made.Link.URL)
	b.fill("Password", "nine unrelated words")
	b.press("Begin")
	b.see("Your account")
	return b
}

// lacks fails the test if there is a button of one of these names.
func (b *tab) lacks(buttons ...string) {
	b.t.Helper()
	for _, button := range buttons {
		var there bool
		b.run("look for "+button, chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll("main button")].some(b => b.innerText.trim() === %q)`, button), &there))
		if there {
			b.t.Errorf("somebody who may not sees %q", button)
		}
	}
}

// refused fails the test if the API lets the session do this.
func (b *tab) refused(method, path, body string) {
	b.t.Helper()
	var status int
	b.run("try anyhow", chromedp.Evaluate(fmt.Sprintf(`fetch(%q, {method: %q, headers: {"Holdfast-Console": "1", "Content-Type": "application/json"},
		body: %q || undefined}).then(r => r.status)`, path, method, body), &status,
		func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	if status != http.StatusForbidden {
		b.t.Errorf("%s %s of somebody who may not is answered %d", method, path, status)
	}
}

// TestConsoleSearch finds things with the keyboard, from wherever one is.
func TestConsoleSearch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.owner(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	p.run("iam", "groups", "create", "platform-edge", "--parent", "dev/platform")
	digest := s.push(t, "dev/platform/web", "v1", "1.2.0")
	b := newTab(t)
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	b.see("Home")
	said := b.complaints()
	b.find("platf")
	b.option("platform-edge")
	b.judge("search-dialog")
	b.keys(kb.ArrowDown)
	b.keys(kb.Enter)
	b.see("platform-edge")
	b.run("the dialog is gone", chromedp.WaitNotPresent(`dialog`, chromedp.ByQuery))
	b.find(digest[len("sha256:"):][:12])
	b.option("manifest")
	b.keys(kb.Enter)
	b.see(digest[:len("sha256:")+12])
	b.read("1 package")
	b.find("")
	b.option("dev/platform/platform-edge") // opened lately
	b.judge("search-recent")
	b.keys(kb.Escape)
	b.press("Search")
	b.see("Search")
	b.option("platform-edge")
	if got := b.focused(); !strings.HasPrefix(got, "Name, path, uid") {
		t.Errorf("the focus is on %q, want the field", got)
	}
	b.keys("dev/platform/w")
	b.option("dev/platform/web")
	if got := b.address(); !strings.HasSuffix(got, "q=dev%2Fplatform%2Fw") {
		t.Errorf("what is searched for is not in the address %s", got)
	}

	slow := `{ const send = window.fetch; window.fetch = async (r, ...more) => {
		if (!r.url.endsWith("query=pl")) return send(r, ...more);
		await new Promise(done => setTimeout(done, 1000));
		const answer = await send(r.url, {headers: r.headers}); // although nobody waits for it any more
		window.late = true;
		return answer;
	} }`
	b.run("have one answer come late", chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(slow).Do(ctx)
		return err
	}))
	b.open(s.BaseURL + "/console/search")
	b.run("wait for the field", chromedp.WaitVisible(`[role="combobox"]:focus`, chromedp.ByQuery))
	b.keys("pl")
	b.run("let it be asked for", chromedp.Sleep(300*time.Millisecond))
	b.keys("atform-e")
	b.option("platform-edge")
	b.run("wait for the late answer", chromedp.Poll(`window.late`, nil), chromedp.Sleep(100*time.Millisecond))
	var options int
	b.run("count", chromedp.Evaluate(`document.querySelectorAll("[role=option]").length`, &options))
	if options != 1 {
		t.Errorf("%d things begin with platform-e, want 1: the late answer is shown", options)
	}
	for _, complaint := range said.take() {
		t.Error(complaint)
	}

	eve := s.eve(t)
	eve.open(s.BaseURL + "/console/search?q=platf")
	eve.read("Nothing that you may see")
}

// unsigned is a token that nobody has signed.
func unsigned(issuer, subject string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg": "RS256", "kid": "1"}`)) + "." + part(fmt.Appendf(nil, `{"iss": %q, "sub": %q, "aud": "holdfast", "iat": 1795000000, "exp": 1895000000, "note": "<script>window.hacked = 1</script>"}`, issuer, subject)) + ".c2lnbmVk"
}

// deny has a token refused for a workload.
func (s *site) deny(t *testing.T, identity string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL+"/sts/exchange?aud="+url.QueryEscape(s.BaseURL)+"&identity="+url.QueryEscape(identity), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+unsigned("https://elsewhere.example.com", "main"))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // nobody reads it
	if answer.StatusCode < 400 || answer.StatusCode >= 500 {
		t.Fatalf("a token that nobody has signed: %s", answer.Status)
	}
}

// TestConsolePeople invites somebody, who joins, and ends a session of theirs.
func TestConsolePeople(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/people?tab=invites", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("No invite is pending")
	b.press("Invite somebody")
	b.judge("invite")
	b.press("Create the invite")
	b.read("It is shown only now")
	b.judge("invite-link")
	var link string
	b.run("read the link", chromedp.Text(`dialog pre`, &link, chromedp.ByQuery))
	b.press("Done")
	b.read("whoever has the link")

	eve := s.eve(t) // who has no role yet
	eve.open(link)
	eve.press("Allow")
	within(t, "she has joined", func() bool { return strings.Contains(eve.address(), "/welcome") })
	eve.open(s.BaseURL + "/console/people?tab=invites")
	eve.read("No invite is pending") // it worked once
	eve.lacks("Invite somebody", "Delete")
	eve.refused("POST", "/iam/v2beta1/groupInvites/"+s.OrganizationUID, fmt.Sprintf(`{"roleUid": %q, "ttl": "3600s"}`, resource.OwnerRole))
	eve.open(s.BaseURL + "/console/people/" + s.OwnerUID)
	eve.read("What they did")
	eve.lacks("End")

	b.press("Joins")
	b.read("eve example")
	b.judge("joins")
	b.press("eve example")
	b.see("Eve Example")
	b.read("auth.registered")
	b.judge("person-eve")
	for _, command := range b.commands() {
		p.shell("person", command)
	}
	b.press("End")
	b.read("Its tokens are void")
	b.press("End the session")
	b.read("Not signed in anywhere")
	eve.open(s.BaseURL + "/console/")
	eve.see("Sign in")

	p.run("iam", "invites", "create", "--parent", "dev", "--role", "viewer", "--ttl", "7d")
	b.open(s.BaseURL + "/console/people?tab=invites")
	b.press("Delete")
	b.read("The link stops working")
	b.press("Delete the invite")
	b.read("No invite is pending")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// TestConsoleWorkloads judges a token, for one workload and for all.
func TestConsoleWorkloads(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	p.run("iam", "identities", "create", "ci", "--parent", "dev", "--issuer", "https://issuer.example.com", "--subject", "main")
	ci := p.resolve("dev/ci", "identities")
	b.console(s, "/console/workloads", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.press("ci")
	b.see("ci")
	b.press("Try a token")
	b.fill("A token of the workload's platform", "abc")
	b.read("no token that can be decoded")
	b.fill("A token of the workload's platform", unsigned("https://issuer.example.com", "branch"))
	b.read("window.hacked") // as text, before the server has seen it
	b.press("Judge")
	b.read("is refused")
	b.read("branch")
	b.unharmed("token")
	b.judge("token")
	b.open(s.BaseURL + "/console/workloads?tab=token")
	b.read("It is decoded in this browser")
	b.fill("A token of the workload's platform", unsigned("https://issuer.example.com", "branch"))
	b.press("Judge")
	b.read("is refused")
	if got := b.address(); strings.Contains(got, "eyJ") {
		t.Errorf("the token is in the address %s", got)
	}
	for _, complaint := range said.take() {
		t.Error(complaint)
	}

	eve := s.eve(t)
	eve.open(s.BaseURL + "/console/workloads")
	eve.read("You are in no organization yet")
	eve.refused("GET", "/federation/v1/denials?identity_uid="+url.QueryEscape(ci), "")
}

// TestConsoleEnroll adds a workload of every platform. The rules are those that the command makes.
func TestConsoleEnroll(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/workloads", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("There is no workload in it")
	b.press("Add a workload")
	b.choose("Platform", "github")
	b.fill("Repository", "nonsense")
	b.press("Check")
	b.run("the mistake is at the field", chromedp.WaitVisible(`input[name="repo"][aria-invalid] + .wrong`, chromedp.ByQuery))
	b.read("give exactly one of branch, tag, environment")
	b.judge("enroll-wrong")
	for _, tt := range []struct{ platform, typed, command, paste string }{
		{"github", "repo=Acme/we.b&branch=main&owner-id=7", "github --repo Acme/we.b --branch main --owner-id 7", "id-token: write"},
		{"gitlab", "project=acme/sub/web&environment=prod", "gitlab --project acme/sub/web --environment prod", "id_tokens:"},
		{"gitlab", "project=acme/web&tag=v1&project-id=3", "gitlab --project acme/web --tag v1 --project-id 3", "id_tokens:"},
		{"buildkite", "org=acme&pipeline=web&branch=feature/a.b", "buildkite --org acme --pipeline web --branch feature/a.b", "steps:"},
		{"kubernetes", "issuer=https://k8s.example.com&namespace=shop&service-account=web", "kubernetes --issuer https://k8s.example.com --namespace shop --service-account web", "serviceAccountToken"},
		{"aws", "aws-account=123456789012&aws-arn-pattern=arn:aws:sts::123456789012:assumed-role/build/.%2B", "aws --aws-account 123456789012 --aws-arn-pattern arn:aws:sts::123456789012:assumed-role/build/.+", "aws configure export-credentials"},
		{"other", "issuer=https://jenkins.example.com&subject=job/release", "release --issuer https://jenkins.example.com --subject job/release", "HOLDFAST_IDENTITY_TOKEN_FILE"},
	} {
		name := fmt.Sprintf("w%x", sha256.Sum256([]byte(tt.typed)))[:8]
		b.open(s.BaseURL + "/console/workloads/new?platform=" + tt.platform + "&" + tt.typed + "&name=" + name)
		b.press("Check")
		b.read("becomes " + name)
		for _, command := range b.commands() {
			p.shell("enroll", command)
		}
		b.press("Add the workload")
		b.see(name)
		b.read(tt.paste)
		b.read("Waiting for its first token")
		var made, wanted struct{ ClaimMatch, AwsIdentity map[string]any }
		p.json(&made, "iam", "identities", "get", "dev/"+name)
		p.json(&wanted, append(strings.Fields("iam identities create "+tt.command), "--parent", "dev", "--dry-run")...)
		if len(made.ClaimMatch)+len(made.AwsIdentity) == 0 || !reflect.DeepEqual(made, wanted) {
			t.Errorf("%s: the console makes %v, the command %v", tt.typed, made, wanted)
		}
	}
	b.judge("setup")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/workloads")
	eve.read("workloads")
	eve.lacks("Add a workload")
	eve.open(s.BaseURL + "/console/workloads/new?platform=github")
	eve.read("You may not add a workload here")
	eve.refused("POST", "/iam/v2beta1/identities/"+s.OrganizationUID, `{"name": "mine", "claimMatch": {"issuer": "https://eve.example.com", "subject": "eve"}}`)
}

// TestConsoleFirstExchange waits for a workload that misses at first, changes its rule by what it
// came with, and sees it come.
func TestConsoleFirstExchange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	var dev struct{ TestIssuer string }
	text, err := os.ReadFile(s.devFile)
	if err == nil {
		err = json.Unmarshal(text, &dev)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.run("iam", "identities", "create", "ci", "--parent", "dev", "--issuer", dev.TestIssuer, "--subject", "repo:acme/web:ref:refs/heads/main")
	ci := p.resolve("dev/ci", "identities")
	file := filepath.Join(t.TempDir(), "token.jwt")
	if err := os.WriteFile(file, []byte(p.run("dev", "token", "github", "--repo", "acme/other", "--ref", "main", "--dev-file", s.devFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	job := s.person(t)
	exchange := func() error {
		_, _, err := job.try("auth", "login", "--identity", ci, "--identity-token", file)
		return err
	}
	b.console(s, "/console/workloads/"+ci+"?tab=setup", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("Waiting for its first token")
	if exchange() == nil {
		t.Fatal("a token of another repository is exchanged")
	}
	s.deny(t, ci) // which nobody has signed, and so is no near miss
	b.read("2 tokens were refused")
	b.judge("setup-refused")
	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/workloads/" + ci + "?tab=denials")
	eve.read("repo:acme/other")
	eve.lacks("Expect it instead…", "Accept both…")
	eve.refused("PATCH", "/iam/v2beta1/identities/"+ci, `{"claimMatch": {"issuer": "https://eve.example.com", "subject": "eve"}}`)

	b.press("see why")
	b.read("A near miss")
	b.judge("near-miss")
	var fixes int
	b.run("count the fixes", chromedp.Evaluate(`[...document.querySelectorAll("main button")].filter(b => b.innerText.includes("Accept both")).length`, &fixes))
	if fixes != 1 {
		t.Errorf("%d refusals can be accepted, want the one that was signed", fixes)
	}
	b.press("Accept both…")
	b.read("are exchanged, too")
	b.judge("near-miss-fix")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Change the rule")
	b.run("the dialog closes", chromedp.WaitNotPresent(`dialog`, chromedp.ByQuery))
	p.shell("near miss", command+" --dry-run")
	b.open(s.BaseURL + "/console/workloads/" + ci + "?tab=setup")
	b.read("Waiting for its first token")
	if err := exchange(); err != nil {
		t.Errorf("after the rule was changed: %v", err)
	}
	b.read("a token of it was exchanged") // without a reload
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// TestConsoleSignIn connects a provider, which is wrong at first at every step, tries it, lets people
// in, maps a group, and takes all of it away again.
func TestConsoleSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	address := freeAddress(t)
	upstream(t, address, filepath.Join(needs(t), "dex"), "-listen", address, "-client-secret", "the secret of dex",
		"-redirect", redirectAddress(p), "-email", "ann@example.com", "-password", "ann's at dex")
	b.console(s, "/console/sign-in", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("No provider is connected")
	b.press("Connect a provider")
	b.choose("The provider", "okta")
	b.fill("Issuer", "no address")
	b.press("Test the issuer")
	b.run("the error is at the field", chromedp.WaitVisible(`input[name="issuer"][aria-invalid] + .wrong`, chromedp.ByQuery))
	b.fill("Issuer", "http://"+freeAddress(t))
	b.press("Test the issuer")
	b.run("it does not answer", chromedp.WaitVisible(`//ul[contains(@class, "checks")]//*[contains(@class, "wrong")]`))
	b.judge("connect-issuer")
	b.fill("Issuer", "http://"+address)
	b.press("Test the issuer")
	b.read("its keys can be fetched")
	b.fill("Client ID", "holdfast")
	b.fill("Client secret", "a guess")
	b.press("Test the client")
	b.run("it is refused", chromedp.WaitVisible(`//ul[contains(@class, "checks")]//*[contains(@class, "wrong")]`))
	b.fill("Client secret", "the secret of dex")
	b.press("Test the client")
	b.read("it knows the client")
	b.fill("Name", "dex")
	b.read("Everybody whom the provider lets in gets viewer")
	b.judge("connect-client")
	if got := b.address(); strings.Contains(got, "secret") || !strings.Contains(got, "client=holdfast") {
		t.Errorf("the address is %s, want all but the secret in it", got)
	}
	b.press("Create it, disabled")
	b.see("dex")
	b.read("people can be sent there")
	b.read("disabled")
	b.judge("provider-new")
	for _, command := range b.commands() {
		p.shell("provider", command)
	}

	var trial string
	b.run("find the trial", chromedp.AttributeValue(`//a[.="Try a sign-in"]`, "href", &trial, nil))
	ann := newTab(t)
	ann.open(trial)
	ann.signInAtDex()
	ann.see("dex works")
	ann.read("viewer")
	b.press("Enable")
	b.read("Everybody whom it lets in can sign in from now on")
	b.judge("provider-enable")
	b.press("Enable it")
	b.read("in use")

	page := b.address()
	b.press("Group mappings")
	b.read("No group of the provider is mapped")
	b.press("Map a group")
	b.fill("Group at the provider", "eng")
	b.choose("Role", "editor")
	b.press("Check")
	b.read("Everybody who is in eng when they sign in with dex gets editor")
	b.judge("map")
	b.press("Map it")
	b.press("what they get")
	b.read("as long as they are in eng")
	ann.open(trial)
	ann.signInAtDex()
	ann.see("dex works")
	ann.read("editor") // the preview is what the server says

	eve := s.eve(t, "--role", "viewer")
	provider := p.resolve("dev/dex", "identity_providers")
	for path, button := range map[string]string{"/console/sign-in": "Connect a provider", "/console/sign-in?tab=rules": "Switch accounts off"} {
		eve.open(s.BaseURL + path)
		eve.see("Sign-in")
		eve.run("wait", chromedp.WaitVisible(`//main//table | //main//dl`))
		eve.lacks(button)
	}
	eve.open(page)
	eve.read("people can be sent there")
	eve.lacks("Disable", "Delete")
	eve.press("Group mappings")
	eve.read("eng")
	eve.lacks("Map a group", "Delete")
	eve.open(s.BaseURL + "/console/sign-in/new?group=" + s.OrganizationUID)
	eve.read("You may not connect a provider here")
	eve.refused("POST", "/iam/v2beta1/identityProviders/"+s.OrganizationUID, fmt.Sprintf(`{"name": "mine", "defaultRole": %q, "oidc": {"issuer": "https://eve.example.com", "clientId": "x", "pkceEnabled": true}}`, resource.OwnerRole))
	eve.refused("POST", "/signin/v1/providers:test", fmt.Sprintf(`{"parent": %q, "identityProvider": {"name": "mine", "defaultRole": %q, "oidc": {"issuer": "https://eve.example.com", "clientId": "x", "pkceEnabled": true}}}`, s.OrganizationUID, resource.OwnerRole))
	eve.refused("PATCH", "/iam/v2beta1/identityProviders/"+provider, `{"disabled": true}`)
	eve.refused("DELETE", "/iam/v2beta1/identityProviders/"+provider, "")
	eve.refused("POST", "/iam/v2beta1/externalGroupRoleMappings/"+provider, fmt.Sprintf(`{"externalGroupId": "all", "roleUid": %q}`, resource.OwnerRole))
	eve.refused("PATCH", "/signin/v1/rules/"+s.OrganizationUID, `{"localAccounts": false}`)

	b.open(s.BaseURL + "/console/sign-in?tab=rules")
	b.press("Switch accounts off")
	b.read("Whoever has no provider is locked out")
	b.press("Switch them off")
	b.run("it is refused, because no owner has come through dex", chromedp.WaitVisible(`dialog .problem`, chromedp.ByQuery))
	b.judge("rules-refused")

	b.open(page)
	b.press("Delete")
	b.press("Delete it")
	b.run("it is refused, because it has a mapping", chromedp.WaitVisible(`dialog .problem`, chromedp.ByQuery))
	b.press("Keep it")
	b.press("Group mappings")
	b.press("Delete the mapping of eng")
	b.read("lose it at their next sign-in")
	b.press("Delete the mapping")
	b.read("No group of the provider is mapped")
	b.press("Provider")
	b.press("Delete")
	b.press("Delete it")
	b.see("Sign-in")
	b.read("No provider is connected")
	for _, complaint := range said.take() {
		if !strings.Contains(complaint, "status of 400") && !strings.Contains(complaint, "status of 412") { // the browser's word for what was refused
			t.Error(complaint)
		}
	}
}

// choose picks an option of the field of a label.
func (b *tab) choose(label, option string) {
	b.t.Helper()
	var found bool
	b.run(fmt.Sprintf("choose %q", option), chromedp.Poll(fmt.Sprintf(`(e => {
		const option = [...e?.options ?? []].find(o => o.value === %[2]q || o.text === %[2]q);
		if (!option) return false;
		e.value = option.value;
		e.dispatchEvent(new Event("change", {bubbles: true}));
		return true;
	})([...document.querySelectorAll("label")].find(l => l.innerText.trim() === %[1]q)?.control)`, label, option), &found))
}

// TestConsoleAccount shows who one is, and ends the session.
func TestConsoleAccount(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.eve(t, "--role", "viewer")
	said := b.complaints()
	b.open(s.BaseURL + "/console/account")
	b.read("eve example")
	b.read("viewer")
	b.judge("account-eve")
	var operators int
	b.run("look for the operator's view", chromedp.Evaluate(`document.querySelectorAll('nav a[href="/console/operator"]').length`, &operators))
	if operators != 0 {
		t.Error("one who is no operator sees the link")
	}
	b.open(s.BaseURL + "/console/operator")
	b.read("You are no operator of this installation")
	b.judge("operator-eve")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
	b.refused("GET", "/operator/v1/installation", "")
	b.open(s.BaseURL + "/console/account")
	b.press("Sign out")
	b.see("Sign in")
	b.open(s.BaseURL + "/console/account")
	b.see("Sign in")
}

// TestConsoleEvents makes a subscription, looks at what could not be delivered to it, sends that
// again and deletes the subscription.
func TestConsoleEvents(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(sink.Close)
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", hostile)
	b.console(s, "/console/events", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("There is no subscription")
	b.press("Subscribe")
	b.fill("Events of the group", "dev/platform")
	b.fill("Address to post them to", sink.URL+"?key=secret")
	b.press("Check")
	b.read("and of everything below it will be sent there")
	b.judge("subscribe")
	b.press("Create the subscription")
	b.read(sink.URL)
	b.press("Test")
	b.read("now and once")
	b.press("Send it")
	b.read("the sink answered 503")
	b.judge("test-subscription")
	well.Store(true)
	b.press("Send another")
	b.read("It was taken")
	well.Store(false)
	b.press("Close")

	p.giveUp(3)
	subscription := p.run("events", "subscriptions", "list", "-o", "id")
	b.open(s.BaseURL + "/console/events?tab=deliveries&subscription=" + subscription)
	b.read("3 failed deliveries")
	b.run("open one", chromedp.Click(`(//details/summary)[1]`))
	b.read("createTime") // of the body
	b.unharmed("deliveries")
	b.judge("deliveries")
	for _, command := range b.commands() {
		p.shell("deliveries", command)
	}
	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/events?tab=deliveries&subscription=" + subscription)
	eve.read("3 failed deliveries")
	eve.lacks("Replay", "Replay all")
	eve.refused("POST", "/deliveries/v1/replays/"+subscription, "{}")
	eve.press("Subscriptions")
	eve.read("?redacted")
	eve.lacks("Subscribe", "Delete", "Test")
	eve.refused("POST", "/deliveries/v1/tests/"+subscription, "{}")
	eve.refused("POST", "/events/v2beta1/subscriptions/"+s.OrganizationUID, `{"sink": "https://hooks.invalid"}`)
	eve.refused("DELETE", "/events/v2beta1/subscriptions/"+subscription, "")

	well.Store(true)
	b.press("Replay")
	b.press("Send it again")
	b.reload("2 failed deliveries")
	b.press("Replay all")
	b.press("Send them again")
	b.reload("Everything was delivered")
	b.press("Subscriptions")
	b.press("Delete")
	b.read("gets no more events")
	b.press("Delete the subscription")
	b.read("There is no subscription")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// TestConsoleAsksAgain: what is sensitive needs a sign-in of the last ten minutes, and what was
// entered meanwhile is not lost.
func TestConsoleAsksAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := newTab(t)
	b.console(s, "/console/events", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	subscribe := func() {
		b.press("Subscribe")
		b.fill("Events of the group", "dev")
		b.fill("Address to post them to", "https://hooks.invalid/again")
		b.press("Check")
		b.read("will be sent there")
		b.press("Create the subscription")
	}
	b.run("ten minutes later", network.DeleteCookies("hf_fresh").WithURL(s.BaseURL))
	subscribe()
	b.read("what you have entered here stays")
	b.judge("again")
	for _, complaint := range said.take() {
		if !strings.Contains(complaint, "400") { // the browser tells of the refusal
			t.Error(complaint)
		}
	}
	var address, typed string
	b.run("read where it leads", chromedp.Evaluate(`document.querySelector(".problem a").href`, &address),
		chromedp.Evaluate(`document.querySelector("dialog input[name=sink]").value`, &typed))
	if typed != "https://hooks.invalid/again" {
		t.Errorf("what was entered has become %q", typed)
	}
	b.open(address)
	b.read("again to go on")
	b.fill("Password", s.OwnerPassword)
	b.press("Sign in")
	b.see("You have signed in again")
	b.judge("confirmed")
	b.open(s.BaseURL + "/console/events")
	subscribe()
	b.read("1 subscription")
}

// TestConsoleTwoWriters: of two people who edit the same, the second is told what the first has
// changed, and overwrites nothing unawares.
func TestConsoleTwoWriters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b, eve := s.owner(t), newTab(t), s.eve(t, "--role", "owner")
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", "as it was")
	address := "/console/groups/" + p.resolve("dev/platform", "groups")
	b.console(s, address, s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	eve.open(s.BaseURL + address)
	for _, one := range []*tab{b, eve} {
		one.read("as it was")
		one.press("Edit")
	}
	eve.fill("Description", "of eve "+hostile)
	eve.press("Save")
	eve.read("of eve")
	b.fill("Description", "of the owner")
	b.press("Save")
	b.read("Nothing of yours was saved")
	b.read("Eve Example")
	b.read("of eve")
	b.unharmed("overtaken")
	b.judge("overtaken")
	if got := p.run("iam", "groups", "get", "dev/platform", "-o", "json"); !strings.Contains(got, "of eve") {
		t.Errorf("the group is %s", got)
	}
	b.press("Save mine all the same")
	within(t, "it is saved", func() bool {
		return strings.Contains(p.run("iam", "groups", "get", "dev/platform", "-o", "json"), "of the owner")
	})
	for _, complaint := range said.take() {
		if !strings.Contains(complaint, "409") { // the browser tells of the refusal
			t.Error(complaint)
		}
	}
	mallory := s.mallory(t)
	mallory.open(s.BaseURL + address)
	mallory.read("of the owner")
	mallory.lacks("Edit")
	mallory.refused("PATCH", strings.Replace(address, "/console", "/iam/v2beta1", 1), `{"description": "mine"}`)
}

// TestConsoleRequests asks for a role for a time, has it approved, and hands it back.
func TestConsoleRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b, eve := s.owner(t), newTab(t), s.eve(t, "--role", "viewer")
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	b.console(s, "/console/access?show=requests", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("Nobody has asked for a role")
	b.judge("requests-none")
	eve.open(s.BaseURL + "/console/access?show=requests")
	eve.press("Ask for a role")
	eve.read("No role can be asked for")
	p.run("access", "rules", "create", "editor", "--on", "dev/platform", "--max", "8h", "--reason-required")
	eve.run("reload", chromedp.Reload())
	eve.press("Ask for a role")
	eve.read("At most 8 hours")
	eve.fill("For how many hours", "2")
	eve.fill("Why", "incident 7 "+hostile)
	eve.judge("ask")
	eve.press("Ask")
	eve.read("pending")
	eve.lacks("Approve", "Deny")
	var asked []struct{ UID string }
	p.json(&asked, "access", "requests", "list")
	eve.refused("POST", "/access/v1/approvals/"+asked[0].UID, "{}")
	eve.refused("POST", "/access/v1/denials/"+asked[0].UID, "{}")

	b.open(s.BaseURL + "/console/")
	b.read("Requests to approve")
	b.read("incident 7")
	b.judge("home-requests")
	b.press("All requests")
	b.read("for 2 hours")
	for _, command := range b.commands() {
		p.shell("requests", command)
	}
	b.press("Approve")
	b.read("from the last approval on")
	b.judge("approve")
	b.run("approve", chromedp.Click(`//dialog//button[normalize-space()="Approve"]`))
	b.read("granted")
	b.unharmed("requests")
	b.judge("requests")
	eve.reload("granted")
	eve.press("Hand back")
	eve.run("hand back", chromedp.Click(`//dialog//button[normalize-space()="Hand back"]`))
	eve.read("handed back")

	b.open(s.BaseURL + "/console/groups/" + p.resolve("dev/platform", "groups") + "?tab=people")
	b.press("Grant a role")
	b.fill("Who", "Eve Example")
	b.fill("Why", "until the audit")
	b.run("for a day", chromedp.SetValue(`select[name="for"]`, "24", chromedp.ByQuery))
	b.run("tell", chromedp.Evaluate(`document.querySelector('select[name="for"]').dispatchEvent(new Event("change", {bubbles: true}))`, nil))
	b.press("Check")
	b.read("until")
	b.judge("grant-for-a-time")
	b.run("grant", chromedp.Click(`//dialog//button[normalize-space()="Grant"]`))
	b.read("until the audit")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// TestConsoleLive watches changes while somebody else makes them, each with what may be seen.
func TestConsoleLive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/audit?type=iam.group", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	eve := s.eve(t)
	b.press("Watch live")
	b.read("Live since")
	b.read("Nothing has happened since")
	eve.open(s.BaseURL + "/console/events?tab=live")
	eve.read("Live since")
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", hostile)
	live := func(tab *tab) (n int) {
		tab.run("count", chromedp.Evaluate(`document.querySelectorAll("section.live li").length`, &n))
		return n
	}
	within(t, "the change is shown", func() bool { return live(b) == 1 })
	b.run("open it", chromedp.Click(`(//section[@aria-label="Live"]//summary)[1]`))
	b.read("description")
	b.unharmed("live")
	b.judge("live")
	b.run("reload", chromedp.Reload())
	b.read("Live since")
	if !strings.Contains(b.address(), "live=1") {
		t.Error("the address does not say that it is live")
	}
	p.run("iam", "groups", "create", "edge", "--parent", "dev/platform")
	within(t, "the next change is shown", func() bool { return live(b) == 1 })
	b.press("Events")
	b.press("Live")
	b.read("Live since")
	b.judge("events-live")
	p.run("iam", "groups", "create", "core", "--parent", "dev/platform")
	within(t, "the change is shown among events", func() bool { return live(b) == 1 })
	if n := live(eve); n != 0 {
		t.Errorf("somebody who may not list is shown %d changes", n)
	}
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// reload loads the page again until it has a text, because what it waits for happens elsewhere.
func (b *tab) reload(text string) {
	b.t.Helper()
	within(b.t, "the page has "+text, func() bool {
		var there bool
		b.run("reload", chromedp.Reload(), chromedp.WaitVisible(`main h1`, chromedp.ByQuery), chromedp.Sleep(200*time.Millisecond),
			chromedp.Evaluate(fmt.Sprintf(`document.body.innerText.includes(%q)`, text), &there))
		return there
	})
}

// giveUp has the event of the group dev/platform given up n times, as if a day had passed.
func (p *person) giveUp(n int) {
	p.t.Helper()
	group := p.resolve("dev/platform", "groups")
	var log []struct {
		ID, Subject, Group string
		Time               time.Time
	}
	p.json(&log, "audit", "--subject", group)
	path := filepath.Join(p.t.TempDir(), "holdfast.db") // another name, because the server has locked its own
	if err := os.Symlink(p.site.database, path); err != nil {
		p.t.Fatal(err)
	}
	db := storetest.Open(p.t, path)
	sub := resource.UID(p.run("events", "subscriptions", "list", "-o", "id"))
	var all []resource.Delivery
	for i := range n {
		e := log[0]
		event := resource.Event{Seq: int64(i + 1), ID: e.ID, Type: resource.GroupCreated, Subject: resource.UID(e.Subject), Group: resource.UID(e.Group), Time: e.Time, Before: []byte{}}
		event.After = fmt.Appendf(nil, `{"uid": %q, "name": "platform"}`, group)
		all = append(all, resource.Delivery{UID: sub.NewChild(), Event: event, Attempts: 3, Error: "the sink answered 503 " + hostile, CreateTime: time.Now(), UpdateTime: time.Now()})
	}
	if err := db.GiveUp(p.t.Context(), sub, 0, all); err != nil {
		p.t.Fatal(err)
	}
}

// find opens the search and types a text.
func (b *tab) find(text string) {
	b.t.Helper()
	b.run("open the search", chromedp.KeyEvent("k", chromedp.KeyModifiers(input.ModifierCtrl)),
		chromedp.WaitVisible(`dialog [role="combobox"]:focus`, chromedp.ByQuery))
	if text != "" {
		b.keys(text)
	}
}

// option waits for a line of the list.
func (b *tab) option(text string) {
	b.t.Helper()
	b.run(fmt.Sprintf("see %q in the list", text), chromedp.WaitVisible(fmt.Sprintf(`//*[@role="option"][contains(., %q)]`, text)))
}
