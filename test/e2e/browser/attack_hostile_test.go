package browser_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// poison is a text that would run a script if a page used it as HTML, as an attribute or as the target of a link.
const poison = `"'></pre></script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">` +
	`<svg onload="window.hacked=1"></svg><iframe srcdoc="<script>parent.hacked=1</script>"></iframe>` +
	`<a href="javascript:window.hacked=1">x</a>[y](javascript:window.hacked=1)${alert(1)}{{alert(1)}}`

// An artifact is content that is attached to an image, or a chart.
type artifact struct {
	artifactType, configType, layerType string
	config, layer                       []byte
	subject                             string // digest of the image, or ""
}

// pushArtifact pushes an artifact with hostile annotations.
func (s *site) pushArtifact(t *testing.T, repo, tag string, a artifact) {
	t.Helper()
	const kind = "application/vnd.oci.image.manifest.v1+json"
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": kind,
		"config": map[string]any{"mediaType": a.configType, "digest": digestOf(a.config), "size": len(a.config)},
		"layers": []any{map[string]any{
			"mediaType": a.layerType, "digest": digestOf(a.layer), "size": len(a.layer),
			"annotations": map[string]string{"org.opencontainers.image.title": poison},
		}},
		"annotations": map[string]string{
			"org.opencontainers.image.description": poison, poison: "javascript:window.hacked=1",
		},
	}
	if a.artifactType != "" {
		manifest["artifactType"] = a.artifactType
	}
	if a.subject != "" {
		manifest["subject"] = map[string]any{"mediaType": kind, "digest": a.subject, "size": 1}
	}
	for _, blob := range [][]byte{a.config, a.layer} {
		s.send(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+url.QueryEscape(digestOf(blob)),
			"application/octet-stream", blob)
	}
	s.send(t, http.MethodPut, "/v2/"+repo+"/manifests/"+tag, kind, encode(t, manifest))
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hostileChart returns a Helm chart whose metadata and readme are hostile.
func hostileChart(t *testing.T) artifact {
	t.Helper()
	about := map[string]any{
		"apiVersion": "v2", "name": "chart", "version": "1.0.0", "description": poison, "home": "javascript:window.hacked=1",
		"icon": "javascript:window.hacked=1", "sources": []string{"javascript:window.hacked=1"}, "keywords": []string{poison},
		"maintainers": []any{map[string]string{"name": poison, "email": poison, "url": "javascript:window.hacked=1"}},
		"annotations": map[string]string{"note": poison},
	}
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	archive := tar.NewWriter(zip)
	for name, text := range map[string]string{
		"chart/Chart.yaml": string(encode(t, about)), "chart/README.md": poison + "\n# " + poison,
		"chart/values.yaml": "# " + poison + "\nx: 1\n",
	} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{archive, zip} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return artifact{
		configType: "application/vnd.cncf.helm.config.v1+json", config: encode(t, about),
		layerType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", layer: b.Bytes(),
	}
}

// hostileSBOM returns an SBOM of an image, with a hostile package.
func hostileSBOM(t *testing.T, image string) artifact {
	t.Helper()
	sbom := encode(t, map[string]any{
		"spdxVersion": "SPDX-2.3", "SPDXID": "SPDXRef-DOCUMENT", "name": poison, "dataLicense": "CC0-1.0",
		"documentNamespace": "javascript:window.hacked=1",
		"creationInfo":      map[string]any{"creators": []string{"Tool: " + poison}, "created": "2026-01-02T03:04:05Z"},
		"packages": []any{map[string]any{
			"SPDXID": "SPDXRef-a", "name": poison, "versionInfo": poison, "downloadLocation": "javascript:window.hacked=1",
			"licenseConcluded": poison, "supplier": "Person: " + poison,
			"externalRefs": []any{map[string]any{
				"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
				"referenceLocator": "pkg:npm/%3Cimg%20src=x%20onerror=window.hacked=1%3E@1.0.0",
			}},
		}},
	})
	return artifact{
		artifactType: "application/spdx+json", configType: "application/vnd.oci.empty.v1+json", config: []byte("{}"),
		layerType: "application/spdx+json", layer: sbom, subject: image,
	}
}

// spoil stores hostile texts in every field that accepts them.
func (s *site) spoil(t *testing.T) {
	t.Helper()
	p := s.owner(t)
	org, group := s.OrganizationUID, p.resolve("dev/platform", "groups")
	accepted := func(method, path string, body map[string]any) {
		t.Helper()
		if status := s.ask(t, method, path, body); status != http.StatusOK {
			t.Errorf("%s %s: %d", method, path, status)
		}
	}
	display := poison[:min(len(poison), 60)]
	accepted(http.MethodPatch, "/iam/v2beta1/groups/"+org, map[string]any{"displayName": display, "description": poison})
	accepted(http.MethodPost, "/signin/v1/accounts/"+org, map[string]any{"email": "eve@example.com", "name": display})
	accepted(http.MethodPost, "/iam/v2beta1/identities/"+group, map[string]any{
		"name": "evil", "description": poison,
		"claimMatch": map[string]string{"issuer": "https://issuer.example.com", "subject": poison},
	})
	accepted(http.MethodPost, "/iam/v2beta1/roles/"+org, map[string]any{
		"name": "evil", "description": poison, "capabilities": []string{"CAP_TAG_LIST"},
	})
	accepted(http.MethodPost, "/oci/v1/signers/"+group, map[string]any{
		"name": "evil", "description": poison, "key": publicKey(t),
	})
	accepted(http.MethodPost, "/events/v2beta1/subscriptions/"+group,
		map[string]any{"sink": "https://hooks.invalid/" + url.PathEscape(poison)})
	accepted(http.MethodPost, "/advisories/v1/feeds/"+group,
		map[string]any{"name": "evil", "address": "https://feeds.invalid/" + url.PathEscape(poison)})
	image := s.pushWith(t, "dev/platform/web", "evil", "1.2.0", map[string]any{
		"author": poison, "history": []any{map[string]any{"created_by": poison, "comment": poison, "author": poison}},
		"config": map[string]any{
			"User": poison, "Env": []string{poison + "=" + poison}, "Cmd": []string{poison}, "Entrypoint": []string{poison},
			"WorkingDir": poison, "Labels": map[string]string{poison: poison}, "ExposedPorts": map[string]any{poison: poison},
		},
	})
	s.pushArtifact(t, "dev/platform/web", "sbom", hostileSBOM(t, image))
	s.pushArtifact(t, "dev/platform/chart", "1.0.0", hostileChart(t))
	for _, readme := range []string{poison, "`" + poison + "`", "# Hostile\n\n    " + poison} {
		web := p.resolve("dev/platform/web", "repos")
		t.Logf("a hostile readme: %d", s.ask(t, http.MethodPatch, "/registry/v2beta1/repos/"+web+"/readme",
			map[string]any{"content": readme}))
	}
	p.advisePoison()
	s.pullAs(t, "dev/platform/web", "evil", poison)
	within(t, "the image with hostile texts is inspected", func() bool {
		found, _, err := p.try("findings", "list", "dev/platform/web:evil", "-o", "id")
		return err == nil && strings.Contains(found, "CVE-2026-1000") && strings.Contains(found, "CVE-2026-6666")
	})
}

// advisePoison imports a second advisory about the package of the images.
func (p *person) advisePoison() {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "evil.json")
	advisory := encode(p.t, map[string]any{
		"id": "EVIL-1", "modified": "2026-01-02T03:04:05Z", "aliases": []string{"CVE-2026-6666"}, "summary": poison,
		"details": "# " + poison + "\n" + poison, "related": []string{poison},
		"references": []any{map[string]string{"type": "WEB", "url": "javascript:window.hacked=1"},
			map[string]string{"type": "FIX", "url": "https://example.com/" + poison}},
		"credits":           []any{map[string]any{"name": poison, "contact": []string{"javascript:window.hacked=1"}}},
		"database_specific": map[string]any{"severity": poison, "note": poison},
		"affected": []any{map[string]any{
			"package": map[string]any{"ecosystem": "npm", "name": "left"},
			"ranges": []any{map[string]any{"type": "SEMVER", "events": []any{
				map[string]any{"introduced": "0"}, map[string]any{"fixed": "1.3.0"},
			}}},
			"database_specific": map[string]any{"note": poison},
		}},
	})
	if err := os.WriteFile(file, advisory, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.run("advisories", "import", file, "--group", "dev")
}

// pullAs pulls a manifest with a program of any name.
func (s *site) pullAs(t *testing.T, repo, tag, program string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.BaseURL+"/v2/"+repo+"/manifests/"+tag, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.RegistryToken)
	r.Header.Set("User-Agent", program)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Fatalf("a pull: %s", answer.Status)
	}
}

// An alarm collects signs of a script that ran, or that the policy of the page has stopped.
type alarm struct {
	mu   sync.Mutex
	said []string
}

func (b *tab) alarm() *alarm {
	a := &alarm{}
	add := func(text string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.said = append(a.said, text)
	}
	chromedp.ListenTarget(b.ctx, func(event any) {
		switch e := event.(type) {
		case *page.EventJavascriptDialogOpening:
			add("a dialog: " + e.Message)
			go func() { _ = chromedp.Run(b.ctx, page.HandleJavaScriptDialog(true)) }() // a dialog stops the page
		case *runtime.EventExceptionThrown:
			add(e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Source == log.SourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy") {
				add(e.Entry.Text)
			}
		}
	})
	return a
}

func (a *alarm) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	said := a.said
	a.said = nil
	return said
}

// settled waits until a view has its heading and loads nothing more.
const settled = `new Promise(done => {
	let before = -1, same = 0, left = 600;
	const look = () => {
		const now = performance.getEntriesByType("resource").length;
		same = now === before && document.querySelector("main h1") ? same + 1 : 0;
		before = now;
		if (same >= 3 || --left === 0) return done(left > 0);
		setTimeout(look, 100);
	};
	look();
})`

// injected returns the parts of a page that only a hostile text could have created.
const injected = `(() => {
	const found = window.hacked ? ["a script ran"] : [];
	for (const e of document.querySelectorAll("main *, header *, nav *, dialog *")) {
		for (const a of e.attributes) {
			if (/^on/i.test(a.name) || /^(href|src|srcdoc|action|formaction|xlink:href)$/i.test(a.name) &&
				/^\s*(javascript|data|vbscript):/i.test(a.value)) found.push(e.outerHTML.slice(0, 300));
		}
		if (/^(img|script|iframe|object|embed|base|link|meta)$/i.test(e.tagName)) found.push(e.outerHTML.slice(0, 300));
	}
	return found;
})()`

var uidInPath = regexp.MustCompile(`[0-9a-f]{16,40}(/[0-9a-f]{16})*|sha256:[0-9a-f]{64}`)

// shapeOf returns what addresses of the same view and tab have in common.
func shapeOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	names := slices.Sorted(maps.Keys(u.Query()))
	path := uidInPath.ReplaceAllString(u.Path, "*")
	return fmt.Sprint(path, " ", names, " ", u.Query().Get("tab"), u.Query().Get("show"), u.Query().Get("graph"))
}

// consoleViews returns the paths of all views, as patterns.
func consoleViews(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	text, err := os.ReadFile("../../../console/src/views.ts")
	if err != nil {
		t.Fatal(err)
	}
	views := map[string]*regexp.Regexp{}
	for _, m := range regexp.MustCompile(`path: "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		pattern := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(m[1]), `.+`)
		views[m[1]] = regexp.MustCompile(`^/console` + pattern + `(\?|$)`)
	}
	if len(views) < 20 {
		t.Fatalf("found %d views", len(views))
	}
	return views
}

// TestAttackHostileTexts follows all links of the console while every field has a hostile text. No text must run a
// script, create an element, or be stopped only by the policy of the page. The walk must reach every view.
func TestAttackHostileTexts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.furnish(t)
	s.spoil(t)
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	alarm, views := b.alarm(), consoleViews(t)
	delete(views, "/account") // leads to a page outside the console
	repo := "/console/repos/" + p.resolve("dev/platform/web", "repos")
	hostileText := url.QueryEscape(poison)
	queue := []string{
		"/console/", repo + "/images/evil?tab=attached", repo + "/images/evil?tab=platforms", repo + "/images/evil?tab=pulls",
		repo + "?tab=readme", "/console/repos/" + p.resolve("dev/platform/chart", "repos") + "/images/1.0.0",
		"/console/advisories/EVIL-1", "/console/advisories/" + url.PathEscape(poison), "/console/confirmed",
		"/console/search?q=" + hostileText, "/console/tree?name=" + hostileText, "/console/audit?type=" + hostileText,
		"/console/repos?order=" + hostileText, "/console/people?tab=" + hostileText, "/console/groups/" + hostileText,
		repo + "/images/" + url.PathEscape(poison), "/console/vulnerabilities?tab=findings&q=" + hostileText,
		"/console/workloads/new?platform=" + hostileText, "/console/sign-in/new?recipe=" + hostileText,
	}
	for _, v := range slices.Sorted(maps.Keys(views)) {
		if !strings.Contains(v, "{") {
			queue = append(queue, "/console"+v)
		}
	}
	const most = 220 // pages
	visits := map[string]int{}
	visited := 0
	for ; len(queue) > 0 && visited < most; queue = queue[1:] {
		address := queue[0]
		if visits[shapeOf(address)]++; visits[shapeOf(address)] > 2 {
			continue
		}
		visited++
		b.open(s.BaseURL + address)
		var loaded bool
		var found, links []string
		wait := func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }
		b.run("wait for "+address, chromedp.Evaluate(settled, &loaded, wait), chromedp.Evaluate(injected, &found),
			chromedp.Evaluate(`[...document.querySelectorAll('a[href^="/console/"]')].map(a => a.getAttribute("href"))`, &links))
		if !loaded {
			t.Errorf("%s does not load", address)
		}
		for _, what := range append(found, alarm.take()...) {
			t.Errorf("%s: %s", address, what)
		}
		for name, pattern := range views {
			if pattern.MatchString(address) {
				delete(views, name)
			}
		}
		queue = append(queue, links...)
	}
	t.Logf("visited %d pages of %d kinds", visited, len(visits))
	for name := range views {
		t.Errorf("the walk did not reach the view %s", name)
	}
}
