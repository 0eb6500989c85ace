package noun

import "testing"

func TestNearest(t *testing.T) {
	words := []string{
		"parent", "recursive", "role", "groups.list", "groups.delete", "group-mappings", "groups", "identity.list",
	}
	for typed, want := range map[string]string{
		"paretn": "parent", "parnet": "parent", "rec": "recursive", "rol": "role", "group": "groups",
		"group.list": "groups.list",
		"groups.lst": "groups.list", "Identity.list": "identity.list", "nothing": "", "": "", "x": "",
	} {
		if got := Nearest(typed, words); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
