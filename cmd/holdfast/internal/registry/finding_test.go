package registry

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// evidenceOf returns the evidence in advisories with these IDs.
func evidenceOf(advisories ...string) (list []*findingspb.Evidence) {
	for _, id := range advisories {
		list = append(list, &findingspb.Evidence{AdvisoryId: id})
	}
	return list
}

// cellsOf returns the text of a column of a table, with all lines joined.
func cellsOf(text, column, next string) string {
	var b strings.Builder
	header, _, _ := strings.Cut(text, "\n")
	from, to := strings.Index(header, column), strings.Index(header, next)
	for line := range strings.Lines(text) {
		cells := []rune(strings.TrimSuffix(line, "\n"))
		b.WriteString(strings.TrimSpace(string(cells[min(from, len(cells)):min(to, len(cells))])))
	}
	return b.String()
}

// TestNarrowTerminal checks that a list of findings fits into 80 columns without shortening any name or version.
func TestNarrowTerminal(t *testing.T) {
	list := []*findingspb.Finding{
		{
			AdvisoryId: "CVE-2023-52605", Evidence: evidenceOf("ALSA-2025:2627", "ALSA-2025:2700"), Kev: true,
			Epss:     proto.Float64(0.97),
			Severity: findingspb.Severity_SEVERITY_CRITICAL, Score: "9.8", FixedVersions: []string{"0:5.14.0-503.26.1.el9_5"},
			Package: &findingspb.Package{Name: "kernel-modules-core", Version: "0:5.14.0-427.13.1.el9_4"},
		},
		{
			AdvisoryId: "CVE-2021-44228", Aliases: []string{"GHSA-jfh8-c2jp-5v3q"}, Evidence: evidenceOf("GHSA-jfh8-c2jp-5v3q"),
			Severity: findingspb.Severity_SEVERITY_UNKNOWN,
			Package:  &findingspb.Package{Name: "org.apache.logging.log4j:log4j-core", Version: "2.14.1"},
		},
		{AdvisoryId: "ACME-1", Package: &findingspb.Package{Name: "openssl", Version: "3"}},
	}
	for width, want := range map[int]string{80: "", 200: "SCORE"} {
		var out bytes.Buffer
		c := &output.Console{Out: bufio.NewWriter(&out), Terminal: true, Width: width}
		p, err := output.NewPrinter(c, "table", nil, findings().View(), list[0].ProtoReflect().Descriptor(), true, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if err := p.Add(f.ProtoReflect()); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Out.Flush(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for _, name := range []string{
			"VULNERABILITY", "CVE-2023-52605", "ALSA-2025:2627 +1", "CVE-2021-44228", "GHSA-jfh8-c2jp-5v3q", "ACME-1",
			"critical",
			want,
		} {
			if !strings.Contains(text, name) {
				t.Errorf("%q is missing in %d columns:\n%s", name, width, text)
			}
		}
		if strings.Contains(text, "…") || !strings.Contains(cellsOf(text, "PACKAGE", "VERSION"), "kernel-modules-core") ||
			!strings.Contains(cellsOf(text, "VERSION", "FIXED"), "0:5.14.0-427.13.1.el9_4") ||
			!strings.Contains(cellsOf(text, "FIXED", "EVIDENCE"), "0:5.14.0-503.26.1.el9_5") {
			t.Errorf("texts are shortened in %d columns:\n%s", width, text)
		}
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimRight(line, " \n"))); n > width {
				t.Errorf("%d cells in %d columns: %s", n, width, line)
			}
		}
	}
}
