package metadata

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

// restOfPage represents the HTML that follows a readme on a page. If a tag or comment is left open at the end of the
// readme, it swallows this HTML.
const restOfPage = "<hr>"

// safe reports whether Markdown can be shown on a page without changes: a sanitizer for user content removes nothing
// from its HTML, and no tag or comment is left open. The caller must first have checked the Markdown with cheap.
func safe(markdown string) bool {
	var page strings.Builder
	if err := markdownToHTML().Convert([]byte(markdown), &page); err != nil {
		return false
	}
	page.WriteString(restOfPage)
	shown := canonical(page.String())
	return strings.HasSuffix(shown, restOfPage) && shown == canonical(userContent().Sanitize(page.String()))
}

// Limits on the cost of parsing a readme. Marks are characters such as * and [ that have a meaning in Markdown. The
// time to parse a block grows with the square of the number of marks in it.
const (
	maxNesting = 12
	maxMarks   = 32_000_000 // sum, over all blocks, of the square of the number of marks
)

// cheap reports whether Markdown can be parsed in a fraction of a second: it is not deeply nested, and no block has
// far more marks than a person would write.
func cheap(markdown string) bool {
	marks, total := 0, 0
	for line := range strings.SplitSeq(markdown, "\n") {
		text := strings.TrimLeft(line, " \t\r>-+*.)0123456789")
		lead := line[:len(line)-len(text)]
		items := count(lead, "- ", "* ", "+ ", ". ", ") ")
		if strings.Count(lead, ">")+items > maxNesting {
			return false
		}
		if text == "" || items > 0 || text[0] == '#' { // a block ends or begins at this line
			total += marks * marks
			marks = 0
		}
		marks += 1 + count(line, "*", "_", "~", "[", "]", "(", "!", "`", "|", "<")
		if total+marks*marks > maxMarks {
			return false
		}
	}
	return true
}

// count returns the number of occurrences of the marks in s.
func count(s string, marks ...string) (n int) {
	for _, m := range marks {
		n += strings.Count(s, m)
	}
	return n
}

// markdownToHTML does not escape HTML in Markdown, so that safe can check it.
var markdownToHTML = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.Linkify, extension.Strikethrough, extension.TaskList,
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
		goldmark.WithRendererOptions(html.WithUnsafe()))
})

// userContent allows user content including comments, the languages of code, the
// sizes of images and the checkboxes of task lists.
var userContent = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.UGCPolicy()
	p.RequireNoFollowOnLinks(false)
	p.AllowComments()
	p.AllowElements("kbd")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^language-[a-zA-Z0-9_+#.-]+$`)).OnElements("code")
	p.AllowAttrs("width", "height").Matching(regexp.MustCompile(`^[0-9]{1,4}(px|%)?$`)).OnElements("img")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).
		OnElements("p", "div", "h1", "h2", "h3", "img")
	p.AllowAttrs("type").Matching(regexp.MustCompile(`^checkbox$`)).OnElements("input")
	p.AllowAttrs("checked", "disabled").OnElements("input")
	return p
})

// canonical returns HTML in a canonical form, so that equal pages can be compared as text.
func canonical(page string) string {
	var b strings.Builder
	for z := nethtml.NewTokenizer(strings.NewReader(page)); ; {
		if z.Next() == nethtml.ErrorToken {
			return b.String()
		}
		t := z.Token()
		if t.Type == nethtml.SelfClosingTagToken {
			t.Type = nethtml.StartTagToken // <br /> means the same as <br>
		}
		b.WriteString(t.String())
	}
}
