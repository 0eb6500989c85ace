package manual

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// indexName is the name, without its ending, of the page that is shown for a folder.
const indexName = "README"

// sources is where the files of the project are that are not part of the documentation.
const sources = "https://github.com/holdfast-dev/holdfast/blob/main/"

// A page is a page of docs/.
type page struct {
	Path, Title string
	HTML        template.HTML
	Sections    []section
}

// A section is a part of a page below a heading.
type section struct {
	Title, Anchor string
	Level         int
	text          string // what a search examines
}

// A chapter is a group of pages in the contents.
type chapter struct {
	Title string
	Links []contentsLink
}

// A contentsLink leads to a page, or to a part of it.
type contentsLink struct{ Title, Path string }

// readPages renders all pages. The first page lists the others: its headings and links are the contents.
func (m *manual) readPages() error {
	err := fs.WalkDir(m.files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(file) != ".md" {
			return err
		}
		source, err := fs.ReadFile(m.files, file)
		if err != nil {
			return err
		}
		p, chapters, err := render(file, source)
		if err != nil {
			return fmt.Errorf("render %s: %w", file, err)
		}
		if p.Path == "" {
			m.contents = chapters
		}
		m.order = append(m.order, p)
		return nil
	})
	return err
}

// render renders a page. It also returns the links of the page by heading.
func render(file string, source []byte) (*page, []chapter, error) {
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	root := md.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	p := &page{Path: pathOf(file)}
	var chapters []chapter
	var body strings.Builder // text of the section that is being read
	finish := func() {
		if n := len(p.Sections); n > 0 {
			p.Sections[n-1].text = body.String()
		}
		body.Reset()
	}
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock {
			body.WriteByte(' ')
		}
		switch n := n.(type) {
		case *ast.Heading:
			finish()
			p.Sections = append(p.Sections, sectionOf(n, source))
			if n.Level == 2 {
				chapters = append(chapters, chapter{Title: plain(n, source)})
			}
			return ast.WalkSkipChildren, nil
		case *ast.Link:
			n.Destination = []byte(target(file, string(n.Destination)))
			if name, ok := strings.CutPrefix(string(n.Destination), Prefix); ok && len(chapters) > 0 {
				last := &chapters[len(chapters)-1]
				last.Links = append(last.Links, contentsLink{plain(n, source), name})
			}
		case *ast.Image:
			n.Destination = []byte(target(file, string(n.Destination)))
		case *ast.Text:
			body.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				body.WriteByte(' ')
			}
		case *ast.FencedCodeBlock:
			body.Write(n.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, nil, err
	}
	finish()
	if len(p.Sections) == 0 {
		return nil, nil, fmt.Errorf("the page has no heading")
	}
	p.Title = p.Sections[0].Title
	var html bytes.Buffer
	err = md.Renderer().Render(&html, source, root)
	accessible := strings.ReplaceAll(html.String(), "<th></th>", "<td></td>") // readers of screens announce a th
	p.HTML = template.HTML(accessible)                                        // HTML in pages is left out
	return p, chapters, err
}

func sectionOf(h *ast.Heading, source []byte) section {
	id, _ := h.AttributeString("id")
	anchor, _ := id.([]byte)
	return section{Title: plain(h, source), Anchor: string(anchor), Level: h.Level}
}

// plain returns the text of a node without marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
		} else {
			b.WriteString(plain(c, source))
		}
	}
	return b.String()
}

// pathOf returns the path, below Prefix, of the page that a file contains.
func pathOf(file string) string {
	name := strings.TrimSuffix(file, ".md")
	if path.Base(name) == indexName {
		return strings.TrimSuffix(name, indexName)
	}
	return name
}

// target returns where a link in a file leads on this server. Files outside of docs/ are not on this server.
func target(file, link string) string {
	if strings.Contains(link, ":") || strings.HasPrefix(link, "#") {
		return link
	}
	name, anchor, _ := strings.Cut(link, "#")
	if anchor != "" {
		anchor = "#" + anchor
	}
	to := path.Join("docs", path.Dir(file), name)
	inside, ok := strings.CutPrefix(to, "docs/")
	switch {
	case !ok:
		return sources + to + anchor
	case path.Ext(inside) == ".md":
		return Prefix + pathOf(inside) + anchor
	}
	return Prefix + inside + anchor
}

// anchors names headings as code hosts do, because the links in the pages lead to these names.
type anchors map[string]bool

// Generate returns the name of a heading.
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	name := []byte{}
	for _, c := range bytes.ToLower(heading) {
		switch {
		case c == ' ':
			name = append(name, '-')
		case c == '-', c == '_', c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			name = append(name, c)
		}
	}
	unique := name
	for i := 1; a[string(unique)]; i++ {
		unique = fmt.Appendf(nil, "%s-%d", name, i)
	}
	a[string(unique)] = true
	return unique
}

// Put does nothing: headings do not name themselves.
func (a anchors) Put([]byte) {}
