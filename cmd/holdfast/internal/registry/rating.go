package registry

import (
	"slices"
	"strings"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// severityWord returns a severity as the command shows it, such as high.
func severityWord(s findingspb.Severity) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SEVERITY_"))
}

// ratings returns what each source says about the severity of a finding, in the order of the server: the severity, the
// CVSS score if the source gives one, and the source. Equal texts are returned once.
func ratings(f *findingspb.Finding) string {
	var texts []string
	for _, r := range f.GetRatings() {
		text := severityWord(r.GetSeverity())
		if r.GetScore() != "" {
			text += " " + r.GetScore()
		}
		if r.GetSource() != "" {
			text += " (" + r.GetSource() + ")"
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}
