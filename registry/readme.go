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

// after stands for the rest of a page, which half a tag or half a comment at the
// end of a readme would take in.
const after = "<hr>"

// harmless tells whether Markdown can be shown on a page as it is: its HTML has
// nothing that a sanitizer for what people write would take away, and it ends
// where it seems to. The Markdown must be simple.
func harmless(markdown string) bool {
	var page strings.Builder
	if err := markdownToHTML().Convert([]byte(markdown), &page); err != nil {
		return false
	}
	page.WriteString(after)
	shown := spelled(page.String())
	return strings.HasSuffix(shown, after) && shown == spelled(userContent().Sanitize(page.String()))
}

// How much there may be to do about a readme: to make sense of a block takes
// time with the square of the marks in it.
const (
	maxNesting = 12
	maxMarks   = 32_000_000 // the squares of the marks of all blocks, summed up: 5,656 in one
)

// simple tells whether Markdown can be read in a fraction of a second: it is
// neither deeply nested nor has blocks of more marks than people write.
func simple(markdown string) bool {
	marks, total := 0, 0
	for line := range strings.SplitSeq(markdown, "\n") {
		text := strings.TrimLeft(line, " \t\r>-+*.)0123456789")
		lead := line[:len(line)-len(text)]
		items := strings.Count(lead, "- ") + strings.Count(lead, "* ") + strings.Count(lead, "+ ") + strings.Count(lead, ". ") + strings.Count(lead, ") ")
		if strings.Count(lead, ">")+items > maxNesting {
			return false
		}
		if text == "" || items > 0 || text[0] == '#' { // a block ends, or begins
			total += marks * marks
			marks = 0
		}
		marks += 1 + strings.Count(line, "*") + strings.Count(line, "_") + strings.Count(line, "~") + strings.Count(line, "[") + strings.Count(line, "]") +
			strings.Count(line, "(") + strings.Count(line, "!") + strings.Count(line, "`") + strings.Count(line, "|") + strings.Count(line, "<")
		if total+marks*marks > maxMarks {
			return false
		}
	}
	return true
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
