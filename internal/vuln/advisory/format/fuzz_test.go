package format_test

import (
	"bytes"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

func FuzzOSV(f *testing.F)     { document(f, "osv.json", "withdrawn.yaml") }
func FuzzOpenVEX(f *testing.F) { document(f, "openvex.json", "openvex-old.json") }
func FuzzSecDB(f *testing.F)   { document(f, "secdb.json") }
func FuzzYAML(f *testing.F)    { document(f, "distribution.yaml", "withdrawn.yaml") }

// document fuzzes a format. It checks that for any bytes every record has a name, and an ID or an error. It also checks
// that an advisory does not change if it is written as OSV and read again.
func document(f *testing.F, names ...string) {
	for _, name := range names {
		f.Add(sample(f, name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var sound []vuln.Advisory
		got := records(t, "f", text, format.Limits{Record: 1 << 20})
		for _, r := range got {
			if r.Name == "" || r.Err == nil && r.Advisory.ID == "" {
				t.Fatalf("a record without a name or an id: %+v", r)
			}
			if r.Err == nil && r.Advisory.Validate() == nil {
				sound = append(sound, r.Advisory)
			}
		}
		if len(sound) == 0 {
			return
		}
		back := advisories(t, "f", written(t, format.OSV, format.Options{}, sound))
		for i := range sound {
			// The times may differ, because OSV requires a modification time and the writer sets one.
			sound[i].Source.Modified, back[i].Source.Modified = writing, writing
		}
		if d := diff.Diff(sound, back, ignoreSource); d != "" {
			t.Fatalf("(-written +read)\n%s", d)
		}
		for _, to := range []format.Format{format.OpenVEX, format.SecDB} {
			advisories(t, "f", written(t, to, format.Options{Time: writing}, sound))
		}
	})
}

func FuzzZip(f *testing.F) {
	f.Add(archive(f, file{name: "a.json", text: osv("A-1")}, file{name: "b/c.yaml", text: "id: A-2", raw: true}))
	f.Add(archive(f))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("PK")) {
			records(t, "z", text, format.Limits{Record: 1 << 20, Total: 1 << 22})
		}
	})
}

func FuzzSeverity(f *testing.F) {
	f.Add(int32(vuln.CVSSv2), "AV:N/AC:L/Au:N/C:P/I:P/A:P")
	f.Add(int32(vuln.CVSSv3), "CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H")
	f.Add(int32(vuln.CVSSv3), "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/E:P")
	f.Add(int32(vuln.CVSSv4), "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N")
	f.Fuzz(func(_ *testing.T, kind int32, score string) {
		_ = format.CheckSeverity(vuln.Severity{Type: vuln.SeverityType(kind), Score: score})
	})
}

// FuzzExploits reads any text as an exploit list. If the list is accepted, it checks that the entries are ordered and
// within the limits, and that the text contains each of them.
func FuzzExploits(f *testing.F) {
	for _, text := range []string{
		epss, kev, gzipped(f, epss), gzipped(f, kev), epss[:90], kev[:300],
		"#model_version:,score_date:2026-01-02\ncve,epss,percentile\nCVE-2020-0001,1,1e0\n",
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, table bool) {
		r := bytes.NewReader(text)
		detected := format.DetectExploits(r, r.Size())
		if detected == "" {
			if detected = vuln.KEV; table {
				detected = vuln.EPSS
			}
		}
		list, entries, err := format.ReadExploits(t.Context(), r, r.Size(), detected)
		if err != nil {
			if entries != nil {
				t.Errorf("%d entries together with an error", len(entries))
			}
			return
		}
		if len(entries) == 0 || list.Count != int64(len(entries)) || list.Time.IsZero() || len(list.Version) > 64 {
			t.Errorf("%d entries of %+v", len(entries), list)
		}
		packed := bytes.HasPrefix(text, []byte("\x1f\x8b"))
		for i, e := range entries {
			if i > 0 && entries[i-1].CVE >= e.CVE || e.Scored == e.Known || e.Probability > 1e9 || e.Percentile > 1e9 {
				t.Errorf("entry %d is %+v", i, e)
			}
			if !packed && detected == vuln.EPSS && !bytes.Contains(bytes.ToUpper(text), []byte(e.CVE.String())) {
				t.Errorf("%s is not in the text", e.CVE)
			}
		}
	})
}

// FuzzStatements checks that reading any document ends within the limits, and that the statements can be written.
func FuzzStatements(f *testing.F) {
	f.Add([]byte(`{"@context":"https://openvex.dev/ns/v0.2.0","author":"a","statements":[` +
		`{"vulnerability":"CVE-1","products":["pkg:npm/x"],"status":"fixed"}]}`))
	f.Add([]byte(`{"@context":"https://openvex.dev/ns","statements":[{"vulnerability":{"name":"CVE-1"},` +
		`"products":[{"@id":"x","hashes":{"sha-256":1}}],"status":"affected"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, statements, err := format.ReadStatements(text)
		if err != nil {
			return
		}
		if len(statements) > format.MaxStatements {
			t.Fatalf("%d statements", len(statements))
		}
		if _, err := format.WriteStatements(format.Options{}, statements); err != nil {
			t.Fatal(err)
		}
	})
}
