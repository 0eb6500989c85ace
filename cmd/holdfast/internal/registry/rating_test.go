package registry

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// TestRatings checks that wide lists show the source of a severity, and the ratings of all sources if they differ.
func TestRatings(t *testing.T) {
	f := &findingspb.Finding{
		AdvisoryId: "CVE-2023-52605", Severity: findingspb.Severity_SEVERITY_MEDIUM, SeveritySource: "AlmaLinux",
		Ratings: []*findingspb.Rating{
			{Source: "AlmaLinux", Severity: findingspb.Severity_SEVERITY_MEDIUM, Vendor: true, AdvisoryId: "ALSA-2025:2627"},
			{Source: "AlmaLinux", Severity: findingspb.Severity_SEVERITY_MEDIUM, Vendor: true, AdvisoryId: "ALSA-2025:2700"},
			{Source: "NVD", Severity: findingspb.Severity_SEVERITY_CRITICAL, Score: "9.8"},
		},
		Package: &findingspb.Package{Name: "kernel", Version: "1"},
	}
	for name, view := range map[string]output.View{
		"an image": findings().View(), "a group": groupFindings().View(),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := &output.Console{Out: bufio.NewWriter(&out)}
			p, err := output.NewPrinter(c, "wide", nil, view, f.ProtoReflect().Descriptor(), true, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Add(f.ProtoReflect()); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.Out.Flush(); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"SEVERITY BY", "RATINGS", "medium (AlmaLinux), critical 9.8 (NVD)"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing:\n%s", want, out.String())
				}
			}
		})
	}
}
