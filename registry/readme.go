package registry

import (
	"regexp"
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"
	nethtml "golang.org/x/net/html"
)

// harmless tells whether Markdown can be shown on a page as it is: its HTML has
// nothing that a sanitizer for what people write would take away.
func harmless(markdown string) bool {
	var page strings.Builder
	if err := markdownToHTML().Convert([]byte(markdown), &page); err != nil {
		return false
	}
	return spelled(page.String()) == spelled(userContent().Sanitize(page.String()))
}

// markdownToHTML keeps the HTML that stands in Markdown: it is to be judged.
var markdownToHTML = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.Linkify, extension.Strikethrough, extension.TaskList,
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
		goldmark.WithRendererOptions(html.WithUnsafe()))
})

// userContent allows what a readme is made of, also comments, the languages of
// code, the sizes of images and the boxes of task lists.
var userContent = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.UGCPolicy()
	p.RequireNoFollowOnLinks(false)
	p.AllowComments()
	p.AllowElements("kbd")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^language-[a-zA-Z0-9_+#.-]+$`)).OnElements("code")
	p.AllowAttrs("width", "height").Matching(regexp.MustCompile(`^[0-9]{1,4}(px|%)?$`)).OnElements("img")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("p", "div", "h1", "h2", "h3", "img")
	p.AllowAttrs("type").Matching(regexp.MustCompile(`^checkbox$`)).OnElements("input")
	p.AllowAttrs("checked", "disabled").OnElements("input")
	return p
})

// spelled writes HTML in the one way there is to write it, so that two texts
// differ only in what they mean.
func spelled(page string) string {
	var b strings.Builder
	for z := nethtml.NewTokenizer(strings.NewReader(page)); ; {
		if z.Next() == nethtml.ErrorToken {
			return b.String()
		}
		t := z.Token()
		if t.Type == nethtml.SelfClosingTagToken {
			t.Type = nethtml.StartTagToken // <br /> is <br>
		}
		b.WriteString(t.String())
	}
}
