package format

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzWriteText compares the output with encoding/json byte by byte, because the digests of records depend on it.
func FuzzWriteText(f *testing.F) {
	for _, s := range []string{"", "1.2.3-r0", "<", ">", "&", "\"", "\\", "tab\t line\n", "é \u2028 \x7f \x00", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var b bytes.Buffer
		if err := writeText(&b, s); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(s)
		if err != nil || b.String() != string(want) {
			t.Errorf("%q is written as %s, want %s (%v)", s, b.String(), want, err)
		}
	})
}
