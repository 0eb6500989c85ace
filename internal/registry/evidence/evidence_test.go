package evidence_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
)

const image = "sha256:aaaa"

const spdx = `{"spdxVersion":"SPDX-2.3","name":"app","comment":"c","creationInfo":{"created":"2026-01-02T03:04:05Z",
"creators":["Tool: syft-1.2","Organization: acme"]},
 "packages":[{"SPDXID":"SPDXRef-a","name":"a","versionInfo":"1-r0","licenseConcluded":"NOASSERTION",
"licenseDeclared":"MIT","summary":"s",
  "externalRefs":[{"referenceType":"cpe23Type","referenceLocator":"cpe:x"},{"referenceType":"purl",
"referenceLocator":"pkg:apk/wolfi/a-dev@1-r0?arch=x86_64&origin=a"}]}],
 "files":[{"SPDXID":"SPDXRef-f","fileName":"/f","fileTypes":["BINARY"]}],
 "relationships":[{"spdxElementId":"SPDXRef-DOCUMENT","relatedSpdxElement":"SPDXRef-a","relationshipType":"DESCRIBES"},
  {"spdxElementId":"SPDXRef-f","relatedSpdxElement":"SPDXRef-a","relationshipType":"CONTAINED_BY"},
  {"spdxElementId":"SPDXRef-f","relatedSpdxElement":"SPDXRef-a","relationshipType":"OTHER"}]}`

const cycloneDX = `{"bomFormat":"CycloneDX","specVersion":"1.5","version":1,
"metadata":{"timestamp":"2026-01-02T03:04:05Z","tools":{"components":[{"name":"trivy","version":"0.5"}]},
  "authors":[{"name":"ada"}],"component":{"type":"container","bom-ref":"root","name":"app"}},
 "components":[{"type":"library","bom-ref":"a","group":"g","name":"a","version":"1","purl":"pkg:npm/g/a@1",
"licenses":[{"license":{"id":"MIT"}},{"license":{"name":"Own"}}],
   "components":[{"type":"file","bom-ref":"f","name":"/f"}]}],
 "dependencies":[{"ref":"root","dependsOn":["a"]}]}`

const grype = `{"matches":[{"vulnerability":{"id":"GHSA-1","dataSource":"https://x","namespace":"github:go",
"severity":"High","urls":["https://u"],
   "cvss":[{"version":"3.1","metrics":{"baseScore":7.5}}],"fix":{"versions":["2"],"state":"fixed"}},
  "relatedVulnerabilities":[{"id":"CVE-2026-1","description":"bad"}],
  "artifact":{"id":"p","name":"a","version":"1","purl":"pkg:golang/a@1","cpes":["cpe:a"],
"locations":[{"path":"/bin/a"}]}}],
 "descriptor":{"name":"grype","version":"0.8","timestamp":"2026-01-02T03:04:05.123456Z",
"db":{"status":{"built":"2026-01-01T00:00:00Z"}}}}`

const trivy = `{"SchemaVersion":2,"CreatedAt":"2026-01-02T03:04:05Z","ArtifactName":"app","Trivy":{"Version":"0.5"},
"Results":[{"Target":"app (wolfi)","Vulnerabilities":[
  {"VulnerabilityID":"CVE-2026-2","PkgID":"b@1","PkgName":"b","InstalledVersion":"1","FixedVersion":"1.1, 1.2",
"Title":"t","Description":"d","Severity":"CRITICAL",
   "References":["https://r"],"PkgIdentifier":{"PURL":"pkg:apk/wolfi/b@1"},"DataSource":{"ID":"wolfi"},
"CVSS":{"nvd":{"V3Score":9.8},"redhat":{"V3Score":9.8,"V2Score":7}}}]}]}`

const sarif = `{"version":"2.1.0","runs":[{"tool":{"driver":{"name":"Snyk","semanticVersion":"1.0",
"rules":[{"id":"CVE-2026-3","helpUri":"https://h","shortDescription":{"text":"s"},
   "properties":{"security-severity":"5.5","purls":["pkg:apk/c@1"]}}]}},
"invocations":[{"endTimeUtc":"2026-01-02T03:04:05Z"}],
  "results":[{"ruleId":"CVE-2026-3","message":{"text":"m"},
"locations":[{"physicalLocation":{"artifactLocation":{"uri":"c.apk"}}}]},{"ruleId":"other","level":"error"}]}]}`

func statement(predicate string) string {
	return `{"_type":"https://in-toto.io/Statement/v1","predicateType":"p",` +
		`"subject":[{"name":"x","digest":{"sha256":"aaaa"}}],"predicate":` + predicate + `}`
}

func dsse(payload string) string {
	return `{"payloadType":"application/vnd.in-toto+json","payload":"` +
		base64.StdEncoding.EncodeToString([]byte(payload)) + `","signatures":[]}`
}

var scanned = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestOpen(t *testing.T) {
	quoted := strconv.Quote(grype)
	tests := map[string]struct {
		body     string
		format   evidence.Format
		subjects []string
		scanned  time.Time
	}{
		"bare SPDX":                {body: spdx, format: evidence.SPDX},
		"bare CycloneDX":           {body: cycloneDX, format: evidence.CycloneDX},
		"bare Grype":               {body: grype, format: evidence.Grype},
		"bare Trivy":               {body: trivy, format: evidence.Trivy},
		"Trivy that found nothing": {body: `{"SchemaVersion":2,"ArtifactName":"app"}`, format: evidence.Trivy},
		"bare SARIF":               {body: sarif, format: evidence.SARIF},
		"a statement":              {body: statement(spdx), format: evidence.SPDX, subjects: []string{image}},
		"a statement in a DSSE": {body: dsse(statement(cycloneDX)), format: evidence.CycloneDX,
			subjects: []string{image}},
		"a Sigstore bundle": {
			body:   `{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","dsseEnvelope":` + dsse(statement(spdx)) + `}`,
			format: evidence.SPDX, subjects: []string{image},
		},
		"cosign's old predicate": {body: statement(`{"Data":` + strconv.Quote(spdx) + `,"Timestamp":"x"}`),
			format: evidence.SPDX, subjects: []string{image}},
		"a predicate that is a text": {body: statement(strconv.Quote(spdx)), format: evidence.SPDX,
			subjects: []string{image}},
		"cosign's predicate of a scan": {body: statement(`{"scanner":{"uri":"pkg:grype","result":` + grype +
			`},"metadata":{"scanFinishedOn":"2026-01-02T03:04:05Z"}}`), format: evidence.Grype,
			subjects: []string{image}, scanned: scanned},
		"with a result that is a text": {body: `{"scanner":{"result":` + quoted +
			`},"metadata":{"scanStartedOn":"2026-01-02T03:04:05Z"}}`, format: evidence.Grype, scanned: scanned},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := evidence.Open([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got.Format != tt.format || !cmp.Equal(got.Subjects, tt.subjects) || !got.Scanned.Equal(tt.scanned) {
				t.Errorf("%s of %q at %v, want %s of %q at %v", got.Format, got.Subjects, got.Scanned, tt.format,
					tt.subjects, tt.scanned)
			}
		})
	}
	nested := spdx
	for range 6 {
		nested = dsse(nested)
	}
	for name, body := range map[string]string{
		"nothing": "", "no JSON": "SPDXVersion: SPDX-2.3", "another version": `{"spdxVersion":"SPDX-3.0"}`,
		"a predicate of something else": statement(`{"builder":{}}`),
		"a scan without a result":       `{"scanner":{}}`, "a payload that is none": `{"payload":"%"}`,
		"envelopes in envelopes": nested,
		"a statement of nothing": `{"_type":"https://in-toto.io/Statement/v1"}`,
		"many values":            `{"spdxVersion":"SPDX-2.3","packages":[` + strings.Repeat("{},", 1_000_001) + `{}]}`,
		"too large":              `{"spdxVersion":"SPDX-2.3","name":"` + strings.Repeat("x", evidence.MaxDocument) + `"}`,
	} {
		if got, err := evidence.Open([]byte(body)); err == nil {
			t.Errorf("%s is %s", name, got.Format)
		}
	}
}

func open(t *testing.T, body string) evidence.Document {
	t.Helper()
	d, err := evidence.Open([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSBOM(t *testing.T) {
	tests := map[string]struct {
		body string
		want evidence.SBOM
	}{
		"SPDX": {spdx, evidence.SBOM{
			Name: "app", Description: "c", Tool: "syft-1.2", Authors: []string{"Organization: acme"}, Time: scanned,
			Packages: []evidence.Package{{
				ID: "SPDXRef-a", Name: "a", Version: "1-r0", License: "MIT", Description: "s",
				PURL: "pkg:apk/wolfi/a-dev@1-r0?arch=x86_64&origin=a", Origin: "pkg:apk/wolfi/a@1-r0",
			}},
			Files: []evidence.File{{ID: "SPDXRef-f", Name: "/f", Types: []string{"BINARY"}}},
			Relationships: []evidence.Relationship{
				{From: "SPDXRef-DOCUMENT", To: "SPDXRef-a", Kind: evidence.Describes},
				{From: "SPDXRef-a", To: "SPDXRef-f", Kind: evidence.Contains},
				{From: "SPDXRef-f", To: "SPDXRef-a"},
			},
		}},
		"CycloneDX": {cycloneDX, evidence.SBOM{
			Name: "app", Tool: "trivy-0.5", Authors: []string{"ada"}, Time: scanned,
			Packages: []evidence.Package{{ID: "root", Name: "app"},
				{ID: "a", Name: "g/a", Version: "1", License: "MIT AND Own", PURL: "pkg:npm/g/a@1"}},
			Files: []evidence.File{{ID: "f", Name: "/f"}},
			Relationships: []evidence.Relationship{{From: "a", To: "f", Kind: evidence.Contains},
				{From: "root", To: "a", Kind: evidence.DependsOn}},
		}},
	}
	for name, tt := range tests {
		got, err := open(t, tt.body).SBOM()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := open(t, grype).SBOM(); !errors.Is(err, evidence.ErrUnknown) {
		t.Errorf("a report read as an SBOM: %v", err)
	}
	odd := strings.Replace(spdx, `"versionInfo":"1-r0"`, `"versionInfo":1`, 1)
	if got, err := open(t, odd).SBOM(); err != nil || len(got.Packages) != 1 || got.Packages[0].License != "MIT" ||
		got.Packages[0].Version != "" {
		t.Errorf("a version that is a number: %+v, %v", got.Packages, err)
	}
	if got, err := open(t, `{"spdxVersion":"SPDX-2.3","packages":"none"}`).SBOM(); err == nil {
		t.Errorf("packages that are no list: %+v", got)
	}
	old := strings.Replace(cycloneDX, `{"components":[{"name":"trivy","version":"0.5"}]}`,
		`[{"vendor":"v","name":"old","version":"1"}]`, 1)
	if got, err := open(t, old).SBOM(); err != nil || got.Tool != "old-1" {
		t.Errorf("tools as they were: %q, %v", got.Tool, err)
	}
}

func TestReport(t *testing.T) {
	tests := map[string]struct {
		body string
		want evidence.Report
	}{
		"Grype": {grype, evidence.Report{
			Scanner: "grype", Version: "0.8", Time: scanned.Add(123456 * time.Microsecond),
			DatabaseTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			Matches: []evidence.Match{{
				ID: "GHSA-1", Aliases: []string{"CVE-2026-1"}, Source: "github:go", Description: "bad",
				Severity: evidence.High, URLs: []string{"https://u"},
				CPEs: []string{"cpe:a"}, Scores: []evidence.Score{{Score: "7.5", Version: "3.1"}},
				Fix:       evidence.Fix{State: evidence.Fixed, Versions: []string{"2"}},
				Package:   evidence.Package{ID: "p", Name: "a", Version: "1", PURL: "pkg:golang/a@1"},
				Locations: []string{"/bin/a"},
			}},
		}},
		"Trivy": {trivy, evidence.Report{
			Scanner: "trivy", Version: "0.5", Time: scanned,
			Matches: []evidence.Match{{
				ID: "CVE-2026-2", Source: "wolfi", Description: "t", Details: "d", Severity: evidence.Critical,
				URLs:      []string{"https://r"},
				Scores:    []evidence.Score{{Score: "7", Version: "2.0"}, {Score: "9.8", Version: "3.1"}},
				Fix:       evidence.Fix{State: evidence.Fixed, Versions: []string{"1.1", "1.2"}},
				Locations: []string{"app (wolfi)"},
				Package:   evidence.Package{ID: "b@1", Name: "b", Version: "1", PURL: "pkg:apk/wolfi/b@1"},
			}},
		}},
		"SARIF": {sarif, evidence.Report{
			Scanner: "Snyk", Version: "1.0", Time: scanned,
			Matches: []evidence.Match{
				{
					ID: "CVE-2026-3", Description: "s", Details: "m", Severity: evidence.Medium,
					Scores: []evidence.Score{{Score: "5.5"}}, URLs: []string{"https://h"},
					Package: evidence.Package{PURL: "pkg:apk/c@1"}, Locations: []string{"c.apk"},
				},
				{ID: "other", Severity: evidence.High},
			},
		}},
		"what only the envelope dates": {
			`{"scanner":{"result":{"ArtifactName":"x"}},"metadata":{"scanFinishedOn":"2026-01-02T03:04:05Z"}}`,
			evidence.Report{Scanner: "trivy", Time: scanned},
		},
	}
	for name, tt := range tests {
		got, err := open(t, tt.body).Report()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	elsewhere := `{"descriptor":{},"matches":[{"vulnerability":{"id":"RHSA-1"},` +
		`"relatedVulnerabilities":[{"id":"CVE-1","cvss":[{"version":"3.1","metrics":{"baseScore":6.5}}]}]}]}`
	if got, err := open(t, elsewhere).Report(); err != nil ||
		!cmp.Equal(got.Matches[0].Scores, []evidence.Score{{Score: "6.5", Version: "3.1"}}) {
		t.Errorf("a score of the record it is about: %+v, %v", got, err)
	}
	if _, err := open(t, spdx).Report(); !errors.Is(err, evidence.ErrUnknown) {
		t.Errorf("an SBOM read as a report: %v", err)
	}
}

// archive returns a compressed tar archive of files. The arguments are the names and contents of the files, in turn.
func archive(t testing.TB, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	packed := tar.NewWriter(zipped)
	for i := 0; i < len(files); i += 2 {
		err := packed.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644,
			Typeflag: tar.TypeReg})
		if _, werr := packed.Write([]byte(files[i+1])); err != nil || werr != nil {
			t.Fatal(err, werr)
		}
	}
	if err := errors.Join(packed.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bomb returns an archive that is small but unpacks to a very large file, because it repeats the same compressed
// zeros.
func bomb(t *testing.T) []byte {
	t.Helper()
	const size, times = 1 << 20, 65
	var header bytes.Buffer
	if err := tar.NewWriter(&header).WriteHeader(&tar.Header{Name: "a/x", Size: size * times,
		Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	zip := func(content []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	return append(zip(header.Bytes()), bytes.Repeat(zip(make([]byte, size)), times)...)
}

const chart = `{"name":"redis","version":"1.0","appVersion":"7","description":"d","dependencies":[{"name":"common",
"version":"2","repository":"oci://x"}],
 "annotations":{"images":` +
	`"- name: redis\n  image: cgr.example/acme/redis:7@sha256:ab\n- name: exporter\n  image: exporter\n"}}`

func TestChart(t *testing.T) {
	got, err := evidence.ReadChart([]byte(chart))
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "redis" || got.AppVersion != "7" || len(got.Dependencies) != 1 || len(got.Images) != 2 ||
		got.Images[0].Repo() != "redis" || got.Images[1].Repo() != "exporter" {
		t.Errorf("chart = %+v", got)
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"name":"x"}`} {
		if _, err := evidence.ReadChart([]byte(bad)); err == nil {
			t.Errorf("%q is a chart", bad)
		}
	}
	if odd, err := evidence.ReadChart([]byte(`{"name":"x","version":"1","annotations":{"images":"a: b"}}`)); err != nil ||
		odd.Images != nil {
		t.Errorf("images that are no list: %v, %v", odd.Images, err)
	}
}

func TestChartFiles(t *testing.T) {
	files, err := evidence.ReadChartFiles(bytes.NewReader(archive(t,
		"redis/Chart.yaml", "name: redis", "redis/values.yaml", "a: \xff", "redis/charts/common/values.yaml", "no",
		"redis/CHANGELOG.md", "# 1", "values.yaml", "no", "redis/values.yaml", "again")))
	if err != nil {
		t.Fatal(err)
	}
	want := map[evidence.ChartFile]string{"Chart.yaml": "name: redis", "values.yaml": "a: \uFFFD",
		"CHANGELOG.md": "# 1"}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, body := range map[string][]byte{
		"no archive": []byte("x"), "half of one": archive(t, "a/Chart.yaml", "x")[:40],
		"a file that is too large": archive(t, "a/values.yaml", strings.Repeat("x", 1<<20+1)),
		"a bomb":                   bomb(t),
	} {
		if got, err := evidence.ReadChartFiles(bytes.NewReader(body)); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// FuzzDocument checks that an accepted document can be parsed as either an SBOM or a report, that all texts in it are
// valid UTF-8, and that its time can be represented.
func FuzzDocument(f *testing.F) {
	for _, body := range []string{spdx, cycloneDX, grype, trivy, sarif, statement(spdx), dsse(statement(grype)),
		`{"scanner":{"result":` + trivy + `}}`, `{"Data":"{}"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := evidence.Open(body)
		if err != nil {
			return
		}
		s, sbomErr := d.SBOM()
		r, reportErr := d.Report()
		isSBOM := d.Format == evidence.SPDX || d.Format == evidence.CycloneDX
		if isSBOM == (errors.Is(sbomErr, evidence.ErrUnknown)) ||
			isSBOM != errors.Is(reportErr, evidence.ErrUnknown) {
			t.Errorf("%s: %v, %v", d.Format, sbomErr, reportErr)
		}
		if !utf8.ValidString(fmt.Sprint(s, r)) {
			t.Error("a text that cannot travel")
		}
		if when := r.Time; !when.IsZero() && (when.Year() < 1970 || when.Year() > 9999) {
			t.Errorf("a time that cannot be told: %v", when)
		}
	})
}

// FuzzChart checks that an accepted configuration of a chart has a name and a version, and that all texts in it and
// in the archive's files are valid UTF-8.
func FuzzChart(f *testing.F) {
	f.Add([]byte(chart), archive(f, "redis/Chart.yaml", "name: redis", "redis/values.yaml", "a: b"))
	f.Add([]byte(`{"name":"x","version":"1","annotations":{"images":"&a [*a]"}}`), []byte("x"))
	f.Fuzz(func(t *testing.T, config, packed []byte) {
		c, err := evidence.ReadChart(config)
		if err == nil && (c.Name == "" || c.Version == "" || !utf8.ValidString(fmt.Sprint(c))) {
			t.Errorf("accepted: %+v", c)
		}
		for _, i := range c.Images {
			if strings.ContainsAny(i.Repo(), "/@") {
				t.Errorf("repo %q of %q", i.Repo(), i.Image)
			}
		}
		files, err := evidence.ReadChartFiles(bytes.NewReader(packed))
		for name, text := range files {
			if err != nil || !utf8.ValidString(text) {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	})
}

// TestAttackChartImages checks that YAML which would take minutes to parse is not read as a list of images, and that
// a list of a hundred images is.
func TestAttackChartImages(t *testing.T) {
	chart := func(images string) []byte {
		text, err := json.Marshal(map[string]any{"name": "a", "version": "1",
			"annotations": map[string]string{"images": images}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, tt := range map[string]struct {
		images string
		want   int
	}{
		"a hundred images":  {strings.Repeat("- {name: a, image: registry.example/acme/a:1.0}\n", 100), 100},
		"100,000 images":    {strings.Repeat("- {name: a, image: b}\n", 100_000), 0},
		"keys without end":  {"- {" + strings.Repeat("a: b, ", 700_000) + "}", 0},
		"lists without end": {strings.Repeat("[", 1<<20), 0},
		"aliases of aliases": {
			"- &a [x,x,x,x,x,x,x,x]\n- &b [*a,*a,*a,*a,*a,*a,*a,*a]\n" +
				"- &c [*b,*b,*b,*b,*b,*b,*b,*b]\n- [*c,*c,*c,*c,*c,*c,*c,*c]\n",
			0,
		},
	} {
		got, err := evidence.ReadChart(chart(tt.images))
		if err != nil || len(got.Images) != tt.want {
			t.Errorf("%s: %d images, %v; want %d", name, len(got.Images), err, tt.want)
		}
	}
}
