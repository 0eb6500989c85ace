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

// A JSON object keeps its meaning, but for one key; nothing else is touched.
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
		for _, key := range []string{"syncConfig", "sync_config"} { // which of the two is not the question
			delete(before, key)
			delete(after, key)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s becomes %s: %s", body, got, diff)
		}
	})
}
