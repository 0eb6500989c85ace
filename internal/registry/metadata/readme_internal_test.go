package metadata

import (
	"strings"
	"testing"
)

func TestHarmless(t *testing.T) {
	for text, want := range map[string]bool{
		"": true,
		"# Title\n\n**bold**, \"quoted\", it's & <br/> a<br>b":     true,
		"```go\nfunc main() {}\n```":                               true,
		"- [ ] to do\n- [x] done":                                  true,
		"![logo](https://x.example/a.png)":                         true,
		"[a](https://x.example/?a=b&c=d \"title\")":                true,
		"[a](docs/a.md), [b](#anchor), [c](mailto:a@x.example)":    true,
		"| a | b |\n|---|:-:|\n| 1 | 2 |":                          true,
		"<!-- nobody sees this -->":                                true,
		`<img src="a.png" width="100" height="50%">`:               true,
		`<p align="center">x</p>`:                                  true,
		"~~no~~ www.example.com":                                   true,
		"&copy; &#x41; é 😀, 1 < 2 > 3 && <b>x</b>":                 true,
		"<details><summary>s</summary>x</details> <kbd>Ctrl</kbd>": true,
		"    <script>in code</script>":                             true,
		"`<script>`":                                               true,
		"<script>alert(1)</script>":                                false,
		"[a](javascript:alert(1))":                                 false,
		"[a](JaVaScRiPt:alert(1))":                                 false,
		"![a](data:text/html;base64,AAAA)":                         false,
		`<img src="x" onerror="alert(1)">`:                         false,
		`<a href="https://x.example" onclick="x()">a</a>`:          false,
		`<p style="position:fixed">x</p>`:                          false,
		`<code class="evil">x</code>`:                              false,
		`<input type="password">`:                                  false,
		`<iframe src="x"></iframe>`:                                false,
		"<style>a{}</style>":                                       false,
		`<form action="x"></form>`:                                 false,
		"<svg><script>x</script></svg>":                            false,
		"<script":                                                  false, "<sCript": false,
		"<!-- half a comment": false, "text\n\n<div": false,
		"text <script>x</script> text": false,
	} {
		if got := safe(text); got != want {
			t.Errorf("%.60q: %t, want %t", text, got, want)
		}
	}
}

// TestSimple checks that cheap refuses Markdown that would take minutes to parse, and accepts long Markdown that does
// not.
func TestSimple(t *testing.T) {
	const size = 256 << 10
	for text, want := range map[string]bool{
		"**a_": false, ">": false, "[a](": false, "1. ": false, "> - ": false, "[a]: b\n": false, "~~a": false,
		"|a|b|\n|-|-|\n": false, "a  \n": false,
		"words and **more** words\n\n": true, "- [a](b)\n": true, "---------\n\n": true, "# a\n": true,
		"    code\n\n": true, "| a | b |\n\n": true, "> > quoted\n\n": true,
	} {
		if got := cheap(strings.Repeat(text, size/len(text))); got != want {
			t.Errorf("%q again and again: %t, want %t", text, got, want)
		}
	}
}

// FuzzHarmless checks that the HTML of Markdown that safe accepts contains no tag such as script, style or form.
func FuzzHarmless(f *testing.F) {
	for _, text := range []string{"# a\n\n[b](c)", "<script>x</script>", "<img src=x onerror=y>",
		"- [ ] a\n\n| a |\n|---|\n| b |", "<a href=javascript:x>", "<!-->"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<10 || strings.Contains(text, "<!--") || !cheap(text) || !safe(text) {
			return
		}
		var page strings.Builder
		if err := markdownToHTML().Convert([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"<script", "<style", "<iframe", "<object", "<form", "<svg", "<base", "<meta"} {
			if strings.Contains(strings.ToLower(page.String()), bad) {
				t.Errorf("%q is harmless, and its HTML has %s: %s", text, bad, &page)
			}
		}
	})
}
