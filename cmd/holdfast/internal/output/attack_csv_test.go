package output

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"testing"

	"github.com/google/go-cmp/cmp"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// TestAttackFormulas: a name that somebody else has chosen does not become a formula in a
// spreadsheet that opens the CSV. Other texts, and numbers, are not changed.
func TestAttackFormulas(t *testing.T) {
	cells := map[string]string{
		`=HYPERLINK("http://evil.example","x")`: `'=HYPERLINK("http://evil.example","x")`,
		"+cmd|' /C calc'!A0":                    "'+cmd|' /C calc'!A0",
		"-1+1":                                  "'-1+1",
		"@SUM(A1)":                              "'@SUM(A1)",
		"\t=1":                                  "'\t=1",
		"-5":                                    "-5",
		"+1.5":                                  "+1.5",
		"a=b":                                   "a=b",
		"web-1":                                 "web-1",
		"":                                      "",
	}
	for text, want := range cells {
		var out bytes.Buffer
		c := &Console{Out: bufio.NewWriter(&out)}
		group := (&iampb.Group{Name: "n", Description: text}).ProtoReflect()
		view := View{Plural: "groups", Columns: Columns("name", "description")}
		p, err := NewPrinter(c, "csv", nil, view, group.Descriptor(), true, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Add(group); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Out.Flush(); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if diff := cmp.Diff([][]string{{"name", "description"}, {"n", want}}, rows); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
}
