package format_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

var writing = time.Date(2024, 6, 1, 12, 0, 0, 0, time.UTC)

// written returns a document with the advisories.
func written(t testing.TB, f format.Format, o format.Options, stored []vuln.Advisory) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := format.NewWriter(&b, f, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range stored {
		if err := w.Write(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// everything returns all advisories of the samples, and one advisory that a person wrote.
func everything(t testing.TB) []vuln.Advisory {
	stored := []vuln.Advisory{{
		ID: "HFA-8888-8888-8888", LegacyID: "OLD-1", Author: "alice@example.org", ArtifactName: "reader",
		ArtifactType:         "oci",
		ArtifactArchitecture: "arm64", ComponentName: "words", ComponentLocation: "/usr/bin/words",
		ComponentType: "golang",
		UpdateTime:    writing, Aliases: []string{"CVE-2024-8888"},
		Events: []vuln.AdvisoryEvent{
			{UID: "x", CreateTime: writing, Author: "bob@example.org", Reviewer: "alice@example.org",
				ReviewState: vuln.ReviewApproved,
				Type:        vuln.EventPatched, Patched: []string{"1.0", "1.1"}, Note: "In <both> branches"},
			{CreateTime: writing, ReviewState: vuln.ReviewPending, Type: vuln.EventFixNotPlanned,
				Findings: []byte(`{"a":1}`)},
		},
	}}
	for _, name := range samples {
		stored = append(stored, advisories(t, name, sample(t, name))...)
	}
	return stored
}

// ignoreSource ignores the source of an advisory, and the fields that the store sets.
var ignoreSource = diff.Options{
	cmpopts.IgnoreFields(vuln.AdvisorySource{}, "Digest", "Name", "Format"),
	cmpopts.IgnoreFields(vuln.Advisory{}, "UpdateTime"),
	cmpopts.IgnoreFields(vuln.AdvisoryEvent{}, "UID"),
	cmpopts.EquateEmpty(),
	cmpopts.EquateApproxTime(0),
}

func TestOSVComesBackTheSame(t *testing.T) {
	want := everything(t)
	for i := range want {
		// OSV requires a modification time, so the writer uses UpdateTime if the source has none.
		want[i].Source.Modified = cmp.Or(want[i].Source.Modified, want[i].UpdateTime)
	}
	for name, o := range map[string]format.Options{"lines": {}, "zip": {Zip: true}} {
		t.Run(name, func(t *testing.T) {
			text := written(t, format.OSV, o, everything(t))
			got := advisories(t, "f", text)
			if d := diff.Diff(want, got, ignoreSource); d != "" {
				t.Errorf("(-written +read)\n%s", d)
			}
			if again := written(t, format.OSV, o, got); name == "lines" && !bytes.Equal(text, again) {
				t.Errorf("the second text differs:\n%s\n%s", text, again)
			}
		})
	}
}

func TestOSVOfOthersStaysTheirs(t *testing.T) {
	text := written(t, format.OSV, format.Options{}, advisories(t, "osv.json", sample(t, "osv.json")))
	if bytes.Contains(text, []byte(`"holdfast":`)) {
		t.Errorf("the record has an extension: %s", text)
	}
}

// answers returns the IDs of the advisories that affect each of several versions.
func answers(t *testing.T, found []vuln.Advisory) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for _, p := range []struct{ ecosystem, name string }{{"Wolfi", "words"}, {"Alpine:v3.20", "words"},
		{"Alpine:v3.20", "letters"}, {"Go", "example.org/words"}, {"Debian", "words"}} {
		for _, v := range []string{"0.1", "1.2.3-r0", "1.2.3-r1", "1.2.9-r0", "1.2.10-r0", "1.4.2", "2.0", "2.0-r0",
			"2:1.0-1", "3"} {
			q, err := version.NewQuery(p.ecosystem, v)
			if err != nil {
				continue
			}
			key := p.ecosystem + " " + p.name + " " + v
			for _, a := range found {
				for _, f := range a.Affected {
					if in, err := q.In(f); f.Name == p.name && in && err == nil {
						got[key] = append(got[key], a.ID)
					}
				}
			}
			slices.Sort(got[key])
		}
	}
	return got
}

func TestSecDBGivesTheSameAnswers(t *testing.T) {
	stored := everything(t)
	for _, distribution := range []string{"Alpine:v3.20", "Wolfi"} {
		t.Run(distribution, func(t *testing.T) {
			text := written(t, format.SecDB,
				format.Options{Distribution: distribution, Repository: "main", URLPrefix: "https://example.org"},
				slices.Concat(stored, stored))
			once := advisories(t, "f", text)
			again := advisories(t, "f",
				written(t, format.SecDB,
					format.Options{Distribution: distribution, Repository: "main", URLPrefix: "https://example.org"},
					once))
			if got := bytes.Contains(text, []byte(`"letters"`)); got != (distribution == "Alpine:v3.20") {
				t.Errorf("has a package of Alpine: %v", got)
			}
			never := map[string]string{"Alpine:v3.20": `"0":["CVE-2024-2224"]`,
				"Wolfi": `"0":["CVE-2024-2225"]`}[distribution]
			if !bytes.Contains(text, []byte(never)) {
				t.Errorf("%s is missing in %s", never, text)
			}
			if len(once) == 0 || len(answers(t, once)) == 0 {
				t.Fatalf("no advisories were read from %s", text)
			}
			if d := diff.Diff(once, again, ignoreSource); d != "" {
				t.Errorf("(-once +twice)\n%s", d)
			}
			var source []vuln.Advisory // the advisories of the Alpine sample; empty for Wolfi
			for _, a := range advisories(t, "secdb.json", sample(t, "secdb.json")) {
				if distribution == "Alpine:v3.20" {
					source = append(source, a)
				}
			}
			if d := diff.Diff(answers(t, source), answers(t, once)); distribution == "Alpine:v3.20" && d != "" {
				t.Errorf("(-source +once)\n%s", d)
			}
		})
	}
}

func TestOpenVEXGivesTheSameAnswers(t *testing.T) {
	o := format.Options{Author: "Example Product Security", ID: "https://example.org/vex/9", Time: writing}
	for _, name := range []string{"openvex.json", "openvex-old.json"} {
		want := advisories(t, name, sample(t, name))
		got := advisories(t, "f", written(t, format.OpenVEX, o, want))
		if d := diff.Diff(answers(t, want), answers(t, got)); d != "" {
			t.Errorf("%s: (-written +read)\n%s", name, d)
		}
		if d := diff.Diff(want, got, ignoreSource, cmpopts.IgnoreFields(vuln.Advisory{}, "Summary", "ComponentType"),
			cmpopts.SortSlices(strings.Compare)); d != "" {
			t.Errorf("%s: (-written +read)\n%s", name, d)
		}
	}
}

// TestOpenVEXOfEverything writes advisories that OpenVEX can represent only in part, and checks that the document is
// valid for every source.
func TestOpenVEXOfEverything(t *testing.T) {
	o := format.Options{Author: "Example", ID: "https://example.org/vex/9", Time: writing}
	ids := map[string]bool{}
	for _, a := range advisories(t, "f", written(t, format.OpenVEX, o, everything(t))) {
		ids[a.ID] = true
		if err := a.Validate(); err != nil {
			t.Errorf("%s: %v", a.ID, err)
		}
	}
	for _, a := range everything(t) {
		if len(a.Fixes) > 0 { // it is read back as a separate advisory about each vulnerability
			ids[a.ID] = !slices.ContainsFunc(a.Fixes, func(name string) bool { return !ids[a.ID+"/"+name] })
		}
		if ids[a.ID] != a.DeleteTime.IsZero() {
			t.Errorf("%s, withdrawn %v, was read back: %v", a.ID, a.DeleteTime, ids[a.ID])
		}
	}
}

func TestEmptyDocuments(t *testing.T) {
	for f, want := range map[format.Format]string{format.OSV: "f [is empty]", format.OpenVEX: "", format.SecDB: ""} {
		if got := names(records(t, "f", written(t, f, format.Options{}, nil), format.Limits{})); got != want {
			t.Errorf("%s: %s, want %s", f, got, want)
		}
		packed := archive(t, file{name: "f", text: ""},
			file{name: "f.json", text: string(written(t, f, format.Options{}, nil))})
		if got := names(records(t, "z", packed, format.Limits{})); got != strings.Replace(want, "f", "f.json", 1) {
			t.Errorf("%s, packed: %s, want %s", f, got, want)
		}
	}
	if text := string(written(t, format.OpenVEX, format.Options{Time: writing}, nil)); !strings.Contains(text,
		`"@id":"urn:holdfast:openvex:20240601T120000.000Z","author":"holdfast"`) {
		t.Errorf("an OpenVEX document without an author or an id: %s", text)
	}
	if _, err := format.NewWriter(nil, "csv", format.Options{}); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("an unknown format: %v, want InvalidArgument", err)
	}
}

func TestOpenVEXDocument(t *testing.T) {
	a := vuln.Advisory{
		ID: "GO-2024-1", Aliases: []string{"GHSA-1-1-1", "CVE-2024-1"}, Source: vuln.AdvisorySource{Format: "osv"},
		Affected: []vuln.Affected{
			{Ecosystem: "npm", Name: "@a/b", Versions: []string{"1.0.0+x"}},
			{Ecosystem: "Go", Name: "example.org/A",
				Ranges: []vuln.AffectedRange{{Type: "SEMVER",
					Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "1.2.0"}}}}},
		},
		Events: []vuln.AdvisoryEvent{
			{CreateTime: writing, ReviewState: vuln.ReviewApproved, Type: vuln.EventDetection},
			{CreateTime: writing.Add(time.Hour), ReviewState: vuln.ReviewApproved, Type: vuln.EventFixed,
				Fixed: &vuln.Fix{Version: "1.1.0"}},
			{CreateTime: writing.Add(2 * time.Hour), ReviewState: vuln.ReviewRejected,
				Type: vuln.EventFalsePositive},
		},
	}
	got := string(written(t, format.OpenVEX,
		format.Options{Author: "Example", ID: "https://example.org/vex/9", Time: writing}, []vuln.Advisory{a}))
	const vulnerability = `{"@id":"urn:holdfast:advisory:GO-2024-1","vulnerability":{"name":"CVE-2024-1",` +
		`"aliases":["GO-2024-1","GHSA-1-1-1"]},`
	want := `{"@context":"https://openvex.dev/ns/v0.2.0","@id":"https://example.org/vex/9","author":"Example",` +
		`"timestamp":"2024-06-01T12:00:00Z","version":1,"statements":[` + "\n" +
		vulnerability + `"timestamp":"2024-06-01T12:00:00Z",` +
		`"products":[{"@id":"pkg:npm/%40a/b@1.0.0%2Bx"},{"@id":"pkg:golang/example.org/A"}],"status":"affected",` +
		`"action_statement":"Update to a version that is not affected."},` + "\n" +
		vulnerability + `"timestamp":"2024-06-01T13:00:00Z",` +
		`"products":[{"@id":"pkg:npm/%40a/b@1.1.0"},{"@id":"pkg:golang/example.org/A@1.2.0"}],"status":"fixed"}]}` + "\n"
	if d := diff.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// reopened returns an advisory that was fixed and then found again, with the fix in its range.
func reopened(events ...vuln.AdvisoryEvent) vuln.Advisory {
	event := func(hour int, kind vuln.AdvisoryEventType) vuln.AdvisoryEvent {
		return vuln.AdvisoryEvent{CreateTime: writing.Add(time.Duration(hour) * time.Hour), Type: kind,
			ReviewState: vuln.ReviewApproved}
	}
	fixed, detected := event(1, vuln.EventFixed), event(2, vuln.EventPendingUpstreamFix)
	fixed.Fixed = &vuln.Fix{Version: "1.0-r0"}
	return vuln.Advisory{
		ID: "CGA-1", Aliases: []string{"CVE-2024-1"}, ArtifactName: "p", ArtifactType: "apk",
		Source: vuln.AdvisorySource{Format: "yaml"},
		Affected: []vuln.Affected{{Ecosystem: "Wolfi", Name: "p", Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM",
			Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "1.0-r0"}}}}}},
		Events: append([]vuln.AdvisoryEvent{fixed, detected}, events...),
	}
}

// TestReopened writes an advisory whose fix was withdrawn, and checks that no format contains the fix.
func TestReopened(t *testing.T) {
	again := vuln.AdvisoryEvent{CreateTime: writing.Add(3 * time.Hour), Type: vuln.EventFixed,
		ReviewState: vuln.ReviewApproved, Fixed: &vuln.Fix{Version: "1.1-r0"}}
	// statement returns the last part of a statement's text: its products, status and time.
	statement := func(hour int, status string, products ...string) string {
		return fmt.Sprintf(`"timestamp":"2024-06-01T%d:00:00Z","products":[{"@id":"%s"}],"status":"%s"`, 12+hour,
			strings.Join(products, `"},{"@id":"`), status)
	}
	tests := map[string]struct {
		a             vuln.Advisory
		f             format.Format
		want, without []string
	}{
		"osv": {reopened(), format.OSV, []string{`"events":[{"introduced":"0"}]`}, []string{`{"fixed"`}},
		"osv, fixed again": {reopened(again), format.OSV,
			[]string{`"events":[{"introduced":"0"},{"fixed":"1.1-r0"}]`}, nil},
		"secdb": {reopened(), format.SecDB, []string{`"packages":[]`}, []string{"CGA-1"}},
		"secdb, fixed again": {reopened(again), format.SecDB,
			[]string{`"secfixes":{"1.1-r0":["CVE-2024-1 CGA-1"]}`}, []string{"1.0-r0"}},
		"openvex": {reopened(), format.OpenVEX, []string{
			statement(1, "fixed", "pkg:apk/wolfi/p@1.0-r0"),
			statement(2, "affected", "pkg:apk/wolfi/p", "pkg:apk/wolfi/p@1.0-r0"),
		}, nil},
		"openvex, fixed again": {reopened(again), format.OpenVEX, []string{
			statement(1, "fixed", "pkg:apk/wolfi/p@1.0-r0"),
			statement(2, "affected", "pkg:apk/wolfi/p", "pkg:apk/wolfi/p@1.0-r0"),
			statement(3, "fixed", "pkg:apk/wolfi/p@1.1-r0"),
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := string(written(t, tt.f, format.Options{Time: writing}, []vuln.Advisory{tt.a}))
			for _, s := range tt.want {
				if !strings.Contains(text, s) {
					t.Errorf("%s is missing in\n%s", s, text)
				}
			}
			for _, s := range tt.without {
				if strings.Contains(text, s) {
					t.Errorf("%s is in\n%s", s, text)
				}
			}
		})
	}
	text := written(t, format.OpenVEX, format.Options{Time: writing}, []vuln.Advisory{reopened()})
	if back := advisories(t, "f", text); len(back) != 1 || len(back[0].Events) != 2 ||
		back[0].Latest().Type != vuln.EventTruePositive {
		t.Errorf("%s was read as %+v", text, back)
	}
}

func TestCheckSeverity(t *testing.T) {
	tests := map[string]struct {
		kind  vuln.SeverityType
		score string
		ok    bool
	}{
		"2.0": {vuln.CVSSv2, "AV:N/AC:L/Au:N/C:P/I:P/A:P", true},
		"3.0": {vuln.CVSSv3, "CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", true},
		"3.1": {vuln.CVSSv3, "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/E:P", true},
		"4.0": {vuln.CVSSv4, "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N",
			true},
		"another version":    {vuln.CVSSv2, "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", false},
		"a metric too few":   {vuln.CVSSv3, "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H", false},
		"a metric twice":     {vuln.CVSSv3, "CVSS:3.1/AV:N/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", false},
		"a value of another": {vuln.CVSSv3, "CVSS:3.1/AV:Z/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", false},
		"a number":           {vuln.CVSSv3, "9.8", false},
		"nothing":            {vuln.CVSSv4, "", false},
		"no version":         {vuln.SeverityUnspecified, "AV:N/AC:L/Au:N/C:P/I:P/A:P", false},
		"much too much":      {vuln.CVSSv2, strings.Repeat("AV:N/", 1000), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := format.CheckSeverity(vuln.Severity{Type: tt.kind, Score: tt.score})
			if tt.ok && err != nil || !tt.ok && !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("error = %v", err)
			}
		})
	}
}
