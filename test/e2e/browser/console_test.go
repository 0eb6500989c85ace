package browser_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// push pushes an image with one package to a repo, and returns its digest.
func (s *site) push(t *testing.T, repo, tag, version string) string {
	t.Helper()
	return s.pushWith(t, repo, tag, version, map[string]any{"history": []any{
		map[string]any{"created": "2026-01-02T03:04:05Z", "created_by": "COPY app /app # " + hostile},
		map[string]any{"created_by": "ENV A=1", "empty_layer": true},
	}})
}

// pushWith is like push, and adds the fields in more to the configuration of the image.
func (s *site) pushWith(t *testing.T, repo, tag, version string, more map[string]any) string {
	t.Helper()
	var layer bytes.Buffer
	zip := gzip.NewWriter(&layer)
	archive := tar.NewWriter(zip)
	text := fmt.Sprintf(`{"name": "left", "version": %q}`, version)
	err := archive.WriteHeader(&tar.Header{
		Name: "app/node_modules/left/package.json", Mode: 0o644, Size: int64(len(text)),
	})
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
	about := map[string]any{
		"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []any{}},
	}
	maps.Copy(about, more)
	config, err := json.Marshal(about)
	if err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": %q, "size": %d},
		"layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": %q, "size": %d}]}`,
		digestOf(config), len(config), digestOf(layer.Bytes()), layer.Len())
	for _, blob := range [][]byte{config, layer.Bytes()} {
		s.send(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+url.QueryEscape(digestOf(blob)),
			"application/octet-stream", blob)
	}
	s.send(t, http.MethodPut, "/v2/"+repo+"/manifests/"+tag, "application/vnd.oci.image.manifest.v1+json", manifest)
	return digestOf(manifest)
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// send sends a request to the registry, which must accept it.
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
	defer func() { _ = answer.Body.Close() }() // the body is not read
	if answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", method, path, answer.Status)
	}
}

// ask sends a request to the API as the owner, and returns the status of the response.
func (s *site) ask(t *testing.T, method, path string, body any) int {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.BaseURL+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // the body is not read
	return answer.StatusCode
}

const hostile = `<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">`

// furnish creates at least one resource of each kind that the console shows: folders, one of them with a hostile
// name, a workload with a role, images, an advisory about the images, an exception, a rule and a feed.
func (s *site) furnish(t *testing.T) {
	t.Helper()
	p := s.owner(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", hostile+strings.Repeat("W", 300))
	p.run("iam", "groups", "create", "edge", "--parent", "dev/platform")
	p.run("iam", "identities", "create", "ci", "--parent", "dev/platform", "--issuer", "https://issuer.example.com",
		"--subject", "main")
	p.run("iam", "role-bindings", "create", "--parent", "dev/platform", "--identity", "dev/platform/ci",
		"--role", "registry.push")
	p.run("iam", "roles", "create", "releaser", "--parent", "dev", "--capability", "tag.list,tag.create")
	old := s.push(t, "dev/platform/web", "v1", "1.2.0")
	digest := s.push(t, "dev/platform/web", "v2", "1.3.0")
	s.push(t, "dev/platform/web", "edge", "1.2.0")
	s.push(t, "dev/platform/web", "edge", "1.3.0")
	p.tellInventory(digest, old)
	p.run("auth", "pull-token", "create", "--group", "dev/platform", "--name", "laptop", "--life", "1d")
	p.run("iam", "invites", "create", "--parent", "dev", "--role", "viewer", "--ttl", "1d", "--email", "soon@example.com")
	p.run("iam", "role-bindings", "create", "--parent", "dev", "--identity", s.OwnerUID, "--role", "viewer", "--for", "1d")
	p.run("iam", "role-bindings", "create", "--parent", "dev/platform", "--identity", "dev/platform/ci",
		"--role", "viewer", "--for", "1d")
	s.attach(t, "dev/platform/web", digest)
	p.advise("left \u202eis not right "+hostile, strings.Repeat(hostile+" \u202eabc ", 200), "javascript:window.hacked=1")
	p.run("advisories", "feeds", "create", "broken", "--parent", "dev", "--address", "https://feeds.invalid/osv.zip")
	p.run("findings", "exceptions", "create", "CVE-2026-9999", "--on", "dev/platform", "--until", "30d",
		"--reason", hostile)
	p.run("findings", "rules", "create", "--parent", "dev", "--min-severity", "critical")
	p.run("iam", "invites", "create", "--parent", "dev/platform", "--role", "viewer", "--ttl", "7d",
		"--email", "ann@example.com", "--single-use")
	s.deny(t, p.resolve("dev/platform/ci", "identities"))
	p.run("iam", "identity-providers", "create", "sso", "--parent", "dev", "--issuer", "https://sso.invalid",
		"--client-id", "holdfast", "--pkce", "--groups-claim", "groups", "--default-role", "viewer",
		"--description", hostile)
	p.run("iam", "group-mappings", "create", hostile, "--provider", "sso", "--role", "editor")
	p.run("events", "subscriptions", "create", "https://hooks.invalid/holdfast", "--parent", "dev")
	p.compared()
}

// attach pushes a signature for an image, with a hostile annotation.
func (s *site) attach(t *testing.T, repo, subject string) {
	t.Helper()
	empty := []byte("{}")
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"artifactType": "application/vnd.dev.cosign.artifact.sig.v1+json",
		"config": map[string]any{
			"mediaType": "application/vnd.oci.empty.v1+json", "digest": digestOf(empty), "size": len(empty),
		},
		"layers": []any{}, "annotations": map[string]any{"note": hostile + " \u202eabc"},
		"subject": map[string]any{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": subject, "size": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.send(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+url.QueryEscape(digestOf(empty)),
		"application/octet-stream", empty)
	s.send(t, http.MethodPut, "/v2/"+repo+"/manifests/"+digestOf(manifest), "application/vnd.oci.image.manifest.v1+json",
		manifest)
}

// tellInventory reports to the server that two images are running. One runs in a namespace with a hostile name. The
// other has a workload name that a spreadsheet would interpret as a formula.
func (p *person) tellInventory(digest, old string) {
	p.t.Helper()
	body, err := json.Marshal(map[string]any{"place": "prod-eu", "entries": []any{map[string]any{
		"namespace": hostile, "workload": "Deployment/web", "container": "web \u202eabc",
		"image": "registry.example.com/web:v2", "digest": digest, "copies": 3,
	}, map[string]any{"workload": "=1+1", "digest": old}}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.run("api", "POST", "/findings/v1/inventory/"+p.site.OrganizationUID, "--data", string(body))
}

// advise imports an advisory about the package that the pushed images contain.
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
			"ranges": []any{
				map[string]any{
					"type": "SEMVER", "events": []any{map[string]any{"introduced": "0"}, map[string]any{"fixed": "1.3.0"}},
				},
			},
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

// compared waits until the server has compared the images with the advisory, that is, until the first image has a
// finding.
func (p *person) compared() {
	p.t.Helper()
	within(p.t, "the images are compared with the advisory", func() bool {
		found, _, err := p.try("findings", "list", "dev/platform/web:v1", "-o", "id")
		return err == nil && strings.Contains(found, "CVE-2026-1000")
	})
}

// within waits until a condition is true, and fails the test if that takes too long.
func within(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !done(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
	}
}

// complaints collects the problems of a page: errors and warnings in the browser's log, which include violations of
// the content security policy, and responses with a server error.
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

// take returns the problems since the last call.
func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.said
	c.said = nil
	return said
}

// resolve returns the UID of the resource at a path of names.
func (p *person) resolve(path, kind string) string {
	p.t.Helper()
	var found struct{ Resources []struct{ UID string } }
	p.json(&found, "api", "GET", "/access/v1/resolve?path="+url.QueryEscape(path)+"&kind="+kind)
	if len(found.Resources) == 0 {
		p.t.Fatalf("there is no resource at %s", path)
	}
	return found.Resources[0].UID
}

// console opens a page of the console and signs in. After the sign-in, the browser is back at that page.
func (b *tab) console(s *site, path, email, password string) {
	b.t.Helper()
	b.unjudged = s.unjudged
	b.open(s.BaseURL + path)
	b.signIn(email, password)
	b.run("come back", chromedp.WaitVisible(`nav[aria-label="Console"]`))
	if got := strings.TrimPrefix(b.address(), s.BaseURL); got != path {
		b.t.Errorf("the sign-in leads to %s, want %s", got, path)
	}
}

// onBoth runs a test. If testkit.Complete reports true, as in make walks, the test runs on both engines, and the look
// of the pages is checked on one of them. Otherwise it runs on one engine, which is chosen by the length of the test's
// name.
func onBoth(t *testing.T, walk func(*testing.T, *site)) {
	t.Helper()
	both, second := testkit.Complete(), len(t.Name())%2 == 1
	if both || !second {
		t.Run("SQLite", func(t *testing.T) {
			t.Parallel()
			walk(t, newSite(t))
		})
	}
	if both || second {
		t.Run("PostgreSQL", func(t *testing.T) {
			t.Parallel()
			needs(t)
			s := newSiteOn(t, storetest.Postgres(t))
			s.unjudged = both
			walk(t, s)
		})
	}
}

// TestConsole opens every page as an owner, and checks how the pages look: the desktop pages in light and the phone
// pages in dark colors. In the complete version, the test also runs on PostgreSQL, with the opposite colors. The other
// tests of the console use both engines in the short version, too, and each page calls methods that have tests on both.
func TestConsole(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		newSite(t).walk(t, "SQLite", [2]string{"light", "dark"})
	})
	if !testkit.Complete() {
		return
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		needs(t)
		newSiteOn(t, storetest.Postgres(t)).walk(t, "PostgreSQL", [2]string{"dark", "light"})
	})
}

func (s *site) walk(t *testing.T, engine string, schemes [2]string) {
	t.Helper()
	const local = "2006-01-02T15:04:05.000"
	begun := time.Now().Format(local)
	s.furnish(t)
	now := time.Now().Format(local)
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
		{"home-roles", "/console/", "Home", "Your roles that end soon"},
		{"home-others", "/console/", "Home", "Roles of others that end soon"},
		{"home-endangered", "/console/", "Home", "Workloads that cannot sign in"},
		{"search", "/console/search?q=platf", "Search", "dev/platform"},
		{"search-tag", "/console/search?q=v1", "Search", "dev/platform/web"},
		{"search-advisory", "/console/search?q=cve-2026-1000", "Search", "left"},
		{"search-role", "/console/search?q=releaser", "Search", "Copy the uid"},
		{"search-nothing", "/console/search?q=nosuchthing", "Search", "Nothing that you may see"},
		{"tree", "/console/tree?open=" + s.OrganizationUID, "Tree", "1 folder · 1 repo · 2 workloads · 3 role bindings"},
		{"tree-filter", "/console/tree?name=ed", "Tree", "dev/platform/edge"},
		{"tree-filter-path", "/console/tree?name=dev%2Fplat", "Tree", "dev/platform"},
		{"access", "/console/access?capability=repo.create", "Access", "here"},
		{
			"access-why", "/console/access?capability=tag.create&identity=" + ci + "&place=" + group[len("/console/groups/"):],
			"Access", "Yes",
		},
		{
			"access-why-not",
			"/console/access?capability=groups.delete&identity=" + ci + "&place=" + group[len("/console/groups/"):], "Access",
			"It can be granted by",
		},
		{
			"access-then",
			"/console/access?capability=tag.create&identity=" + ci + "&at=" + now + "&place=" + group[len("/console/groups/"):],
			"Access", "could tag.create in dev/platform",
		},
		{
			"access-who-then", "/console/access?capability=tag.create&at=" + now + "&place=" + group[len("/console/groups/"):],
			"Access", "Who could tag.create in dev/platform",
		},
		{"access-diff", "/console/access?show=diff&from=" + begun + "&to=" + now, "Access", "registry.push"},
		{"access-unused", "/console/access?show=unused&kind=UNUSED_KIND_GROUP_INVITE&since=3600s", "Access",
			"Everything that you may see is used"},
		{"access-unused-roles", "/console/access?show=unused", "Access", "Use is recorded since"},
		{"access-reach", "/console/access?show=reach&capability=tag.create&identity=" + ci, "Access", "registry.push"},
		{
			"access-reach-nothing", "/console/access?show=reach&capability=groups.delete&identity=" + ci, "Access",
			"No role of theirs gives groups.delete",
		},
		{"access-reach-me", "/console/access?show=reach", "Access", "owner"},
		{"people", "/console/people", "People", "owner on dev"},
		{"people-filter", "/console/people?who=owner", "People", s.OwnerEmail},
		{"people-nobody", "/console/people?who=nosuch", "People", "Nobody that you may see matches"},
		{"invites", "/console/people?tab=invites", "People", "ann@example.com"},
		{"joins", "/console/people?tab=joins", "People", "Nobody came"},
		{"accounts", "/console/people?tab=accounts", "People", s.OwnerEmail},
		{
			"accounts-email", "/console/people?tab=accounts&email=" + url.QueryEscape(s.OwnerEmail), "People",
			"e-mail: " + s.OwnerEmail,
		},
		{"person", "/console/people/" + s.OwnerUID, "Dev Owner", "this one"},
		{"workloads", "/console/workloads", "Workloads", "https://issuer.example.com"},
		{"workloads-token", "/console/workloads?tab=token", "Workloads", "It is decoded in this browser"},
		{"workload", "/console/workloads/" + ci, "ci", "registry.push"},
		{"workload-setup", "/console/workloads/" + ci + "?tab=setup", "ci", "HOLDFAST_IDENTITY_TOKEN_FILE"},
		{"enroll", "/console/workloads/new?platform=gitlab", "Add a workload", "Path of the project"},
		{"workload-exchanges", "/console/workloads/" + ci + "?tab=exchanges", "ci", "No token was exchanged lately"},
		{"workload-denials", "/console/workloads/" + ci + "?tab=denials", "ci", "https://elsewhere.example.com"},
		{"workload-token", "/console/workloads/" + ci + "?tab=token", "ci", "It is decoded in this browser"},
		{"signin", "/console/sign-in", "Sign-in", "https://sso.invalid"},
		{"signin-rules", "/console/sign-in?tab=rules", "Sign-in", "has not confirmed"},
		{"connect", "/console/sign-in/new?recipe=entra", "Connect a provider", "/oauth/callback"},
		{"provider", sso, "sso", "people cannot sign in with it"},
		{"provider-mappings", sso + "?tab=mappings", "sso", "window.hacked"},
		{"provider-directory", sso + "?tab=directory", "sso", "Microsoft Entra ID"},
		{"provider-preview", sso + "?tab=preview&in=eng&in=" + url.QueryEscape(hostile), "sso", "No mapping names eng"},
		{"operator", "/console/operator", "Operator", engine},
		{"repos", "/console/repos", "Repos", "0 pulls in 30 days"},
		{"repos-path", "/console/repos?path=WEB%20plat", "Repos", "dev/platform/web"},
		{"repos-nothing", "/console/repos?path=nosuch", "Repos", "No repo that you may see matches"},
		{"vulnerabilities", "/console/vulnerabilities", "Vulnerabilities", "CVE-2026-1000"},
		{"vulnerabilities-ages", "/console/vulnerabilities", "Vulnerabilities", "less than 7 days"},
		{"vulnerabilities-overdue", "/console/vulnerabilities", "Vulnerabilities", "no open finding has a time limit"},
		{"advisories", "/console/vulnerabilities?tab=advisories", "Vulnerabilities", "GHSA-left"},
		{"findings", "/console/vulnerabilities?tab=findings", "Vulnerabilities", "1.3.0"},
		{"exceptions", "/console/vulnerabilities?tab=exceptions", "Vulnerabilities", "CVE-2026-9999"},
		{"feeds", "/console/vulnerabilities?tab=feeds", "Vulnerabilities", "broken"},
		{"audit", "/console/audit?type=iam", "Audit", "iam.role"},
		{"audit-sentence", "/console/audit?type=iam", "Audit", "granted registry.push on dev/platform to dev/platform/ci"},
		{"events", "/console/events", "Events", "https://hooks.invalid/holdfast"},
		{"events-of-group", "/console/events?group=" + group[len("/console/groups/"):], "Events", "No subscription that"},
		{"group", group, "platform", "edge"},
		{"group-findings", group, "platform", "All findings of this group"},
		{"group-people", group + "?tab=people", "platform", "Inherited from dev"},
		{"group-roles", "/console/groups/" + s.OrganizationUID + "?tab=roles", "dev", "releaser"},
		{"group-repos", group + "?tab=repos", "platform", "web"},
		{"group-rules", "/console/groups/" + s.OrganizationUID + "?tab=rules", "dev", "critical or worse"},
		{"group-signers", group + "?tab=signers", "platform", "There is no signer"},
		{"group-upstreams", group + "?tab=upstreams", "platform", "Nothing here is fetched"},
		{"group-replications", group + "?tab=replications", "platform", "Nothing here is copied"},
		{"group-budget", group + "?tab=budget", "platform", "Workloads"},
		{"repo", repo, "web", "docker pull"},
		{"repo-sizes", repo, "web", "linux/amd64"},
		{"repo-findings", repo + "?tab=findings", "web", "CVE-2026-1000"},
		{"repo-history", repo + "?tab=history", "web", "sha256:"},
		{"repo-readme", repo + "?tab=readme", "web", "There is no readme"},
		{"image", repo + "/images/v1", "v1", "advisories cover 1 of 1 package"},
		{"image-fix", repo + "/images/v1", "v1", "1 open finding in 1 package"},
		{"image-rating", repo + "/images/v1", "v1", "Rated by"},
		{"image-packages", repo + "/images/v1?tab=packages", "v1", "node_modules/left"},
		{"image-platforms", repo + "/images/v1?tab=platforms", "v1", "1 layer"},
		{"image-steps", repo + "/images/v1?tab=platforms", "v1", "COPY app /app # <script>"},
		{"image-pulls", repo + "/images/v1?tab=pulls", "v1", "push"},
		{"image-attached", repo + "/images/v2?tab=attached", "v2", "signature"},
		{"image-attached-nothing", repo + "/images/v1?tab=attached", "v1", "Nothing is attached"},
		{"image-runs", repo + "/images/v2?tab=runs", "v2", "prod-eu"},
		{"image-compare", repo + "/images/v2?tab=compare&with=v1", "v2", "finding fixed"},
		{"image-compare-kind", repo + "/images/v2?tab=compare&with=v1&kind=KIND_PACKAGE_CHANGED", "v2", "1.2.0"},
		{
			"image-compare-past",
			repo + "/images/v2?tab=compare&with=edge&at=" + time.Now().Add(24*time.Hour).Format("2006-01-02T15:04"), "v2",
			"No known differences",
		},
		{"image-compare-nothing", repo + "/images/v2?tab=compare", "v2", "Enter a tag or a digest"},
		{"repo-timeline", repo + "?tab=history&tag=edge", "web", "compare with the previous image"},
		{"advisory", "/console/advisories/CVE-2026-1000", "CVE-2026-1000", "before 1.3.0"},
		{"advisory-images", "/console/advisories/GHSA-left?tab=images", "GHSA-left", "linux/amd64"},
		{"advisory-blast", "/console/advisories/GHSA-left?tab=blast&graph=false", "GHSA-left", "Who can push a fix"},
		{"advisory-graph", "/console/advisories/GHSA-left?tab=blast", "GHSA-left", "Runs at"},
		{"missing", "/console/nothing", "There is nothing here", "Check the address"},
	}
	var shells sync.WaitGroup
	defer shells.Wait()
	for i, v := range walk {
		if i > 0 && v.path == walk[i-1].path { // another text of a page that is open and was checked
			b.read(v.text)
			continue
		}
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
	b.open(s.BaseURL + "/console/access?capability=tag.create&at=2020-01-01T00:00")
	b.read("of grants begins at")
	said.take() // discards the browser's message about the request that the server refused
	b.open(s.BaseURL + "/console/advisories/GHSA-left?tab=blast")
	b.read("Who can push a fix")
	var saved string
	b.run("catch what is saved",
		chromedp.Evaluate(`URL.createObjectURL = blob => { blob.text().then(text => window.saved = text); return "#" }`, nil))
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

// TestConsolePicture takes the screenshot for the documentation.
func TestConsolePicture(t *testing.T) {
	if !*update {
		t.Skip("the screenshot is taken with -update")
	}
	s := newSite(t)
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", "What the platform team runs")
	p.run("iam", "identities", "create", "ci", "--parent", "dev/platform", "--issuer", "https://issuer.example.com",
		"--subject", "main")
	p.run("iam", "invites", "create", "--parent", "dev", "--role", "owner", "--ttl", "7d")
	s.push(t, "dev/platform/web", "v1", "1.2.0")
	s.push(t, "dev/platform/api", "v7", "1.2.0")
	p.advise("Prototype pollution in left", "A crafted object changes the prototype of all others.",
		"https://example.com/left")
	p.compared()
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	b.read("CVE-2026-1000")
	b.shootTo(filepath.Join("..", "..", "..", "docs", "console", "home.png"), 1280, "light")
}

// commands returns the commands that the page shows under "As a command".
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

// shell runs a command line that the console shows, as a person would in a terminal.
func (p *person) shell(view, line string) {
	p.t.Helper()
	if strings.Contains(line, "ORGANIZATION") { // a placeholder that people must replace
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
	// The command exits with code 3 if the answer is "no".
	if no := strings.HasPrefix(line, "holdfast iam can ") && cmd.ProcessState.ExitCode() == 3; err != nil && !no {
		p.t.Errorf("%s shows the command\n%s\n%v: %s", view, line, err, out)
	}
}

// judge checks the accessibility of a page on a desktop and on a phone, each in the color scheme that the tab has for
// it. In the light scheme it checks all rules, in the dark scheme only the contrast.
func (b *tab) judge(name string) {
	b.t.Helper()
	if b.unjudged {
		return
	}
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

// keep takes a screenshot of a page of the console, if the flag for screenshots is set.
func (b *tab) keep(name string, width int64, scheme string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	b.shootTo(filepath.Join(*pictures, fmt.Sprintf("console-%s-%d-%s.png", name, width, scheme)), width, scheme)
}

// unharmed fails the test if a text that another person entered has run as a script.
func (b *tab) unharmed(name string) {
	b.t.Helper()
	var harmed bool
	b.run("look for harm",
		chromedp.Evaluate(`!!window.hacked || !!document.querySelector("main img, main script, a[href^='javascript']")`,
			&harmed))
	if harmed {
		b.t.Errorf("%s: the text of another person was interpreted as HTML", name)
	}
}

// TestConsoleKeys checks that a person can move forward and back through the console without a mouse.
func TestConsoleKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.owner(t).run("iam", "groups", "create", "platform", "--parent", "dev")
	b := newTab(t)
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	b.see("Home")
	var names []string
	b.run("read the navigation",
		chromedp.Evaluate(`[...document.querySelectorAll('nav[aria-label="Console"] a')].map(a => a.innerText)`, &names))
	if want := []string{
		"Home", "Search", "Tree", "Access", "People", "Workloads", "Sign-in", "Repos", "Vulnerabilities", "Audit", "Events",
		"Account", "Operator",
	}; !slices.Equal(names, want) {
		t.Errorf("the navigation has %q, want %q", names, want)
	}
	b.press("Tree")
	b.see("Tree")
	b.run("go to the tree", chromedp.Focus(`[role="treeitem"]`, chromedp.ByQuery))
	b.keys(kb.ArrowRight)
	b.run("it is open", chromedp.WaitVisible(`[role="treeitem"][aria-level="2"]`, chromedp.ByQuery))
	if !strings.Contains(b.address(), "open="+s.OrganizationUID) {
		t.Errorf("the open group is not in the address %s", b.address())
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
	b.run("see the help", chromedp.WaitVisible(`//dialog//h2[.="Keys and preferences"]`))
	b.keys(kb.Escape)
	b.run("and no more", chromedp.WaitNotPresent(`dialog`, chromedp.ByQuery))
	b.keys("gr")
	b.see("Repos")
	b.read("There is no repo that you may see")
	for _, name := range []string{"quay", "river"} {
		s.owner(t).run("iam", "groups", "create", name, "--parent", "dev")
	}
	b.open(s.BaseURL + "/console/groups/" + s.OrganizationUID)
	b.read("river")
	b.run("go to the table", chromedp.Focus(`[role="region"][aria-label="Folders"]`, chromedp.ByQuery))
	for _, move := range []struct{ key, want string }{
		{kb.ArrowDown, "platform"}, {kb.ArrowDown, "quay"}, {kb.End, "river"}, {kb.ArrowDown, "river"},
		{kb.ArrowUp, "quay"}, {kb.Home, "platform"},
	} {
		b.keys(move.key)
		var on string
		b.run("look where the focus is", chromedp.Evaluate(`document.activeElement.innerText`, &on))
		if on != move.want {
			t.Errorf("the arrow keys move the focus to %q, want %q", on, move.want)
		}
	}
	b.open(s.BaseURL + "/")
	b.press("Open the console")
	b.see("Home")
}
