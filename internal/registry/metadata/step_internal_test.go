package metadata

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

var twoLayers = []registry.Layer{{Digest: "sha256:a", Size: 1}, {Digest: "sha256:b", Size: 2}}

func TestSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config string
		want   []string
	}{
		"a layer, a variable, a layer": {
			`{"history": [{"created_by": "ADD", "created": "2026-01-02T03:04:05Z"},
				{"created_by": "ENV", "empty_layer": true}, {"created_by": "COPY"}]}`,
			[]string{"sha256:a ADD 2026", " ENV 1", "sha256:b COPY 1"},
		},
		"none":              {`{}`, []string{"sha256:a  1", "sha256:b  1"}},
		"fewer than layers": {`{"history": [{"created_by": "ADD"}]}`, []string{"sha256:a  1", "sha256:b  1"}},
		"more than layers":  {`{"history": [{}, {}, {}]}`, []string{"sha256:a  1", "sha256:b  1"}},
		"no JSON":           {`[`, []string{"sha256:a  1", "sha256:b  1"}},
		"other types":       {`{"history": "long"}`, []string{"sha256:a  1", "sha256:b  1"}},
		"a wrong time": {
			`{"history": [{"created": "then"}, {"created": "-1"}]}`, []string{"sha256:a  1", "sha256:b  1"},
		},
		"a long command": {
			`{"history": [{"created_by": "` + strings.Repeat("€", maxCommand) + `"}, {}]}`,
			[]string{"sha256:a " + strings.Repeat("€", maxCommand/3) + "… 1", "sha256:b  1"},
		},
	} {
		var got []string
		for _, s := range steps(twoLayers, []byte(c.config)) {
			got = append(got, strings.Join([]string{s.Digest, s.Command, s.Time.Format("2006")[:]}, " "))
		}
		for i := range got {
			got[i] = strings.Replace(got[i], " 0001", " 1", 1)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	long := `{"history": [` + strings.Repeat(`{"empty_layer": true},`, maxSteps) + `{"empty_layer": true}]}`
	if n := len(steps(nil, []byte(long))); n != maxSteps {
		t.Errorf("%d steps are returned, want %d", n, maxSteps)
	}
}

func FuzzSteps(f *testing.F) {
	f.Add([]byte(`{"history": [{"created_by": "ADD", "created": "2026-01-02T03:04:05Z"}, {"empty_layer": true}, {}]}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		layers := 0
		for _, s := range steps(twoLayers, config) {
			if s.Digest != "" {
				layers++
			}
			if !utf8.ValidString(s.Command) || len(s.Command) > maxCommand+len("…") {
				t.Errorf("a command of %d bytes: %.40q", len(s.Command), s.Command)
			}
		}
		if layers > len(twoLayers) {
			t.Errorf("%d of %d layers are returned", layers, len(twoLayers))
		}
	})
}
