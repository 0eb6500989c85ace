package resource_test

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func TestDisplayName(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		bad  string // text that the error must contain; "" if the name is valid
	}{
		"none":                      {"", ""},
		"capitals and accents":      {"Ærøskøbing Güteverwaltung GmbH", ""},
		"another script":            {"東京 本社", ""},
		"from right to left":        {"شركة", ""},
		"a joiner, which is needed": {"می\u200cخواهم", ""},
		"as long as can be":         {strings.Repeat("ö", 128), ""},
		"too long":                  {strings.Repeat("ö", 129), "at most 128 characters"},
		"a line break":              {"Acme\nroot", "must not contain"},
		"a line separator":          {"Acme\u2028root", "must not contain"},
		"a null character":          {"Acme\x00", "must not contain"},
		"an escape":                 {"\x1b[31mAcme", "must not contain"},
		"an override of direction":  {"Acme\u202egnp", "must not contain"},
		"an isolate":                {"\u2066Acme\u2069", "must not contain"},
		"a mark of direction":       {"Acme\u200f", "must not contain"},
		"a space of no width":       {"Ac\ufeffme", "must not contain"},
		"not UTF-8":                 {"Acme\xff", "must not contain"},
		"a space at the end":        {"Acme ", "begin or end with a space"},
		"only a space":              {"\u00a0", "begin or end with a space"},
	} {
		for kind, err := range map[string]error{
			"group":    resource.Group{Name: "a", DisplayName: tt.text}.Validate(),
			"identity": resource.Identity{Name: "a", DisplayName: tt.text}.ValidateProfile(),
		} {
			if (err == nil) != (tt.bad == "") || err != nil &&
				(!strings.Contains(err.Error(), "display_name") || !strings.Contains(err.Error(), tt.bad)) {
				t.Errorf("%s of a %s: %v, want %q", name, kind, err, tt.bad)
			}
		}
	}
	if a, b := resource.NormalDisplayName("Zoe\u0308"), resource.NormalDisplayName("Zo\u00eb"); a != b || a != "Zoë" {
		t.Errorf("two forms of one name are %q and %q", a, b)
	}
}

// TestPersonDisplayName checks that the result is valid whatever a provider sends.
func TestPersonDisplayName(t *testing.T) {
	for text, want := range map[string]string{
		"Zoë Müller":                     "Zoë Müller",
		"  Ann\tExample\n":               "Ann Example",
		"\u202eann\u0000\xff":            "ann",
		"\u200b \u00a0":                  "",
		"Zoe\u0308":                      "Zoë",
		strings.Repeat("é", 127) + " éé": strings.Repeat("é", 127),
	} {
		got := resource.PersonDisplayName(text)
		if got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if err := (resource.Identity{Name: "a", DisplayName: got}).ValidateProfile(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTitled(t *testing.T) {
	for typed, want := range map[string][2]string{
		"acme":                   {"acme", ""},
		"acme corp":              {"acme corp", ""},
		"Acme":                   {"acme", "Acme"},
		" Größe & Söhne AG ":     {"grosse-sohne-ag", "Größe & Söhne AG"},
		"東京 Tokyo":               {"tokyo", "東京 Tokyo"},
		"東京":                     {"", "東京"},
		"ﬁne-Corp.":              {"fine-corp.", "ﬁne-Corp."},
		strings.Repeat("A", 130): {strings.Repeat("a", 128), strings.Repeat("A", 130)},
	} {
		name, display := resource.Titled(typed)
		if name != want[0] || display != want[1] {
			t.Errorf("%q is called %q and displayed as %q, want %q", typed, name, display, want)
		}
	}
}

// TestLabel checks that the name follows a display name that is not a spelling of the name.
func TestLabel(t *testing.T) {
	for g, want := range map[resource.Group]string{
		{Name: "acme"}:                                "acme",
		{Name: "acme", DisplayName: "Acme"}:           "Acme",
		{Name: "acme gmbh", DisplayName: "Acme GmbH"}: "Acme GmbH",
		{Name: "evil", DisplayName: "Acme"}:           "Acme (evil)",
		{Name: "acme", DisplayName: "\u0410cme"}:      "\u0410cme (acme)", // the first letter is Cyrillic
	} {
		if got := g.Label(); got != want {
			t.Errorf("%+v: %q, want %q", g, got, want)
		}
	}
}
