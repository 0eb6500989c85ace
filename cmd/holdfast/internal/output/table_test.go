package output

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func TestRelative(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	for want, ago := range map[string]time.Duration{
		"now": 500 * time.Millisecond, "59s ago": 59 * time.Second, "1m ago": 119 * time.Second,
		"47h ago": 47*time.Hour + 59*time.Minute,
		"2d ago":  48 * time.Hour, "30d ago": 30 * 24 * time.Hour, "2029-12-31": 31 * 24 * time.Hour,
		"in 6d": -(6*24*time.Hour + time.Hour), "2031-01-31": -365 * 24 * time.Hour,
	} {
		if got := Relative(now.Add(-ago), now); got != want {
			t.Errorf("%s ago is %q, want %q", ago, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		tail bool
		want string
	}{
		{"acme/platform/ci", 16, false, "acme/platform/ci"},
		{"acme/platform/ci", 8, false, "acme/pl…"},
		{"acme/platform/ci", 8, true, "…form/ci"},
		{"東京本社", 8, false, "東京本社"}, // each character takes two cells
		{"東京本社", 6, false, "東京…"},
		{"Zoe\u0308Zoe\u0308", 4, false, "Zoe\u0308…"}, // the accent takes no cell
	} {
		if got := cut(tt.text, tt.n, tt.tail); got != tt.want || cells(got) > tt.n {
			t.Errorf("%q in %d cells is %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

// TestTerminal prints the same page to a terminal and to a pipe. On a terminal, rows are
// shortened to its width, and times are relative. In a pipe, nothing is shortened.
func TestTerminal(t *testing.T) {
	long := strings.Repeat("long ", 40)
	page := []*iampb.Group{
		{Uid: "u1", Name: "web", Description: long, CreateTime: timestamppb.New(time.Now().Add(-90 * time.Minute))},
		{Uid: "u2", Name: strings.Repeat("n", 60), Description: "short"},
	}
	view := View{
		Plural: "groups", Columns: Columns("name", PathOf("path", "uid"), Whole("link", "description"), "createTime"),
	}
	print := func(terminal bool, v View) (string, int) {
		var out bytes.Buffer
		asked := 0
		names := func(uids []string) map[string]Name {
			asked++
			return map[string]Name{"u1": {Title: "Web", Path: "acme/" + strings.Repeat("deep/", 20) + "web"}}
		}
		c := &Console{Out: bufio.NewWriter(&out), Terminal: terminal, Width: 100}
		p, err := NewPrinter(c, "table", nil, v, page[0].ProtoReflect().Descriptor(), true, names)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page {
			if err := p.Add(m.ProtoReflect()); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Out.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String(), asked
	}
	sorted := view
	sorted.Sorted = true
	if got, _ := print(false, sorted); strings.Index(got, "nnn") > strings.Index(got, "web") {
		t.Errorf("the rows are not sorted:\n%s", got)
	}
	piped, asked := print(false, view)
	if !strings.Contains(piped, "acme/deep/") || !strings.Contains(piped, strings.TrimSpace(long)) ||
		strings.Contains(piped, "ago") || asked != 1 {
		t.Errorf("asked %d times in a pipe:\n%s", asked, piped)
	}
	if !strings.Contains(piped, "  u2  ") {
		t.Errorf("what has no name is not a uid:\n%s", piped)
	}
	whole, _ := print(true, view)
	if !strings.Contains(whole, strings.TrimSpace(long)) || !strings.Contains(whole, "1h ago") {
		t.Errorf("a column that is never cut:\n%s", whole)
	}
	view.Columns = Columns("name", PathOf("path", "uid"), "description", "createTime")
	fitted, _ := print(true, view)
	for line := range strings.Lines(fitted) {
		if cells(strings.TrimSuffix(line, "\n")) > 100 {
			t.Errorf("%d cells: %s", cells(line), line)
		}
	}
	if !strings.Contains(fitted, "/deep/web ") || !strings.Contains(fitted, "1h ago") {
		t.Errorf("on a terminal:\n%s", fitted)
	}
}

// TestPage checks that a page shows every field, references by name, and nothing that
// could move the cursor.
func TestPage(t *testing.T) {
	var out bytes.Buffer
	c := &Console{Out: bufio.NewWriter(&out)}
	asked := 0
	p := Page{Console: c, IsUID: func(s string) bool { return len(s) == 2 }, Names: func(uids []string) map[string]Name {
		asked++
		return map[string]Name{"r1": {Title: "viewer", Path: "viewer"}, "p1": {Path: "acme/okta"}}
	}}
	m := &iampb.IdentityProvider{Uid: "p1", Name: "okta", Description: "two\nlines \x1b[31m", DefaultRole: "r1",
		Configuration: &iampb.IdentityProvider_Oidc{
			Oidc: &iampb.IdentityProvider_OIDC{Issuer: "https://x.example", AdditionalScopes: []string{"a", "b"}},
		}}
	p.Show(m.ProtoReflect())
	if err := c.Out.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `name                    okta
path                    acme/okta
description             two
                        lines \u001b[31m
default role            viewer
oidc issuer             https://x.example
oidc additional scopes  a
                        b
oidc pkce enabled       false
disabled                false
trusted                 false
shared redirect         false
uid                     p1
`
	if diff := cmp.Diff(want, out.String()); diff != "" || asked != 1 {
		t.Errorf("asked %d times: %s", asked, diff)
	}
}
