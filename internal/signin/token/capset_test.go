package token

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

var pull = resource.CapabilitySet("groups.list", "record_signatures.list", "sboms.list", "vuln_reports.list",
	"repo.blobs.get",
	"repo.list", "manifest.list", "tag.list", "manifest.metadata.list", "referrers.list")

func TestCapsetText(t *testing.T) {
	tests := map[string]struct {
		set  resource.Capabilities
		text string
	}{
		"one":     {resource.CapabilitySet("groups.list"), `"AAAAAAAAADIAAAAAAAAACA=="`},
		"pulling": {pull, `"AAAAAAAAAH1EAgAAAAAACBAACAAAAAFk"`},
		"none":    {resource.Capabilities{}, `"AAAAAAAAADIAAAAAAAAAAA=="`},
		// The capability is bit 63, the last bit of one word.
		"a border": {resource.CapabilitySet("manifest.delete"), `"AAAAAAAAAECAAAAAAAAAAA=="`},
	}
	for name, tt := range tests {
		text, err := json.Marshal(capset(tt.set))
		if err != nil || string(text) != tt.text {
			t.Errorf("%s: written as %s, %v, want %s", name, text, err, tt.text)
		}
		var got capset
		if err := json.Unmarshal([]byte(tt.text), &got); err != nil || resource.Capabilities(got) != tt.set {
			t.Errorf("%s: read as %v, %v", name, got, err)
		}
	}
}

func TestCapsetReads(t *testing.T) {
	list := resource.CapabilitySet("groups.list")
	tests := map[string]struct {
		text string
		set  resource.Capabilities
	}{
		"numbers":                    {`[103]`, list},
		"no numbers":                 {`[]`, resource.Capabilities{}},
		"a number there is none of":  {`[103, 999999]`, list},
		"a short length":             {`"AAAAAAAAAAQAAAAAAAAACA=="`, list},
		"no bits at all":             {`"AAAAAAAAAAA="`, resource.Capabilities{}},
		"more words than we know of": {`"AAAAAAAAAUAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB"`, list},
	}
	for name, tt := range tests {
		got := capset(pull) // the previous value must be overwritten
		if err := json.Unmarshal([]byte(tt.text), &got); err != nil || resource.Capabilities(got) != tt.set {
			t.Errorf("%s: read as %v, %v", name, got, err)
		}
	}
}

func TestCapsetRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a number":              `7`,
		"an object":             `{}`,
		"words":                 `["groups.list"]`,
		"not base64":            `"!!!"`,
		"nothing":               `""`,
		"no padding":            `"AAAAAAAAADIAAAAAAAAACA"`,
		"half a length":         `"AAAAAA=="`,
		"a length without bits": `"AAAAAAAAADI="`,
		"bits without a length": `"AAAAAAAAAAAAAAAAAAAACA=="`,
		"a bit too far":         `"AAAAAAAAAAMAAAAAAAAACA=="`,
		"a huge length":         `"//////////8AAAAAAAAACA=="`,
		"a length that wraps":   `"__________8AAAAAAAAACA=="`,
	} {
		var got capset
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s: read as %v", name, got)
		}
	}
}

func FuzzCapset(f *testing.F) {
	for _, text := range []string{`"AAAAAAAAADIAAAAAAAAACA=="`, `"AAAAAAAAAH1EAgAAAAAACBAACAAAAAFk"`, `[103]`, `null`,
		`"__________8="`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var set capset
		if json.Unmarshal([]byte(text), &set) != nil {
			return
		}
		again, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		var back capset
		if err := json.Unmarshal(again, &back); err != nil || back != set {
			t.Fatalf(
				"%s is read as %v, written as %s and read as %v, %v", strings.TrimSpace(text), set, again, back, err,
			)
		}
	})
}
