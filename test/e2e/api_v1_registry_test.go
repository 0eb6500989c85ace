package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const emptyType = "application/vnd.oci.empty.v1+json"

// spdxOf returns an SBOM in SPDX format with one package.
func spdxOf(name string) string {
	return `{"spdxVersion":"SPDX-2.3","name":"` + name +
		`","creationInfo":{"created":"2026-01-02T03:04:05Z","creators":["Tool: test"]},` +
		`"packages":[{"SPDXID":"p","name":"` + name + `","versionInfo":"1","licenseDeclared":"MIT",` +
		`"externalRefs":[{"referenceType":"purl","referenceLocator":"pkg:apk/` + name + `@1"}]}]}`
}

// grypeOf returns a Grype report with one vulnerability.
func grypeOf(id, severity, timestamp string) string {
	return `{"matches":[{"vulnerability":{"id":"` + id + `","severity":"` + severity +
		`","fix":{"state":"not-fixed"}},"artifact":{"name":"a","version":"1","purl":"pkg:apk/a@1"}}],` +
		`"descriptor":{"name":"grype","version":"0.8","timestamp":"` + timestamp + `"}}`
}

// attest wraps a predicate in the envelopes that cosign uses.
func attest(digest, predicate string) string {
	statement := `{"_type":"https://in-toto.io/Statement/v1","predicateType":"x",` +
		`"subject":[{"digest":{"sha256":"` + strings.TrimPrefix(digest, "sha256:") + `"}}],"predicate":` + predicate + `}`
	return `{"payloadType":"application/vnd.in-toto+json","payload":"` +
		base64.StdEncoding.EncodeToString([]byte(statement)) + `","signatures":[]}`
}

// attach pushes a document as the only layer of a manifest, and returns the digest of the manifest. An empty
// reference means that digest. If subject is not empty, the manifest has that digest as its subject.
func (w *world) attach(t *testing.T, repo, reference, subject, mediaType, content string) string {
	t.Helper()
	for _, blob := range []string{"{}", content} {
		w.put(t, "POST", repo+"/blobs/uploads/?digest="+digestOf(blob), "application/octet-stream", blob)
	}
	m := map[string]any{
		"schemaVersion": 2,
		"mediaType":     manifestType,
		"config":        describe(emptyType, "{}"),
		"layers":        []descriptor{describe(mediaType, content)},
		"artifactType":  mediaType,
	}
	if subject != "" {
		m["subject"] = descriptor{MediaType: manifestType, Digest: subject, Size: 1}
	}
	if reference == "" {
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		reference = digestOf(string(text))
	}
	return w.pushManifest(t, repo, reference, manifestType, m)
}

// pushChart pushes a Helm chart and returns its digest.
func (w *world) pushChart(t *testing.T, repo, tag string) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)
	for _, f := range [][2]string{
		{"app/Chart.yaml", "name: app\n"}, {"app/values.yaml", "replicas: 1\n"}, {"app/CHANGELOG.md", "# 1.0\n"},
	} {
		err := files.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o644, Typeflag: tar.TypeReg})
		if _, werr := files.Write([]byte(f[1])); err != nil || werr != nil {
			t.Fatal(err, werr)
		}
	}
	if err := errors.Join(files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	config := `{"name":"app","version":"1.0","appVersion":"2","description":"d",` +
		`"dependencies":[{"name":"c","version":"1","repository":"oci://x"}],` +
		`"annotations":{"images":"- name: app\n  image: registry.example/acme/app:2\n"}}`
	for _, blob := range []string{config, packed.String()} {
		w.put(t, "POST", repo+"/blobs/uploads/?digest="+digestOf(blob), "application/octet-stream", blob)
	}
	return w.pushManifest(t, repo, tag, manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": describe("application/vnd.cncf.helm.config.v1+json", config),
		"layers": []descriptor{describe("application/vnd.cncf.helm.chart.content.v1.tar+gzip", packed.String())},
	})
}

// attachedV1Examples returns example calls for the methods of version 1 of the registry that return data about
// images, and for methods that find no data.
func attachedV1Examples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	shelf := w.child(t, x.org, "oldattached")
	repo := w.repo(t, shelf, "app")
	const path = "dev/oldattached/app"
	digest, plain := w.pushImage(t, path, "latest", "amd64", "layer"), w.pushImage(t, path, "plain", "amd64", "plain")
	chart := w.pushChart(t, path, "chart")
	w.attach(t, path, "", digest, "application/spdx+json", spdxOf("a"))
	w.attach(t, path, "", digest, "application/vnd.in-toto+json",
		attest(digest, grypeOf("CVE-1", "High", "2026-02-03T04:05:06Z")))
	old := w.tag(t, repo, "ended", digest)
	w.send(t, w.Token, "PUT", "/registry/v1/tags/"+old, `{"digest":"`+digest+`","deprecated":true}`)
	nothing := x.org + "/0123456789abcdef"
	image := func(query string) []example {
		return []example{
			{uid: repo, digest: digest, query: query},
			{uid: repo, digest: plain, fails: true},
			{uid: repo, digest: "sha256:abc", fails: true},
			{uid: nothing, digest: digest, fails: true},
		}
	}
	ofRepo := func(uid string) []example {
		return []example{{uid: uid}, {uid: nothing, fails: true}, {uid: "nonsense", fails: true}}
	}
	charts := []example{
		{uid: repo, digest: chart}, {uid: repo, digest: digest, fails: true}, {uid: repo, digest: "x", fails: true},
	}
	builds := []example{
		{},
		{
			query: "uidp.descendants_of=" + x.org + "&started_since=2026-01-02T03:04:05Z&" +
				"started_before=2026-01-02T03:04:05Z&exclude_logs=true&page_size=1",
		},
		{query: "uidp.descendants_of=nonsense", fails: true},
	}
	counts := []example{
		{query: "repo=app"}, {query: "repo=" + path + "&tag=latest&from=2026-01-02T03:04:05Z&to=2036-01-02T03:04:05Z"},
		{fails: true}, {query: "repo=app&tag=!", fails: true}, {query: "repo=dev/nowhere", fails: true},
	}
	deployment := `{"charts":[{"source":"https://github.com/acme/app","repo":"oci://registry.example/charts",` +
		`"chart":"app"},{"repo":"https://charts.example.com"}]}`
	return map[string][]example{
		"V1_Registry_GetRepoCountBySource": ofRepo(repo),
		"V1_Registry_ListEolTags": {
			{},
			{query: "uidp.children_of=" + repo + "&name=ended&page_size=1&exclude_dates=true&exclude_epochs=true"},
			{query: "page_size=-1", fails: true},
			{query: "page_token=x", fails: true},
		},
		"V1_Registry_GetSbom":       image("arch=amd64"),
		"V1_Registry_GetRawSbom":    image("arch=amd64&reference=x"),
		"V1_Registry_GetVulnReport": image(""),
		"V1_Registry_GetImageConfig": {
			{uid: repo, digest: digest, query: "arch=amd64&registry=true"},
			{uid: repo, digest: digest, query: "arch=z80", fails: true},
			{uid: repo, digest: "x", fails: true},
		},
		"V1_Registry_GetHelm":               charts,
		"V1_Registry_GetChart":              charts,
		"V1_Registry_ListChartsByImageRepo": ofRepo(repo),
		"V1_Registry_ListManifestMetadata":  ofRepo(repo),
		"V1_Registry_GetManifestDigestCount": {
			{uid: repo}, {uid: shelf}, {uid: nothing, fails: true}, {uid: "nonsense", fails: true},
		},
		"V1_Registry_GetPackageVersionMetadata": {{uid: "go", fails: true}},
		"V1_Registry_ListBuildReports":          builds,
		"V1_Registry_GetBuildStatus":            builds,
		"V1_Registry_GetUpdateStatus":           ofRepo(repo),
		"V1_Registry_GetSyncStatus":             {{uid: repo, fails: true}, {uid: nothing, fails: true}},
		"V1_Registry_ListSyncStatuses": {
			{query: "registry_id=" + x.org}, {query: "registry_id=" + nothing, fails: true}, {fails: true},
		},
		"V1_Registry_CreateDeployment": {
			{uid: repo, body: deployment},
			{uid: repo, body: deployment, fails: true},
			{uid: repo, body: `{"charts":[{"repo":"charts"}]}`, fails: true},
			{uid: nothing, body: `{}`, fails: true},
		},
		"V1_Registry_UpdateDeployment": {
			{uid: repo, body: deployment},
			{uid: repo, body: `{}`},
			{uid: repo, body: `{"charts":[{"repo":"file:///x"}]}`, fails: true},
			{uid: nothing, body: `{}`, fails: true},
		},
		"V1_Registry_GetDeployment":       ofRepo(repo),
		"V1_Registry_GetRegistrySettings": ofRepo(shelf),
		"V1_Registry_UpdateRegistrySettings": {
			{uid: shelf, body: `{"uniqueTags":true,"eolGracePeriod":true}`},
			{uid: nothing, body: `{}`, fails: true},
			{uid: "nonsense", body: `{}`, fails: true},
		},

		"V1_Vulnerabilities_ListVulnReports": {
			{query: "digest=" + digest},
			{query: "repo_id=" + repo},
			{
				query: "repo_id=" + repo + "&tag=plain&scanner.name=GRYPE&scanner.version=0.8&" +
					"scanner.db_build_time=2026-01-02T03:04:05Z&created_since=2026-01-02T03:04:05Z",
			},
			{fails: true},
			{query: "digest=x", fails: true},
			{query: "repo_id=" + repo + "&tag=nothing", fails: true},
			{query: "repo_id=nonsense", fails: true},
		},
		"V1_Vulnerabilities_GetRawVulnReport": {
			{query: "digest=" + digest}, {query: "digest=" + digest + "&scanner=GRYPE&created_at=2026-02-03T04:05:06Z"},
			{query: "digest=" + digest + "&scanner=TRIVY", fails: true}, {query: "digest=" + plain, fails: true}, {fails: true},
		},
		"V1_Vulnerabilities_ListVulnCountReports":           counts,
		"V1_Vulnerabilities_ListCumulativeVulnCountReports": counts,

		"V1_EventIdentities_Create": {{body: `{"issuer":"https://x.example","subject":"s"}`, fails: true}},
		"V1_EventIdentities_UpdateMetadata": {
			{body: `{"onboardingQuestions":{"companyName":"acme","product":"p"},"updatesOptIn":true}`},
			{body: `{"onboardingQuestions":{"product":"` + strings.Repeat("x", 5000) + `"}}`, fails: true},
		},
	}
}

// fetch decodes the JSON answer to a GET into v.
func (w *world) fetch(t *testing.T, path string, v any) {
	t.Helper()
	r := w.send(t, w.Token, "GET", path, "")
	if r.status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("GET %s: %v\n%s", path, err, r.body)
	}
}

// TestApiV1Attached checks that SBOMs and reports are found in every place where clients store them.
func TestApiV1Attached(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	repo := w.repo(t, string(w.Organization), "app")
	const path = "dev/app"
	tagOf := func(digest string) string { return strings.Replace(digest, ":", "-", 1) }
	ways := map[string]func(t *testing.T, digest, content string){
		"as a referrer": func(t *testing.T, d, content string) { w.attach(t, path, "", d, "application/spdx+json", content) },
		"as a referrer, in cosign's way": func(t *testing.T, d, content string) {
			w.attach(t, path, "", d, "application/vnd.dsse.envelope.v1+json", attest(d, content))
		},
		"under the tag of attestations": func(t *testing.T, d, content string) {
			w.attach(t, path, tagOf(d)+".att", "", "application/vnd.dsse.envelope.v1+json", attest(d, content))
		},
		"under the tag of SBOMs": func(t *testing.T, d, content string) {
			w.attach(t, path, tagOf(d)+".sbom", "", "text/spdx+json", content)
		},
		"noted in an index under a tag": func(t *testing.T, d, content string) {
			m := w.attach(t, path, "", "", "application/spdx+json", content)
			w.pushManifest(t, path, tagOf(d), indexType, map[string]any{
				"schemaVersion": 2,
				"mediaType":     indexType,
				"manifests":     []descriptor{{MediaType: manifestType, Digest: m, Size: 1}},
			})
		},
	}
	for name, put := range ways {
		t.Run(name, func(t *testing.T) {
			digest := w.pushImage(t, path, "x", "amd64", name)
			w.attach(t, path, "", digest, "application/spdx+json", spdxOf("older"))
			put(t, digest, spdxOf(strings.ReplaceAll(name, " ", "-")))
			w.attach(t, path, "", digest, "application/vnd.dsse.envelope.v1+json",
				attest(digestOf("another image"), spdxOf("another")))
			var got struct{ Name, Format, Source, Digest string }
			w.fetch(t, "/registry/v1/repos/"+repo+"/digests/"+digest+"/sbom", &got)
			if got.Name != strings.ReplaceAll(name, " ", "-") ||
				got.Format != "SPDX" || got.Source != "INGESTED" || got.Digest == "" {
				t.Errorf("SBOM %+v", got)
			}
		})
	}
	t.Run("inside an index, in BuildKit's way", func(t *testing.T) { w.tryBuildKit(t, repo, path) })
	t.Run("the newest first", func(t *testing.T) { w.tryReports(t, repo, path) })
}

func (w *world) tryBuildKit(t *testing.T, repo, path string) {
	image := w.pushImage(t, path, "child", "amd64", "built")
	statement := `{"_type":"https://in-toto.io/Statement/v0.1","predicateType":"https://spdx.dev/Document",` +
		`"subject":[{"digest":{"sha256":"` +
		strings.TrimPrefix(image, "sha256:") + `"}}],"predicate":` + spdxOf("built") + `}`
	attestation := w.attach(t, path, "", "", "application/vnd.in-toto+json", statement)
	index := w.pushManifest(t, path, "built", indexType,
		map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []any{
			map[string]any{
				"mediaType": manifestType,
				"digest":    image,
				"size":      1,
				"platform":  map[string]string{"architecture": "amd64", "os": "linux"},
			},
			map[string]any{
				"mediaType": manifestType,
				"digest":    attestation,
				"size":      1,
				"platform":  map[string]string{"architecture": "unknown", "os": "unknown"},
				"annotations": map[string]string{
					"vnd.docker.reference.digest": image, "vnd.docker.reference.type": "attestation-manifest",
				},
			},
		}})
	var got struct{ Name string }
	w.fetch(t, "/registry/v1/repos/"+repo+"/digests/"+index+"/sbom?arch=amd64", &got)
	if got.Name != "built" {
		t.Errorf("SBOM %q", got.Name)
	}
	out := &registryv1pb.ManifestMetadataList{}
	in := &registryv1pb.ManifestMetadataFilter{RepoId: repo, Items: []*registryv1pb.ManifestMetadataFilterEntry{
		{
			Filter: &registryv1pb.ManifestMetadataFilterEntry_IndexFilter{
				IndexFilter: &registryv1pb.ManifestMetadataIndexFilter{Digest: index, Arch: "amd64"},
			},
		},
		// This manifest has no SBOM.
		{Filter: &registryv1pb.ManifestMetadataFilterEntry_ImageDigest{ImageDigest: attestation}},
	}}
	err := w.conn.Invoke(bearing(t, w.Token), "/holdfast.registry.v1.Registry/ListManifestMetadata", in, out)
	if err != nil {
		t.Fatal(err)
	}
	want := &registryv1pb.ManifestMetadataList{Items: []*registryv1pb.ManifestMetadata{
		{
			Digest:      image,
			PkgMetadata: []*registryv1pb.PkgMetadata{{Purl: "pkg:apk/built@1", OriginPurl: "pkg:apk/built@1", License: "MIT"}},
		},
	}}
	if !proto.Equal(out, want) {
		t.Errorf("packages %v, want %v", out, want)
	}
}

func (w *world) tryReports(t *testing.T, repo, path string) {
	var digests []string
	for i, layer := range []string{"first", "second"} {
		digests = append(digests, w.pushImage(t, path, "scanned", "amd64", layer))
		w.attach(t, path, "", digests[i], "application/vnd.dsse.envelope.v1+json",
			attest(digests[i],
				`{"scanner":{"result":`+grypeOf("CVE-"+layer, "High", "2026-0"+string(rune('2'+i))+"-01T00:00:00Z")+`}}`))
		w.attach(t, path, "", digests[i], "application/json", grypeOf("CVE-both", "Negligible", "2026-01-01T00:00:00Z"))
	}
	var list struct {
		Items []struct {
			Digest          string
			Vulnerabilities []struct{ ID, Severity string }
		}
	}
	w.fetch(t, "/registry/v1/vuln_reports?digest="+digests[1], &list)
	if len(list.Items) != 2 || list.Items[0].Vulnerabilities[0].ID != "CVE-second" ||
		list.Items[1].Vulnerabilities[0].Severity != "NEGLIGIBLE" {
		t.Errorf("reports %+v", list)
	}
	var newest struct {
		VulnerabilityMatches []struct{ Vulnerability struct{ ID string } }
	}
	w.fetch(t, "/registry/v1/repos/"+repo+"/digests/"+digests[0]+"/vulnreport", &newest)
	if len(newest.VulnerabilityMatches) != 1 || newest.VulnerabilityMatches[0].Vulnerability.ID != "CVE-first" {
		t.Errorf("the newest report: %+v", newest)
	}
	var counts struct {
		Items []struct {
			Date   string
			CveIds []string
		}
	}
	for query, want := range map[string][]int{
		"counts?":                           {1, 1, 1, 1},
		"counts_cumulative?":                {1, 1, 2, 3},
		"counts?from=2026-02-01T00:00:00Z&": {1, 1},
		"counts?to=2026-01-31T00:00:00Z&":   {1, 1},
	} {
		w.fetch(t, "/registry/v1/vuln_reports/"+query+"repo=app&tag=scanned", &counts)
		var got []int
		for _, c := range counts.Items {
			got = append(got, len(c.CveIds))
		}
		if len(got) != len(want) || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

// TestApiV1RegistryDenied requests data about images in version 1 of the API, without the required capability. The
// answer must not depend on whether the resource exists.
func TestApiV1RegistryDenied(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	repo := w.repo(t, string(w.Organization), "app")
	digest := w.pushImage(t, "dev/app", "latest", "amd64", "x")
	w.attach(t, "dev/app", "", digest, "application/spdx+json", spdxOf("a"))
	stranger := w.mint(t, resource.UserUID("https://people.test", "stranger"), token.Claims{})
	missing := string(w.Organization) + "/0123456789abcdef"
	for target, capability := range map[string]string{
		"GET repocountbysource/{uid}":             "repo.list",
		"GET repos/{uid}/digests/{d}/sbom":        "sboms.list",
		"GET repos/{uid}/digest/{d}/rawsbom":      "sboms.list",
		"GET repos/{uid}/digests/{d}/vulnreport":  "vuln_reports.list",
		"GET repos/{uid}/digests/{d}/imageconfig": "repo.list",
		"GET repos/{uid}/digests/{d}/chart":       "repo.list",
		"GET repos/{uid}/digests/{d}/helm":        "repo.list",
		"GET repos/{uid}/chart-image-bindings":    "repo.list",
		"GET repos/{uid}/manifestmetdata":         "manifest.metadata.list",
		"GET digestcount/{uid}":                   "manifest.metadata.list",
		"GET repos/{uid}:updatestatus":            "tag.list",
		"GET repos/{uid}:syncstatus":              "repo.list",
		"GET syncstatuses?registry_id={uid}":      "repo.list",
		"GET repos/{uid}/deployment":              "registry.deployments.list",
		"POST repos/{uid}/deployment":             "repo.update",
		"PUT repos/{uid}/deployment":              "repo.update",
		"GET settings/{uid}":                      "registry.settings.list",
		"PUT settings/{uid}":                      "groups.update",
		"GET versions/go":                         "version.list",
		"GET buildreports":                        "build_report.list",
		"GET vuln_reports?repo_id={uid}":          "vuln_report.list",
	} {
		verb, path, _ := strings.Cut(target, " ")
		var answers []string
		for _, uid := range []string{repo, missing} {
			body := ""
			if verb != "GET" {
				body = "{}"
			}
			r := w.send(t, stranger, verb, "/registry/v1/"+strings.NewReplacer("{uid}", uid, "{d}", digest).Replace(path), body)
			if r.status != http.StatusForbidden || !strings.Contains(r.body, `"Permission denied: `+capability+` on `) {
				t.Errorf("%s: %d %s, want a denial of %s", target, r.status, r.body, capability)
			}
			answers = append(answers, strings.ReplaceAll(r.body, uid, "UID"))
		}
		if strip(answers[0]) != strip(answers[1]) {
			t.Errorf("%s: the answers for an existing and a missing resource differ:\n%s\n%s", target, answers[0], answers[1])
		}
	}
	for path, want := range map[string]int{
		"vuln_reports?digest=" + digest:    404,
		"vuln_reports/counts?repo=dev/app": 404,
		"vuln_reports/counts?repo=app":     200,
		"eoltags":                          200,
	} {
		if r := w.send(t, stranger, "GET", "/registry/v1/"+path, ""); r.status != want || strings.Contains(r.body, repo) {
			t.Errorf("%s: %d %s, want %d", path, r.status, r.body, want)
		}
	}
}

// strip returns the message of an error. The rest of the error differs between requests.
func strip(body string) string {
	var e struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return body
	}
	return e.Message
}

// TestApiV1RegistryNonsense puts invalid values into the string fields of every request in version 1 of the registry,
// one field at a time. Each request must succeed or be refused, and an error about a missing UID must name the field.
func TestApiV1RegistryNonsense(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		repo := w.repo(t, string(w.Organization), "app")
		digest := w.pushImage(t, "dev/app", "latest", "amd64", "x")
		for _, service := range []protoreflect.FullName{
			"holdfast.registry.v1.Registry", "holdfast.registry.v1.Vulnerabilities", "holdfast.events.v1.Identities",
		} {
			d, err := protoregistry.GlobalFiles.FindDescriptorByName(service)
			if err != nil {
				t.Fatal(err)
			}
			methods := d.(protoreflect.ServiceDescriptor).Methods()
			for i := range methods.Len() {
				w.tryNonsense(t, methods.Get(i), repo, digest)
			}
		}
	})
}

func (w *world) tryNonsense(t *testing.T, m protoreflect.MethodDescriptor, repo, digest string) {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	fields := m.Input().Fields()
	for i := range fields.Len() {
		bad := fields.Get(i)
		if bad.Kind() != protoreflect.StringKind || bad.IsList() || bad.IsMap() {
			continue
		}
		for _, nonsense := range []string{
			"", "nonsense", "a\x00b", "dev/a\x00b", "../..", strings.Repeat("x", 100_000), "sha256:" + strings.Repeat("g", 64),
		} {
			in := kind.New()
			// The other fields get valid values.
			for j := range fields.Len() {
				switch f := fields.Get(j); {
				case f.Kind() != protoreflect.StringKind || f.IsList():
				case f.Name() == "digest":
					in.Set(f, protoreflect.ValueOfString(digest))
				case strings.HasSuffix(string(f.Name()), "id"):
					in.Set(f, protoreflect.ValueOfString(repo))
				}
			}
			in.Set(bad, protoreflect.ValueOfString(nonsense))
			err := w.conn.Invoke(bearing(t, w.Token),
				"/"+string(m.Parent().FullName())+"/"+string(m.Name()), in.Interface(), newOutput(t, m))
			st := status.Convert(err)
			switch st.Code() {
			case codes.Internal, codes.Unknown, codes.Unavailable, codes.Unimplemented:
				t.Errorf("%s with %s %.20q: %v", m.FullName(), bad.Name(), nonsense, st)
			case codes.InvalidArgument:
				if len(st.Details()) < 2 {
					t.Errorf("%s with %s %.20q: the error names no field: %v", m.FullName(), bad.Name(), nonsense, st)
				}
			}
		}
	}
}
