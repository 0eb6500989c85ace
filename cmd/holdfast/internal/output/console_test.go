package output

import (
	"bufio"
	"bytes"
	"testing"
)

func TestColor(t *testing.T) {
	tests := map[string]struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		"on a terminal":          {true, nil, true},
		"in a pipe":              {false, nil, false},
		"with NO_COLOR":          {true, map[string]string{"NO_COLOR": "1"}, false},
		"on a terminal of paper": {true, map[string]string{"TERM": "dumb"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := wantsColor(tt.terminal, func(k string) string { return tt.env[k] }); got != tt.want {
				t.Errorf("color = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	c := &Console{Out: bufio.NewWriter(&out), color: true}
	table := &Table{Console: c, Header: []string{"NAME", "TEXT"}}
	for _, page := range [][][]string{
		{{"short", "plain"}, {"much longer", "with \x1b[31mred\u202e in it"}},
		{{"longer than the first page", "is not aligned"}, {"s", "is"}},
	} {
		for _, row := range page {
			table.Add(row)
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Out.Flush(); err != nil {
		t.Fatal(err)
	}
	const want = "\x1b[1mNAME         TEXT\x1b[0m\n" +
		"short        plain\n" +
		"much longer  with \\u001b[31mred\\u202e in it\n" +
		"longer than the first page  is not aligned\n" +
		"s            is\n"
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}
