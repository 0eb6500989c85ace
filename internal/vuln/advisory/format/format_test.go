package format_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

var update = flag.Bool("update", false, "write the golden files")

// records reads a whole feed.
func records(t testing.TB, name string, text []byte, lim format.Limits) []format.Record {
	t.Helper()
	var found []format.Record
	for r := range format.Read(t.Context(), name, bytes.NewReader(text), int64(len(text)), lim) {
		found = append(found, r)
	}
	return found
}

// advisories reads a feed without invalid records.
func advisories(t testing.TB, name string, text []byte) []vuln.Advisory {
	t.Helper()
	var found []vuln.Advisory
	for _, r := range records(t, name, text, format.Limits{}) {
		if r.Err != nil {
			t.Fatalf("%s %v", r.Name, r.Err)
		}
		found = append(found, r.Advisory)
	}
	return found
}

func sample(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var samples = []string{"osv.json", "withdrawn.yaml", "openvex.json", "openvex-old.json", "secdb.json",
	"distribution.yaml", "reopened.yaml"}

// TestSamples compares the advisories of samples with golden files, and checks that they are valid.
func TestSamples(t *testing.T) {
	for _, name := range samples {
		t.Run(name, func(t *testing.T) {
			found := advisories(t, name, sample(t, name))
			for _, a := range found {
				if err := a.Validate(); err != nil {
					t.Errorf("%s is not valid: %v", a.ID, err)
				}
				if len(a.Source.Digest) != 16 || a.Source.Name != name {
					t.Errorf("%s has the digest %x and the name %s", a.ID, a.Source.Digest, a.Source.Name)
				}
				for _, v := range a.Affected {
					if err := version.CheckRanges(v); err != nil {
						t.Errorf("%s: %v", a.ID, err)
					}
				}
			}
			got, err := json.MarshalIndent(found, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := name + ".golden"
			if *update {
				if err := os.WriteFile(filepath.Join("testdata", golden), got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(sample(t, golden)), string(got)); diff != "" {
				t.Errorf("(-golden +read)\n%s", diff)
			}
		})
	}
}

func osv(id string) string {
	const affected = `[{"package": {"ecosystem": "npm", "name": "words"}, "versions": ["1"]}]`
	return fmt.Sprintf(`{"id": %q, "modified": "2024-01-01T00:00:00Z", "affected": %s}`, id, affected)
}

// names returns the names and IDs of records, with the error in brackets for an invalid record.
func names(found []format.Record) string {
	var words []string
	for _, r := range found {
		word := r.Name + "=" + r.Advisory.ID
		if r.Err != nil {
			word = r.Name + " [" + r.Err.Error() + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestManyInOneFile(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"one":               {osv("A-1"), "f=A-1"},
		"one, with a mark":  {"\ufeff" + osv("A-1"), "f=A-1"},
		"lines":             {osv("A-1") + "\n" + osv("A-2") + "\n", "f=A-1, f#2=A-2"},
		"without lines":     {osv("A-1") + osv("A-2"), "f=A-1, f#2=A-2"},
		"brackets in words": {`{"id": "A-1", "summary": "}\\\"}]{"}` + osv("A-2"), "f=A-1, f#2=A-2"},
		"an array":          {"[" + osv("A-1") + ",\n" + osv("A-2") + "]", "f=A-1, f#2=A-2"},
		"a broken one among them": {osv("A-1") + `{"id": 7}` + osv("A-2"),
			"f=A-1, f#2 [is invalid JSON: expected a string at byte 7], f#3=A-2"},
		"several kinds": {osv("A-1") +
			`{"packages":[{"pkg":{"name":"words","secfixes":{"1-r0":["CVE-1-1"]}}}]}`,
			"f=A-1, f#2=" + vuln.StableAdvisoryID("secdb", "Alpine", "words", "CVE-1-1")},
		"nothing":                  {"", "f [is empty]"},
		"white space":              {" \n", "f [is empty]"},
		"an empty array":           {"[]", "f [is empty]"},
		"an array without its end": {"[" + osv("A-1"), "f=A-1, f#2 [ends in the middle of a record]"},
		"a record without its end": {osv("A-1") + `{"id": "A-2"`, "f=A-1, f#2 [ends in the middle of a record]"},
		"something after the array": {"[" + osv("A-1") + "] x",
			"f=A-1, f#2 [is not a JSON object or a list of JSON objects]"},
		"an array of numbers":   {"[1]", "f [is not a JSON object or a list of JSON objects]"},
		"two documents of YAML": {"id: A-1\n---\nid: A-2\n", "f=A-1, f#2=A-2"},
		"a broken document of YAML": {"id: A-1\n---\nid: [A-2\n",
			"f=A-1, f#2 [is neither JSON nor supported YAML: yaml: line 2: did not find expected ',' or ']']"},
		"bytes of no kind": {"\x01\x02\x03",
			"f [is neither JSON nor supported YAML: yaml: control characters are not allowed]"},
		"a word":                     {"hello", "f [is invalid JSON: expected an object at byte 0]"},
		"an empty document of YAML":  {"# nothing\n", "f [is empty]"},
		"a list of YAML":             {"- 1\n", "f [is invalid JSON: expected an object at byte 0]"},
		"an archive that is not one": {"PK\x03\x04 and so on", "f [is a damaged zip archive]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := names(records(t, "f", []byte(tt.text), format.Limits{})); got != tt.want {
				t.Errorf("records: %s\nwant:    %s", got, tt.want)
			}
			if strings.HasPrefix(tt.text, "PK") {
				return // archives inside archives are not supported
			}
			want := strings.NewReplacer("f=", "f.json=", "f#", "f.json#", "f [", "f.json [").Replace(tt.want)
			if got := names(records(t, "z", archive(t, file{name: "f.json", text: tt.text}),
				format.Limits{})); got != want {
				t.Errorf("zipped: %s\nwant:   %s", got, want)
			}
		})
	}
}

func TestBrokenRecords(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1,
			c-1, c-1, c-1)
	}
	tests := map[string]struct{ text, reason string }{
		"no id": {`{"modified": "2024-01-01T00:00:00Z"}`, "has no id"},
		"a time that is none": {`{"id": "A-1", "modified": "yesterday"}`,
			`has a time that is not in the format of RFC 3339: "yesterday"`},
		"a list that is none": {`{"id": "A-1", "aliases": "CVE-1"}`, "expected an array"},
		"a severity that is none": {`{"id": "A-1", "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:X"}]}`,
			`"CVSS:3.1/AV:X" is not a CVSS_V3 vector`},
		"a severity of another version": {`{"id": "A-1", "severity": [{"type": "CVSS_V4", ` +
			`"score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]}`, "is not a CVSS_V4 vector"},
		"deep JSON": {`{"id": "A-1", "database_specific": ` + deep + `}`,
			"is nested deeper than 64 levels"},
		"deep JSON in OpenVEX": {`{"@context": "https://openvex.dev/ns", "x": ` + deep + `}`,
			"is nested deeper than 64 levels"},
		"deep YAML": {"id: A-1\nx: " + strings.Repeat("[", 100) + strings.Repeat("]", 100),
			"is nested deeper than 64 levels"},
		"very deep YAML":             {strings.Repeat("- ", 20000) + "x", "is neither JSON nor supported YAML"},
		"a YAML bomb":                {bomb, "anchors and aliases are not supported"},
		"a YAML merge":               {"<<: {id: A-1}", "a key must be text"},
		"a YAML key that is a list":  {"? [a]\n: b", "a key must be text"},
		"YAML that refers to itself": {"a: &a [*a]", "anchors and aliases are not supported"},
		"wrong UTF-8":                {"{\"id\": \"A-1\", \"summary\": \"\xff\"}", "is not valid UTF-8"},
		"wrong UTF-8 in YAML":        {"id: \xff", "is neither JSON nor supported YAML"},
		"absurdly many packages": {`{"id": "A-1", "affected": [` + strings.Repeat("{},", 1<<18) + "{}]}",
			"has more than 262144 values"},
		"a statement of many parts": {vex(`{"vulnerability": {"name": "CVE-1", "aliases": [` +
			strings.Repeat(`"",`, 1<<18) + `""]}}`), "has more than 262144 values"},
		"absurdly many statements": {`{"@context": "https://openvex.dev/ns", "statements": [` +
			strings.Repeat("{},", 1<<18) + "{}]}", "has more than 262144 values"},
		"YAML that is too large": {"id: A-1\nsummary: " + strings.Repeat("x", 3<<20),
			"is larger than the limit for a record"},
		"another context": {`{"@context": "https://example.org", "statements": []}`,
			`has a @context that is not OpenVEX's: "https://example.org"`},
		"no vulnerability": {vex(`{"products": [{"@id": "x"}], "status": "fixed"}`),
			"number 1: it names no vulnerability"},
		"no product": {vex(`{"vulnerability": {"name": "CVE-1"}, "status": "fixed"}`),
			"it names no product"},
		"a product without a name": {vex(`{"vulnerability": {"name": "CVE-1"}, "products": [{}], "status": "fixed"}`),
			"it names no product"},
		"a status that is none": {vex(`{"vulnerability": {"name": "CVE-1"}, "products": ["x"], "status": "great"}`),
			`it has the unknown status "great"`},
		"not affected for no reason": {
			vex(`{"vulnerability": {"name": "CVE-1"}, "products": ["x"], "status": "not_affected"}`),
			"it has neither a justification nor an impact_statement"},
		"a secdb of text":            {`{"packages": "many"}`, "is invalid JSON"},
		"an advisory of no package":  {"advisories: []", "names no package"},
		"an advisory without an id":  {"package: {name: words}\nadvisories: [{}]", "has no id"},
		"an advisory without events": {"package: {name: words}\nadvisories: [{id: A-1}]", "A-1 has no events"},
		"an event of no kind":        {distro("type: great"), `has an event of the unknown type "great"`},
		"fixed in no version":        {distro("type: fixed"), "has a fixed event without a fixed-version"},
		"a false positive for no reason": {distro("type: false-positive-determination, data: {type: because}"),
			`has a false positive with the unknown reason "because"`},
		"an invalid extension": {`{"id": "A-1", "database_specific": {"holdfast": {"events": 7}}}`,
			"has an invalid database_specific.holdfast"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found := records(t, "f", []byte(tt.text), format.Limits{})
			if len(found) != 1 || found[0].Err == nil || !strings.Contains(found[0].Err.Error(), tt.reason) ||
				found[0].Advisory.ID != "" {
				t.Errorf("records: %s\nwant one that fails with %q", names(found), tt.reason)
			}
		})
	}
}

// TestLongDocument checks that a document with many records can be read, although the records together have more values
// than one record may have.
func TestLongDocument(t *testing.T) {
	extra := "[1" + strings.Repeat(",1", 1000) + "]"
	var statements []string
	for i := range 300 {
		statements = append(statements, fmt.Sprintf(
			`{"vulnerability": {"name": "CVE-%d"}, "products": ["x"], "status": "fixed", "extra": %s}`, i, extra))
	}
	if got := advisories(t, "f", []byte(vex(strings.Join(statements, ",")))); len(got) != len(statements) {
		t.Errorf("%d advisories", len(got))
	}
}

func vex(statement string) string {
	return `{"@context": "https://openvex.dev/ns/v0.2.0", "statements": [` + statement + `]}`
}

func distro(event string) string {
	return "package: {name: words}\nadvisories: [{id: A-1, events: [{timestamp: 2024-01-01T00:00:00Z, " + event +
		"}]}]"
}

// A file is an entry of an archive.
type file struct {
	name string
	text string
	raw  bool        // whether the entry is stored without compression
	mode os.FileMode // file mode; set for an entry that is not a regular file
}

func archive(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		if f.raw {
			h.Method = zip.Store
		}
		if f.mode != 0 {
			h.SetMode(f.mode)
		}
		e, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchive(t *testing.T) {
	got := records(t, "z.zip", archive(t,
		file{name: "b/"}, file{name: "b/2.json", text: osv("A-2")}, file{name: "1.yaml", text: "id: A-1"},
		file{name: "LICENSE", text: "as you like"}, file{name: "stored.json", text: osv("A-3"), raw: true},
		file{name: "../up.json", text: osv("A-4")}, file{name: "/abs.json", text: osv("A-4")},
		file{name: `c:\w.json`, text: osv("A-4")},
		file{name: "link.json", text: "/etc/passwd", mode: os.ModeSymlink | 0o777},
		file{name: "many.jsonl", text: osv("A-5") + osv("A-6")},
	), format.Limits{})
	want := `b/2.json=A-2, 1.yaml=A-1, stored.json=A-3, "../up.json" [is not a plain relative path], ` +
		`"/abs.json" [is not a plain relative path], ` +
		`"c:\\w.json" [is not a plain relative path], link.json [is not a regular file], many.jsonl=A-5, many.jsonl#2=A-6`
	if names(got) != want {
		t.Errorf("records: %s\nwant:    %s", names(got), want)
	}
	for i := 1; i < len(got); i++ {
		if got[i].Offset < got[i-1].Offset && got[i].Offset != 0 {
			t.Errorf("the offset of %s is %d, after %d", got[i].Name, got[i].Offset, got[i-1].Offset)
		}
	}
}

// TestHostileArchives checks that an entry with wrong metadata becomes an error, and that the other entries are read.
func TestHostileArchives(t *testing.T) {
	sound := archive(t, file{name: "a.json", text: osv("A-1") + strings.Repeat(" ", 1000)},
		file{name: "b.json", text: osv("A-2")})
	directory := bytes.Index(sound, []byte("PK\x01\x02"))
	patch := func(offset int, with ...byte) []byte {
		b := bytes.Clone(sound)
		copy(b[offset:], with)
		return b
	}
	tests := map[string]struct {
		zip  []byte
		lim  format.Limits
		want string
	}{
		"sound": {sound, format.Limits{}, "a.json=A-1, b.json=A-2"},
		"smaller than it is": {patch(directory+24, 10, 0, 0, 0), format.Limits{},
			"a.json [has a size that differs from its archive], b.json=A-2"},
		"larger than it is": {patch(directory+24, 0, 0, 1, 0), format.Limits{},
			"a.json [has a size that differs from its archive], b.json=A-2"},
		"four gigabytes": {patch(directory+24, 0, 0, 0, 0xf0), format.Limits{},
			"a.json [is larger than the limit for a record], b.json=A-2"},
		"packed four gigabytes": {patch(directory+20, 0, 0, 0, 0xf0), format.Limits{},
			"a.json [is larger than the limit for a record], b.json=A-2"},
		"another checksum": {patch(directory+16, 1, 2, 3, 4), format.Limits{},
			"a.json [has a checksum that differs from its archive], b.json=A-2"},
		"elsewhere": {patch(directory+42, 1, 0, 0, 0), format.Limits{},
			"a.json [is a damaged zip archive], b.json=A-2"},
		"beyond the end": {patch(directory+42, 0xff, 0xff, 0xff, 0x7f), format.Limits{},
			"a.json [is a damaged zip archive], b.json=A-2"},
		"encrypted": {patch(directory+8, 1), format.Limits{}, "a.json [is encrypted], b.json=A-2"},
		"packed in another way": {patch(directory+10, 12), format.Limits{},
			"a.json [is packed with an unknown method (12)], b.json=A-2"},
		"a directory of another":  {patch(directory, 'x'), format.Limits{}, "z [is a damaged zip archive]"},
		"a directory with a hole": {patch(directory+28, 0xff, 0xff), format.Limits{}, "z [is a damaged zip archive]"},
		"a directory too far": {patch(len(sound)-6, 0xff, 0xff, 0xff, 0x7f), format.Limits{},
			"z [is a damaged zip archive]"},
		"cut off": {sound[:len(sound)-30], format.Limits{}, "z [is a damaged zip archive]"},
		"more files than allowed": {sound, format.Limits{Files: 1},
			"a.json=A-1, z [exceeds the limit of files in a feed; the rest was not read]"},
		"a larger record": {sound, format.Limits{Record: 500},
			"a.json [is larger than the limit for a record], b.json=A-2"},
		"more than allowed at last": {sound, format.Limits{Total: 1200},
			"a.json=A-1, b.json [exceeds the size limit of a feed; the rest was not read]"},
		"an entry many times over": {overlapping(sound, directory, 1000), format.Limits{Total: 100_000}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := records(t, "z", tt.zip, tt.lim)
			if tt.want != "" && names(got) != tt.want {
				t.Errorf("records: %s\nwant:    %s", names(got), tt.want)
			}
			if tt.want == "" && (len(got) == 0 ||
				!strings.Contains(got[len(got)-1].Err.Error(), "exceeds the size limit of a feed")) {
				t.Errorf("%d records, the last of them: %s", len(got), names(got[len(got)-1:]))
			}
		})
	}
}

// TestAttackZipBomb reads an archive of a few kilobytes that would unpack to 16 GiB, because its entries share the same
// packed bytes. It checks that reading stops early.
func TestAttackZipBomb(t *testing.T) {
	sound := archive(t, file{name: "a.json", text: osv("A-1") + strings.Repeat(" ", 15<<20)},
		file{name: "b.json", text: osv("A-2")})
	directory := bytes.Index(sound, []byte("PK\x01\x02"))
	bomb := overlapping(sound, directory, 1000)
	got := records(t, "z", bomb, format.Limits{})
	if len(got) > 40 || !strings.Contains(got[len(got)-1].Err.Error(), "a hundred times its size") {
		t.Errorf("%d bytes are %d records, the last of them: %s", len(bomb), len(got), names(got[len(got)-1:]))
	}
	if got := names(records(t, "z", sound, format.Limits{})); got != "a.json=A-1, b.json=A-2" {
		t.Errorf("without the bomb: %s", got)
	}
}

// overlapping returns an archive whose directory contains the first entry n times. The packed bytes exist once.
func overlapping(sound []byte, directory, n int) []byte {
	second := directory + 4 + bytes.Index(sound[directory+4:], []byte("PK\x01\x02"))
	end := bytes.Index(sound, []byte("PK\x05\x06"))
	b := bytes.Clone(sound[:directory])
	for range n {
		b = append(b, sound[directory:second]...)
	}
	size := len(b) - directory
	tail := bytes.Clone(sound[end:])
	tail[12], tail[13], tail[14], tail[15] = byte(size), byte(size>>8), byte(size>>16), byte(size>>24)
	return append(b, tail...)
}

// An endless is a reader of a text that is followed by an endless sequence of zeros.
type endless struct{ text string }

func (e endless) ReadAt(p []byte, offset int64) (int, error) {
	n := copy(p, e.text[min(offset, int64(len(e.text))):])
	if n == 0 {
		n = copy(p, zeros)
	}
	return n, nil
}

var zeros = strings.Repeat("0", 64<<10)

func TestGigabyteRecord(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const size = 1 << 23
	got := []format.Record{}
	for r := range format.Read(t.Context(), "f", endless{osv("A-1") + `{"id": "`}, size, format.Limits{}) {
		got = append(got, r)
	}
	runtime.ReadMemStats(&after)
	if want := "f=A-1, f#2 [ends in the middle of a record]"; names(got) != want {
		t.Errorf("records: %s\nwant:    %s", names(got), want)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 48<<20 {
		t.Errorf("took %d MiB", grown>>20)
	}
}

func TestLargeRecordAmongOthers(t *testing.T) {
	large := `{"id": "A-2", "details": "` + strings.Repeat("x", 1<<20) + `"}`
	got := records(t, "f", []byte(osv("A-1")+large+osv("A-3")), format.Limits{Record: 1 << 20})
	if want := "f=A-1, f#2 [is larger than the limit for a record], f#3=A-3"; names(got) != want {
		t.Errorf("records: %s\nwant:    %s", names(got), want)
	}
}

func TestFolder(t *testing.T) {
	folder := fstest.MapFS{
		"b.json": {Data: []byte(osv("A-2"))}, "a/1.yml": {Data: []byte("id: A-1")},
		"README.md":   {Data: []byte("read me")},
		".git/x.json": {Data: []byte(osv("A-9"))}, ".x.json": {Data: []byte(osv("A-9"))},
		"c.zip": {Data: archive(t, file{name: "z.json", text: osv("A-3")})}, "d.json": {Data: []byte("{")},
		"e.json": {Data: []byte("/etc/passwd"), Mode: os.ModeSymlink},
		"f.json": {Data: []byte(strings.Repeat(osv("A-4")+"\n", 3000))},
	}
	var got []format.Record
	for r := range format.ReadFS(t.Context(), folder, format.Limits{}) {
		got = append(got, r)
	}
	want := "a/1.yml=A-1, b.json=A-2, z.json=A-3, d.json [ends in the middle of a record], " +
		"e.json [is not a regular file], f.json=A-4"
	if !strings.HasPrefix(names(got), want) || len(got) != 5+3000 {
		t.Errorf("%d records: %.400s\nwant: %s …", len(got), names(got), want)
	}
	got = nil
	for r := range format.ReadFS(t.Context(), folder, format.Limits{Files: 2}) {
		got = append(got, r)
	}
	want = "a/1.yml=A-1, b.json=A-2, c.zip [exceeds the limit of files in a feed; the rest was not read]"
	if names(got) != want {
		t.Errorf("records: %s\nwant:    %s", names(got), want)
	}
}

// TestRealFolder checks that ReadFS reads all files of a directory on disk. Unlike files in memory, these fail if they
// are closed too early.
func TestRealFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.zip"), many(t, 300), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.json"), []byte(osv("A-1")), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	for r := range format.ReadFS(t.Context(), os.DirFS(dir), format.Limits{}) {
		if n++; r.Err != nil {
			t.Errorf("%s %v", r.Name, r.Err)
		}
	}
	if n != 301 {
		t.Errorf("%d records", n)
	}
}

func TestTimesThatAreNone(t *testing.T) {
	a := advisories(t, "f", []byte(`{"id": "A-1", "published": "0001-01-01T00:00:00Z", "modified": null}`))[0]
	if !a.Source.Published.IsZero() || !a.Source.Modified.IsZero() || !a.Events[0].CreateTime.IsZero() {
		t.Errorf("published %v, modified %v, found %v", a.Source.Published, a.Source.Modified, a.Events[0].CreateTime)
	}
	a = advisories(t, "f", []byte(`{"id": "A-1", "published": "0001-06-01T00:00:00+01:00", `+
		`"modified": "2024-01-01T02:00:00.1239+02:00"}`))[0]
	if want := time.Date(2024, 1, 1, 0, 0, 0, 123e6, time.UTC); a.Source.Modified != want ||
		a.Events[0].CreateTime != want || !a.Source.Published.IsZero() {
		t.Errorf("published %v, modified %v, found %v", a.Source.Published, a.Source.Modified, a.Events[0].CreateTime)
	}
}

// TestDigest checks that the digest of a record does not depend on the file that contains it. Otherwise an import would
// treat the record as changed.
func TestDigest(t *testing.T) {
	record := osv("A-1")
	var digests []string
	for _, text := range []string{record, record + "\n", "\n" + record, "\ufeff" + record, "[" + record + "]",
		"[ " + record + " ]", record + "\n" + osv("A-2")} {
		for _, r := range [][]format.Record{
			records(t, "f", []byte(text), format.Limits{}),
			records(t, "z", archive(t, file{name: "f.json", text: text}), format.Limits{}),
		} {
			digests = append(digests, string(r[0].Advisory.Source.Digest))
		}
		for r := range format.ReadFS(t.Context(), fstest.MapFS{"f.json": {Data: []byte(text)}}, format.Limits{}) {
			digests = append(digests, string(r.Advisory.Source.Digest))
			break
		}
	}
	if slices.Sort(digests); digests[0] == "" || len(slices.Compact(digests)) != 1 {
		t.Errorf("digests: %x", slices.Compact(digests))
	}
	digest := records(t, "f", []byte(osv("A-2")), format.Limits{})[0].Advisory.Source.Digest
	if string(digest) == digests[0] {
		t.Error("another record has the same digest")
	}
}

// TestRelated checks that advisories of AlmaLinux and Rocky Linux fix the CVEs under "related", but not records of
// databases that list other vulnerabilities there. Fixed CVEs are never aliases.
func TestRelated(t *testing.T) {
	record := func(id, fields string) vuln.Advisory {
		text := strings.Replace(osv(id), "{",
			`{"related": ["CVE-2024-0727", "RHSA-2024:2447", "CVE-2023-5678"], `+fields, 1)
		return records(t, "f", []byte(text), format.Limits{})[0].Advisory
	}
	for _, tt := range []struct {
		id, fields string
		want       []string
	}{
		{"ALSA-2024:2447", "", []string{"CVE-2023-5678", "CVE-2024-0727"}},
		{"RLSA-2024:2447", "", []string{"CVE-2023-5678", "CVE-2024-0727"}},
		{"RLSA-2024:2447", `"upstream": ["CVE-2024-1"], `, []string{"CVE-2024-1"}},
		{"GHSA-aaaa-bbbb-cccc", "", nil},
	} {
		a := record(tt.id, tt.fields)
		if got := slices.Sorted(slices.Values(a.Fixes)); !slices.Equal(got, tt.want) || len(a.Aliases) > 0 {
			t.Errorf("%s %s fixes %v, want %v; aliases %v", tt.id, tt.fields, got, tt.want, a.Aliases)
		}
	}
}

// TestVendorSeverity checks that the severities of vendors are read from the fields in which they are published.
func TestVendorSeverity(t *testing.T) {
	affected := func(ecosystem, fields string) string {
		return `"affected": [{"package": {"ecosystem": "` + ecosystem + `", "name": "a"}, ` + fields + `}]`
	}
	for fields, want := range map[string][2]string{
		`"database_specific": {"severity": "HIGH", "cwe_ids": ["CWE-1"]}`:                           {"HIGH", ""},
		`"database_specific": {"severity": {"x": "HIGH"}, "urgency": 7}`:                            {"", ""},
		`"database_specific": "HIGH"`:                                                               {"", ""},
		`"severity": [{"type": "Ubuntu", "score": "medium"}]`:                                       {"medium", ""},
		affected("Debian:12", `"ecosystem_specific": {"urgency": "low"}`):                           {"", "low"},
		affected("Ubuntu:22.04", `"database_specific": {"ubuntu_priority": "negligible"}`):          {"", "negligible"},
		affected("Debian:12", `"ecosystem_specific": {"urgency": "not yet assigned"}`):              {"", ""},
		affected("npm", `"database_specific": {"severity": "LOW"}, "ecosystem_specific": {"a": 1}`): {"", "LOW"},
	} {
		text := `{"id": "A-1", "modified": "2026-01-02T00:00:00Z", ` + fields + `}`
		got := records(t, "f", []byte(text), format.Limits{})[0]
		if got.Err != nil {
			t.Errorf("%s: %v", fields, got.Err)
			continue
		}
		word := ""
		for _, v := range got.Advisory.Affected {
			word = v.VendorSeverity
		}
		if got.Advisory.VendorSeverity != want[0] || word != want[1] {
			t.Errorf("%s: %q, for the package %q", fields, got.Advisory.VendorSeverity, word)
		}
	}
}

// many returns an archive of n records, numbered from 0.
func many(t testing.TB, n int) []byte {
	files := make([]file, n)
	for i := range files {
		files[i] = file{name: fmt.Sprintf("%d.json", i), text: osv(fmt.Sprintf("A-%d", i))}
	}
	return archive(t, files...)
}

// TestOrder checks that the records of an archive keep their order, also in several parallel reads.
func TestOrder(t *testing.T) {
	text := many(t, 1500)
	for i := range 3 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			n := 0
			for _, r := range records(t, "z", text, format.Limits{}) {
				if want := fmt.Sprintf("A-%d", n); r.Advisory.ID != want {
					t.Fatalf("record %d is %s %v", n, r.Advisory.ID, r.Err)
				}
				n++
			}
			if n != 1500 {
				t.Errorf("%d records", n)
			}
		})
	}
}

// TestWideArchive checks that an archive in the Zip64 format can be read, in which the position of the directory and
// the offsets of the entries have 64 bits.
func TestWideArchive(t *testing.T) {
	const n = 1000
	base := archive(t, file{name: "a.json", text: osv("A-1")})
	start, end := bytes.Index(base, []byte("PK\x01\x02")), bytes.Index(base, []byte("PK\x05\x06"))
	entry := bytes.Clone(base[start:end])
	copy(entry[42:], "\xff\xff\xff\xff")
	entry[30] = 12 // length of the extra field, which contains the offset 0
	entry = append(entry, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	text := append(base[:start:start], bytes.Repeat(entry, n)...)

	le := binary.LittleEndian
	end64 := make([]byte, 56+20+22)
	copy(end64, "PK\x06\x06")
	le.PutUint64(end64[40:], uint64(n*len(entry)))
	le.PutUint64(end64[48:], uint64(start))
	copy(end64[56:], "PK\x06\x07")
	le.PutUint64(end64[56+8:], uint64(len(text)))
	copy(end64[76:], "PK\x05\x06")
	copy(end64[76+8:], bytes.Repeat([]byte{0xff}, 12))
	text = append(text, end64...)

	got := records(t, "z", text, format.Limits{})
	if len(got) != n || got[0].Advisory.ID != "A-1" || got[n-1].Err != nil {
		t.Errorf("%d records, the first of them: %s", len(got), names(got[:min(len(got), 1)]))
	}
}

func TestStopping(t *testing.T) {
	text := many(t, 2000)
	before := runtime.NumGoroutine()
	n := 0
	for range format.Read(t.Context(), "z", bytes.NewReader(text), int64(len(text)), format.Limits{}) {
		if n++; n == 700 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last format.Record
	for last = range format.Read(ctx, "z", bytes.NewReader(text), int64(len(text)), format.Limits{}) {
		if n++; n == 1400 {
			cancel()
		}
	}
	if !errors.Is(last.Err, context.Canceled) || n != 1401 {
		t.Errorf("the last of %d records: %v, want %v", n, last.Err, context.Canceled)
	}
	for range 5000 { // goroutines need a moment to end after they have sent their batch
		if runtime.NumGoroutine() <= before {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), before)
}

// TestCanceledWithNothingToYield checks that reading a long feed without records ends when the context ends.
func TestCanceledWithNothingToYield(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	license := archive(t, file{name: "LICENSE"})
	for name, records := range map[string]iter.Seq[format.Record]{
		"a record without an end": format.Read(ctx, "f", endless{`{"id": "`}, 1<<40, format.Limits{}),
		"an archive": format.Read(ctx, "f", bytes.NewReader(license), int64(len(license)),
			format.Limits{}),
		"a folder": format.ReadFS(ctx, fstest.MapFS{"LICENSE": {}}, format.Limits{}),
	} {
		n := 0
		for r := range records {
			if n++; !errors.Is(r.Err, context.Canceled) {
				t.Errorf("%s: %v", name, r.Err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d records", name, n)
		}
	}
}

// A panicking is a reader that panics at an offset, like a bug in a decoder.
type panicking struct {
	*bytes.Reader
	offset int64
}

func (p panicking) ReadAt(b []byte, offset int64) (int, error) {
	if offset == p.offset {
		panic("a mistake")
	}
	return p.Reader.ReadAt(b, offset)
}

func TestPanic(t *testing.T) {
	text := archive(t, file{name: "a.json", text: osv("A-1")}, file{name: "b.json", text: osv("A-2")})
	r := panicking{bytes.NewReader(text), int64(bytes.LastIndex(text, []byte("PK\x03\x04")))}
	var got []format.Record
	for rec := range format.Read(t.Context(), "z", r, int64(len(text)), format.Limits{}) {
		got = append(got, rec)
	}
	if want := "a.json=A-1, b.json [cannot be read: a mistake]"; names(got) != want {
		t.Errorf("records: %s\nwant:    %s", names(got), want)
	}
}

func BenchmarkRead(b *testing.B) {
	record := string(sample(b, "osv.json"))
	files := make([]file, 4000)
	for i := range files {
		files[i] = file{name: fmt.Sprintf("HOLD-2024-%d.json", i),
			text: strings.ReplaceAll(record, "HOLD-2024-0001", fmt.Sprintf("HOLD-2024-%d", i))}
	}
	text := archive(b, files...)
	n := 0
	for b.Loop() {
		for r := range format.Read(b.Context(), "z", bytes.NewReader(text), int64(len(text)), format.Limits{}) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
			n++
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(0, "ns/op")
}
