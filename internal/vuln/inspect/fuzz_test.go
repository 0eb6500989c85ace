package inspect_test

import (
	"bytes"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// FuzzFrames checks that reading any bytes as frames, as a child does, ends without a panic.
func FuzzFrames(f *testing.F) {
	var good bytes.Buffer
	must(inspect.Frames(&good, bytes.NewReader(archive(file{name: lodash, content: node("a", "1")})),
		bytes.NewReader(zipped(archive(file{name: "etc/os-release", content: debianRelease})))))
	f.Add(good.Bytes())
	f.Add([]byte("R\x00\x00\x00\x00D\xff\xff\xff\xff"))
	f.Fuzz(func(_ *testing.T, b []byte) { inspect.Serve(bytes.NewReader(b)) })
}

// FuzzAnswer parses any answer, and checks that an accepted result is valid.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"Result":{"Packages":[{"Ecosystem":"npm","Name":"a"}],"Warnings":["b"]}}`))
	f.Add([]byte(`{"NotUnderstood":"c"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := inspect.ParseAnswer(b, 3)
		if err != nil {
			return
		}
		for _, p := range r.Packages {
			if !p.Valid() || p.Layer < 0 || p.Layer >= 3 {
				t.Fatalf("%+v", p)
			}
		}
		if len(r.Warnings) > 100 {
			t.Fatal("too many warnings")
		}
	})
}
