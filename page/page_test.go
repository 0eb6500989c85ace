package page_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
)

var list = page.List{Kind: "groups", Fields: []string{"uid", "name", "create_time"}, Default: page.Order{Field: "uid"}}

func TestParseOrder(t *testing.T) {
	tests := map[string]struct {
		in   string
		want page.Order
		err  error
	}{
		"empty is the default":   {in: "", want: page.Order{Field: "uid"}},
		"ascending":              {in: "name", want: page.Order{Field: "name"}},
		"ascending, said so":     {in: "name asc", want: page.Order{Field: "name"}},
		"descending":             {in: "name desc", want: page.Order{Field: "name", Desc: true}},
		"the spec's name":        {in: "created_at desc", want: page.Order{Field: "create_time", Desc: true}},
		"as answers spell it":    {in: "createTime", want: page.Order{Field: "create_time"}},
		"spaces":                 {in: "  name   desc ", want: page.Order{Field: "name", Desc: true}},
		"nothing but spaces":     {in: "  ", err: fault.InvalidArgument},
		"unknown field":          {in: "colour", err: fault.InvalidArgument},
		"a column":               {in: "create_ms", err: fault.InvalidArgument},
		"two fields":             {in: "name,created_at", err: fault.InvalidArgument},
		"not a direction":        {in: "name up", err: fault.InvalidArgument},
		"a third word":           {in: "name desc uid", err: fault.InvalidArgument},
		"an injection is a word": {in: "name; drop table groups", err: fault.InvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := page.ParseOrder(tt.in, list.Default, list.Fields)
			if !errors.Is(err, tt.err) {
				t.Fatalf("ParseOrder(%q) error = %v, want %v", tt.in, err, tt.err)
			}
			if got != tt.want {
				t.Errorf("ParseOrder(%q) = %+v, want %+v", tt.in, got, tt.want)
			}
		})
	}
}

type filter struct{ Name string }

func TestTokens(t *testing.T) {
	clock := time.Unix(1_800_000_000, 0)
	tokens := page.NewTokens([]byte("key"), func() time.Time { return clock })
	first, err := tokens.Request(list, filter{"a"}, page.Params{OrderBy: "name", Skip: 3})
	if err != nil {
		t.Fatal(err)
	}
	if first.Size != page.DefaultSize || first.Skip != 3 || first.After != nil {
		t.Fatalf("first = %+v", first)
	}
	cursor := page.Cursor{Key: "x", Number: 7, UID: "u"}
	token := tokens.Next(first, cursor)
	second, err := tokens.Request(list, filter{"a"}, page.Params{OrderBy: "name", Token: token, Size: 7})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&cursor, second.After); diff != "" || second.Size != 7 || second.Expired {
		t.Fatalf("second = %+v\n%s", second, diff)
	}
	bad := map[string]page.Params{
		"another order":     {OrderBy: "name desc", Token: token},
		"a bit changed":     {OrderBy: "name", Token: flip(token)},
		"cut short":         {OrderBy: "name", Token: token[:len(token)-4]},
		"not base64":        {OrderBy: "name", Token: "%%%"},
		"nothing but a mac": {OrderBy: "name", Token: base64.RawURLEncoding.EncodeToString(make([]byte, 16))},
		"far too long":      {OrderBy: "name", Token: strings.Repeat("A", 5000)},
		"negative size":     {Size: -1},
		"negative skip":     {Skip: -1},
	}
	for name, p := range bad {
		t.Run(name, func(t *testing.T) {
			if _, err := tokens.Request(list, filter{"a"}, p); !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("error = %v, want InvalidArgument", err)
			}
		})
	}
	if _, err := tokens.Request(list, filter{"b"}, page.Params{OrderBy: "name", Token: token}); !errors.Is(err,
		fault.InvalidArgument) {
		t.Errorf("with another filter: %v, want InvalidArgument", err)
	}
	other := list
	other.Kind = "roles"
	if _, err := tokens.Request(other, filter{"a"}, page.Params{OrderBy: "name", Token: token}); !errors.Is(err,
		fault.InvalidArgument) {
		t.Errorf("of another list: %v, want InvalidArgument", err)
	}
	elsewhere := page.NewTokens([]byte("other key"), func() time.Time { return clock })
	if _, err := elsewhere.Request(list, filter{"a"}, page.Params{OrderBy: "name", Token: token}); !errors.Is(err,
		fault.InvalidArgument) {
		t.Errorf("of another installation: %v, want InvalidArgument", err)
	}
	clock = clock.Add(3*24*time.Hour - time.Second)
	if r, err := tokens.Request(list, filter{"a"}, page.Params{OrderBy: "name", Token: token}); err != nil ||
		r.After == nil {
		t.Errorf("a second before the end: %+v, %v", r, err)
	}
	clock = clock.Add(time.Second)
	r, err := tokens.Request(list, filter{"a"}, page.Params{OrderBy: "name", Token: token})
	if err != nil || r.After != nil || !r.Expired {
		t.Errorf("after three days: %+v, %v, want a list from its start", r, err)
	}
}

func flip(token string) string {
	b := []byte(token)
	if b[len(b)/2]++; b[len(b)/2] > 'z' || b[len(b)/2] == '[' || b[len(b)/2] == ':' {
		b[len(b)/2] = 'A'
	}
	return string(b)
}

func TestSizes(t *testing.T) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	for asked, want := range map[int32]int{0: 50, 1: 1, 200: 200, 201: 200, 1 << 30: 200} {
		r, err := tokens.Request(list, nil, page.Params{Size: asked})
		if err != nil || r.Size != want {
			t.Errorf("page_size %d is %d, %v; want %d", asked, r.Size, err, want)
		}
	}
}

func TestFinish(t *testing.T) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	r, err := tokens.Request(list, nil, page.Params{Skip: 2})
	if err != nil {
		t.Fatal(err)
	}
	last := page.Finish(tokens, r, page.Page[int]{Items: []int{1}, Total: 3})
	if diff := cmp.Diff(page.Page[int]{Items: []int{1}, Total: 3, Skipped: 2}, last); diff != "" {
		t.Error(diff)
	}
	more := page.Finish(tokens, r, page.Page[int]{Items: []int{1}, Last: &page.Cursor{UID: "u"}})
	if more.Next == "" || !cmp.Equal(more.Items, []int{1}, cmpopts.EquateEmpty()) {
		t.Errorf("more = %+v", more)
	}
}

func FuzzPageToken(f *testing.F) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	r, _ := tokens.Request(list, nil, page.Params{})
	real := tokens.Next(r, page.Cursor{Key: "k", UID: "u"})
	f.Add(real)
	f.Add("")
	f.Add("e30")
	f.Fuzz(func(t *testing.T, token string) {
		r, err := tokens.Request(list, nil, page.Params{Token: token})
		switch {
		case err != nil && !errors.Is(err, fault.InvalidArgument):
			t.Fatalf("error = %v", err)
		case err == nil && r.After != nil && token != real:
			b, _ := base64.RawURLEncoding.DecodeString(token)
			c, _ := base64.RawURLEncoding.DecodeString(real)
			if string(b) != string(c) {
				t.Fatalf("forged: %q", token)
			}
		}
	})
}

func FuzzOrderBy(f *testing.F) {
	f.Add("name desc")
	f.Add("created_at")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := page.ParseOrder(s, list.Default, list.Fields)
		if err == nil && got.Field != "uid" && got.Field != "name" && got.Field != "create_time" {
			t.Fatalf("%q orders by %q", s, got.Field)
		}
	})
}
