package page_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
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
		"unknown field":          {in: "color", err: fault.InvalidArgument},
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

type filter struct {
	Name  string   `json:"name,omitempty"`
	Place place    `json:"place,omitzero"`
	IDs   []string `json:"ids,omitempty"`
}

type place struct {
	Below string `json:"below,omitempty"`
	Root  bool   `json:"root,omitempty"`
}

func TestTokens(t *testing.T) {
	clock := time.Unix(1_800_000_000, 0)
	tokens := page.NewTokens([]byte("key"), func() time.Time { return clock })
	_, first, err := page.Resume(tokens, list, filter{Name: "a"}, page.Params{OrderBy: "name", Skip: 3})
	if err != nil {
		t.Fatal(err)
	}
	if first.Size != page.DefaultSize || first.Skip != 3 || first.After != nil {
		t.Fatalf("first = %+v", first)
	}
	cursor := page.Cursor{Key: "x", Number: 7, UID: "u"}
	token := tokens.Next(first, cursor)
	_, second, err := page.Resume(tokens, list, filter{Name: "a"}, page.Params{OrderBy: "name", Token: token, Size: 7})
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
			if _, _, err := page.Resume(tokens, list, filter{Name: "a"}, p); !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("error = %v, want InvalidArgument", err)
			}
		})
	}
	if _, _, err := page.Resume(tokens, list, filter{Name: "b"},
		page.Params{OrderBy: "name", Token: token}); !errors.Is(err,
		fault.InvalidArgument) {
		t.Errorf("with another filter: %v, want InvalidArgument", err)
	}
	other := list
	other.Kind = "roles"
	if _, _, err := page.Resume(tokens, other, filter{Name: "a"},
		page.Params{OrderBy: "name", Token: token}); !errors.Is(err,
		fault.InvalidArgument) {
		t.Errorf("of another list: %v, want InvalidArgument", err)
	}
	elsewhere := page.NewTokens([]byte("other key"), func() time.Time { return clock })
	if _, _, err := page.Resume(elsewhere, list, filter{Name: "a"},
		page.Params{OrderBy: "name", Token: token}); !errors.Is(err,
		fault.InvalidArgument) {
		t.Errorf("of another installation: %v, want InvalidArgument", err)
	}
	clock = clock.Add(3*24*time.Hour - time.Second)
	if _, r, err := page.Resume(tokens, list, filter{Name: "a"}, page.Params{OrderBy: "name", Token: token}); err != nil ||
		r.After == nil {
		t.Errorf("a second before the end: %+v, %v", r, err)
	}
	clock = clock.Add(time.Second)
	_, r, err := page.Resume(tokens, list, filter{Name: "a"}, page.Params{OrderBy: "name", Token: token})
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

// TestTokenCarriesList checks that a token alone continues its list, and that parameters that are
// sent with the token must be the same as in the list.
func TestTokenCarriesList(t *testing.T) {
	clock := time.Unix(1_800_000_000, 0)
	tokens := page.NewTokens([]byte("key"), func() time.Time { return clock })
	whole := filter{Name: "<é>", Place: place{Below: "g", Root: true}, IDs: []string{"1", "2"}}
	_, first, err := page.Resume(tokens, list, whole, page.Params{OrderBy: "created_at desc"})
	if err != nil {
		t.Fatal(err)
	}
	token := tokens.Next(first, page.Cursor{UID: "u"})
	tests := map[string]struct {
		given filter
		order string
		err   error
	}{
		"nothing":                {},
		"everything":             {given: whole, order: "create_time desc"},
		"the order":              {order: "created_at desc"},
		"a part of the filter":   {given: filter{Place: place{Below: "g"}}},
		"another name":           {given: filter{Name: "b"}, err: fault.InvalidArgument},
		"another place":          {given: filter{Name: whole.Name, Place: place{Below: "h"}}, err: fault.InvalidArgument},
		"fewer of many":          {given: filter{IDs: []string{"1"}}, err: fault.InvalidArgument},
		"the other way round":    {order: "created_at", err: fault.InvalidArgument},
		"another order":          {order: "name", err: fault.InvalidArgument},
		"an order there is none": {order: "color", err: fault.InvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, r, err := page.Resume(tokens, list, tt.given, page.Params{OrderBy: tt.order, Token: token})
			if !errors.Is(err, tt.err) {
				t.Fatalf("error = %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(whole, f); diff != "" || r.Order != first.Order || r.After == nil {
				t.Errorf("request = %+v, filter (-want +got):\n%s", r, diff)
			}
			again := tokens.Next(r, page.Cursor{UID: "u"})
			f, r, err = page.Resume(tokens, list, filter{}, page.Params{Token: again})
			if diff := cmp.Diff(whole, f); err != nil || diff != "" || r.Order != first.Order {
				t.Errorf("the next token continues %+v, %v, filter (-want +got):\n%s", r, err, diff)
			}
		})
	}
	if _, _, err := page.Resume(tokens, list, filter{}, page.Params{}); err != nil {
		t.Errorf("the first page: %v", err)
	}
	clock = clock.Add(4 * 24 * time.Hour)
	f, r, err := page.Resume(tokens, list, filter{}, page.Params{Token: token})
	if err != nil || !r.Expired || r.After != nil || f.Name != whole.Name || r.Order != first.Order {
		t.Errorf("after three days: %+v of %+v, %v, want the same list from its start", r, f, err)
	}
}

// TestLongFilter checks that a filter that does not fit into a token must be sent again.
func TestLongFilter(t *testing.T) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	long := filter{IDs: make([]string, 1000)}
	_, first, err := page.Resume(tokens, list, long, page.Params{OrderBy: "name"})
	if err != nil {
		t.Fatal(err)
	}
	token := tokens.Next(first, page.Cursor{Key: strings.Repeat("n", 1024), UID: "u"})
	if len(token) > 4096 {
		t.Errorf("a token of %d bytes", len(token))
	}
	if _, r, err := page.Resume(tokens, list, long, page.Params{Token: token}); err != nil || r.Order.Field != "name" {
		t.Errorf("with the filter: %+v, %v", r, err)
	}
	if _, _, err := page.Resume(tokens, list, filter{}, page.Params{Token: token}); !errors.Is(err,
		fault.InvalidArgument) ||
		!strings.Contains(err.Error(), "sent again") {
		t.Errorf("without it: %v", err)
	}
}

func TestSizes(t *testing.T) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	for asked, want := range map[int32]int{0: 50, 1: 1, 200: 200, 201: 200, 1 << 30: 200} {
		_, r, err := page.Resume[any](tokens, list, nil, page.Params{Size: asked})
		if err != nil || r.Size != want {
			t.Errorf("page_size %d is %d, %v; want %d", asked, r.Size, err, want)
		}
	}
}

func TestFinish(t *testing.T) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	_, r, err := page.Resume[any](tokens, list, nil, page.Params{Skip: 2})
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
	_, r, _ := page.Resume[any](tokens, list, nil, page.Params{})
	real := tokens.Next(r, page.Cursor{Key: "k", UID: "u"})
	f.Add(real)
	f.Add("")
	f.Add("e30")
	f.Fuzz(func(t *testing.T, token string) {
		_, r, err := page.Resume[any](tokens, list, nil, page.Params{Token: token})
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

// TestCut checks pages of items in memory, in both orders and with unusual keys.
func TestCut(t *testing.T) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	var keys []string
	for i := range 23 {
		key := fmt.Sprintf("%02d", i)
		if i%3 == 0 { // the key is longer than a token may be, and begins like other keys
			key = fmt.Sprintf("%02d", i/6) + strings.Repeat("\x00\xffé", 2000) + key
		}
		keys = append(keys, key)
	}
	for _, order := range []string{"name", "name desc"} {
		var got []string
		for p := (page.Params{Size: 4, OrderBy: order}); ; {
			_, r, err := page.Resume[any](tokens, list, nil, p)
			if err != nil {
				t.Fatal(err)
			}
			found := page.Finish(tokens, r, page.Cut(keys, r, func(s string) string { return s }))
			if got = append(got, found.Items...); found.Total != int64(len(keys)) {
				t.Fatalf("the total is %d", found.Total)
			}
			if p.Token = found.Next; p.Token == "" {
				break
			}
		}
		short := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return len(s) > 100 })
		if order == "name desc" {
			slices.Reverse(short)
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(keys))
		if diff := cmp.Diff(want, got); diff != "" || !slices.IsSorted(short) {
			t.Errorf("%s: %v %s", order, short, diff)
		}
	}
}
