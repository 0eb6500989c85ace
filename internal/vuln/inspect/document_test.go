package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

const pictured = "sha256:aaaa"

// bom returns an SBOM with components.
func bom(components ...string) string {
	return `{"bomFormat":"CycloneDX","metadata":{"tools":[{"name":"t"}]},"components":[` +
		strings.Join(components, ",") + `]}`
}

// attestation returns an in-toto statement with an SBOM about the subjects.
func attestation(subjects string) string {
	return `{"_type":"https://in-toto.io/Statement/v1","subject":[` + subjects + `],"predicate":` +
		bom(component("pkg:npm/a@1")) + `}`
}

func component(purl string) string {
	return fmt.Sprintf(`{"type":"library","name":"n","version":"9","purl":%q}`, purl)
}

func readSBOM(t *testing.T, content string) (inspect.Result, error) {
	t.Helper()
	return inspect.SBOM(t.Context(), inspect.Layer{Digest: "sha256:1", Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(content)), nil
	}}, pictured)
}

// TestSBOM checks that packages of an SBOM have the same names as packages that are found in images.
func TestSBOM(t *testing.T) {
	t.Parallel()
	for purl, want := range map[string]inspect.Package{
		"pkg:npm/%40a/b@1.2.0":              {Ecosystem: "npm", Name: "@a/b", Version: "1.2.0"},
		"pkg:npm/b":                         {Ecosystem: "npm", Name: "b", Version: "9"},
		"pkg:golang/example.com/A/b@v1.2.0": {Ecosystem: "Go", Name: "example.com/A/b", Version: "1.2.0"},
		"pkg:pypi/Flask_Login.x@1":          {Ecosystem: "PyPI", Name: "flask-login-x", Version: "1"},
		"pkg:maven/g/a@1":                   {Ecosystem: "Maven", Name: "g:a", Version: "1"},
		"pkg:deb/debian/a@1%3A2?distro=bookworm": {Ecosystem: "Debian:12", Name: "a", Version: "1:2",
			SourceName: "a", SourceVersion: "1:2"},
		"pkg:deb/debian/a@2?distro=debian-12&upstream=b%401": {Ecosystem: "Debian:12", Name: "a", Version: "2",
			SourceName: "b", SourceVersion: "1"},
		"pkg:apk/alpine/a@2?distro=3.19.1&origin=b": {Ecosystem: "Alpine:v3.19", Name: "a", Version: "2", SourceName: "b",
			SourceVersion: "2"},
		"pkg:rpm/redhat/a@1-2?epoch=3": {Ecosystem: "Red Hat", Name: "a", Version: "3:1-2"},
		"pkg:unheard/of/it@1":          {Ecosystem: "unheard", Name: "of/it", Version: "1"},
	} {
		want.Purl = purl
		r, err := readSBOM(t, bom(component(purl), component(purl), component("pkg:oci/image@sha256:1")))
		if err != nil {
			t.Fatal(purl, err)
		}
		diff := cmp.Diff([]inspect.Package{want}, r.Packages)
		if diff != "" || r.Document.Format != "CycloneDX" || r.Document.Tool != "t" {
			t.Errorf("%s: %s", purl, diff)
		}
	}
}

// TestHostileSBOM checks that any document attached to an image is read within limits, or refused.
func TestHostileSBOM(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 25_000 {
		many = append(many, component(fmt.Sprintf("pkg:npm/p@%d", i)))
	}
	deep := func(n int) string {
		return bom(strings.Repeat(`{"type":"library","name":"a","purl":"pkg:npm/a@1","components":[`, n) +
			strings.Repeat("]}", n))
	}
	odd := bom(component("pkg:npm/a@1"), component("pkg:npm/%00@1"), component("pkg:"),
		component("pkg:npm/"+strings.Repeat("a", 5000)), component("pkg:npm/a%0ab@1"), component("pkg:deb/é/a@1"),
		component("pkg:npm/%ff@%ff"), component("npm/a"), component(""))
	longTool := `{"bomFormat":"CycloneDX","metadata":{"tools":[{"name":"` + strings.Repeat("t", 1<<20) +
		`"}]},"components":[` + component("pkg:npm/a@1") + `]}`
	manyValues := `{"bomFormat":"CycloneDX","components":[` + strings.Repeat("{},", 1_000_001) + `{}]}`
	for name, tt := range map[string]struct {
		content  string
		err      error // nil if the document can be read
		packages int
		warnings int
	}{
		"nothing":          {content: "", err: inspect.ErrNoSBOM},
		"something else":   {content: `{"a":1}`, err: inspect.ErrNoSBOM},
		"not JSON":         {content: "\x00\xff", err: inspect.ErrNoSBOM},
		"a report":         {content: `{"runs":[]}`, err: inspect.ErrNoSBOM},
		"of another image": {content: attestation(`{"digest":{"sha256":"bbbb"}}`), err: inspect.ErrNoSBOM},
		"of no image":      {content: attestation(""), err: inspect.ErrNoSBOM},
		"of the image":     {content: attestation(`{"digest":{"sha256":"aaaa"}}`), packages: 1},
		"huge": {content: bom(component("pkg:npm/a@1")) + strings.Repeat(" ", 17<<20),
			err: &inspect.NotUnderstood{}},
		"a million values":  {content: manyValues, err: &inspect.NotUnderstood{}},
		"too many packages": {content: bom(many...), packages: 20_000, warnings: 1},
		"deep":              {content: deep(3000), packages: 1},
		"too deep":          {content: deep(200_000), err: inspect.ErrNoSBOM},
		"brackets":          {content: strings.Repeat("[", 16<<20), err: inspect.ErrNoSBOM},
		"odd package URLs":  {content: odd, packages: 1, warnings: 2},
		"long texts":        {content: longTool, packages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := readSBOM(t, tt.content)
			var reason *inspect.NotUnderstood
			switch want := tt.err.(type) {
			case nil:
				if err != nil || len(r.Packages) != tt.packages || len(r.Warnings) != tt.warnings ||
					len(r.Document.Tool) > 600 {
					t.Errorf("%d packages, %q, %v", len(r.Packages), r.Warnings, err)
				}
			case *inspect.NotUnderstood:
				if !errors.As(err, &reason) {
					t.Errorf("%v, %d packages", err, len(r.Packages))
				}
			default:
				if !errors.Is(err, want) {
					t.Errorf("%v, %d packages", err, len(r.Packages))
				}
			}
		})
	}
}

// FuzzSBOM checks that a child returns a valid answer for any document.
func FuzzSBOM(f *testing.F) {
	f.Add([]byte(bom(component("pkg:deb/debian/a@1?distro=debian-12&upstream=b%401"),
		component("pkg:rpm/redhat/a@1?epoch=2"))))
	f.Add([]byte(`{"spdxVersion":"SPDX-2.3","packages":[{"name":"a","externalRefs":[` +
		`{"referenceType":"purl","referenceLocator":"pkg:npm/a@1"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		said, err := inspect.AnswerTo(b, pictured)
		if err != nil {
			t.Fatal(err)
		}
		r, err := inspect.ParseAnswer(said, 1)
		if err != nil {
			reason := new(inspect.NotUnderstood)
			if errors.As(err, &reason) && strings.Contains(reason.Reason, "crashed") {
				t.Fatal(err, reason.Detail)
			}
			return
		}
		again, err := inspect.AnswerTo(bytes.Clone(b), pictured)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := inspect.ParseAnswer(again, 1); err != nil || !cmp.Equal(r, second, cmpopts.EquateEmpty()) {
			t.Fatalf("%v, and then %v, %v", r, second, err)
		}
	})
}
