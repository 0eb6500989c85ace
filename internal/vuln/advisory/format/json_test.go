package format

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// tree reads a whole value with the reader. The result is the same as with encoding/json, except that numbers are
// texts.
func tree(r *reader) any {
	switch c := r.next(); {
	case c == '{':
		m := map[string]any{}
		for key := range r.object {
			m[key] = tree(r)
		}
		return m
	case c == '[':
		a := []any{}
		for range r.array {
			a = append(a, tree(r))
		}
		return a
	case c == '"':
		return r.text()
	}
	return json.Number(r.raw())
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0.5e+7,true,false,null,"x\u00e9\ud83d\ude00\ud83d\n\/"],"b":{}}`, `[]`, ` [ 1 , 2 ] `, `{"a":1,}`,
		`[1 2]`,
		`"\u12`, `01`, `1.`, `-`, `- 1`, `1e`, `{"a" 1}`, `nul`, `"a` + "\x01" + `"`, `"\ud83d\u0041"`, `"\u+123"`,
		`1 1`, ``, `"\`, `"\ud800\u"`, "0\x00",
		strings.Repeat("[", 100),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := newReader(s)
		r.skip()
		err := r.end()
		if err == nil != json.Valid([]byte(s)) && utf8.ValidString(s) && err != errDepth && err != errItems {
			t.Fatalf("%q: %v, but encoding/json finds it valid: %v", s, err, json.Valid([]byte(s)))
		}
		if err != nil {
			return
		}
		var want any
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(words(want), words(tree(newReader(s)))); diff != "" {
			t.Fatalf("%q: (-encoding/json +ours)\n%s", s, diff)
		}
	})
}

// words converts values that are neither texts nor containers to texts.
func words(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = words(v[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = words(v[i])
		}
		return v
	case string:
		return "text " + v
	case json.Number:
		return string(v)
	case nil:
		return "null"
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func TestReaderDepth(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		r := newReader(strings.Repeat(open, 1<<20))
		if r.skip(); r.end() != errDepth {
			t.Errorf("a million of %s: %v, want %v", open, r.err, errDepth)
		}
	}
	flat := "[" + strings.Repeat("[],", 1000) + "[]]"
	if r := newReader(flat); true {
		if r.skip(); r.end() != nil {
			t.Errorf("a thousand side by side: %v", r.err)
		}
	}
}
