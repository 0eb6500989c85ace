package api

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

var repoFields = (*registrypb.Repo)(nil).ProtoReflect().Descriptor()

func TestRespell(t *testing.T) {
	for body, want := range map[string]string{
		``:                              ``,
		`{}`:                            `{}`,
		`{"syncConfig":{"source":"a"}}`: `{"sync_config":{"source":"a"}}`,
		` { "name" : "x" , "syncConfig" : null } `:       ` { "name" : "x" , "sync_config" : null } `,
		`{"sync_config":{},"syncConfig":{}}`:             `{"sync_config":{},"sync_config":{}}`,
		`{"name":"syncConfig","aliases":["syncConfig"]}`: `{"name":"syncConfig","aliases":["syncConfig"]}`,
		`{"customOverlay":{"syncConfig":1}}`:             `{"customOverlay":{"syncConfig":1}}`,
		`{"customOverlay":{}}`:                           `{"customOverlay":{}}`,
		`["syncConfig"]`:                                 `["syncConfig"]`,
		`{"syncConfig":`:                                 `{"sync_config":`,
		`{"syncConfig":{`:                                `{"sync_config":{`,
		`{"syncConfig"`:                                  `{"sync_config"`,
		`{"syncConfig`:                                   `{"syncConfig`,
		`{7:1,"syncConfig":1}`:                           `{7:1,"syncConfig":1}`,
	} {
		if got := string(respell([]byte(body), repoFields)); got != want {
			t.Errorf("%s becomes %s, want %s", body, got, want)
		}
	}
}

// FuzzRespell: respell changes only one key of a JSON object. The rest of the object has
// the same meaning as before.
func FuzzRespell(f *testing.F) {
	f.Add([]byte(`{"name":"x","syncConfig":{"source":"a"}}`))
	f.Add([]byte(`{"sync\u0043onfig":1,"syncConfig":2}`))
	f.Add([]byte(`{"a":"\"syncConfig\"","syncConfig":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := respell(body, repoFields)
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil || before == nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%s becomes %s: %v", body, got, err)
		}
		for _, key := range []string{"syncConfig", "sync_config"} { // the key that respell may rename
			delete(before, key)
			delete(after, key)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s becomes %s: %s", body, got, diff)
		}
	})
}

func TestKeyAt(t *testing.T) {
	tests := map[string]struct {
		body         string
		line, column int
		want         string
	}{
		"the value of a key":       {`{"a": 1, "b": 2}`, 1, 15, "b"},
		"of a key inside":          {`{"a": {"b": {"c": 1}}, "d": 2}`, 1, 19, "c"},
		"of a key after an object": {`{"a": {"b": 1}, "d": 2}`, 1, 22, "d"},
		"of an item of a list":     {`{"a": ["x", {"b": 1}, "y"]}`, 1, 23, "a"},
		"a key itself":             {`{"a": 1, "b": 2}`, 1, 10, "b"},
		"on a later line":          {"{\n\"a\": 1,\n\"b\": 2}", 3, 6, "b"},
		"after wider letters":      {`{"ä": "ö", "b": 2}`, 1, 17, "b"},
		"of no key":                {`[1]`, 1, 2, ""},
		"past the end":             {`{"a": 1}`, 1, 99, ""},
		"in what is no JSON":       {`{"a": nope}`, 1, 8, "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := keyAt([]byte(tt.body), tt.line, tt.column); got != tt.want {
				t.Errorf("keyAt = %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzKeyAt(f *testing.F) {
	f.Add([]byte(`{"a": [{"b": 1}]}`), 1, 14)
	f.Fuzz(func(_ *testing.T, body []byte, line, column int) { keyAt(body, line%100, column) })
}
