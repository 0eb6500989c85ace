package manual

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

const (
	maxQuery   = 100          // bytes of a query; the rest is ignored
	maxResults = 50           // results on a page
	around     = 90           // bytes of text that are shown before and after a match
	decisions  = "decisions/" // the folder of pages that are found last
)

// results are the results of a search.
type results struct {
	Query   string
	Found   int      // number of all results
	Results []result // the first maxResults
	Missing bool     // whether this replaces a page that does not exist
}

// More reports whether some results are not shown.
func (r results) More() bool { return r.Found > len(r.Results) }

// A result is a section of a page, a call or a type, with a part of its text.
type result struct {
	Title, Where, Path   string
	Before, Match, After string
}

// An entry is something that can be found.
type entry struct {
	title, where, path string
	text               string // what results show a part of
	lowerTitle, lower  string
	rank               int // entries with a smaller rank come first; a match in the title comes before all of these
}

// The ranks of entries.
const (
	rankPage = iota + 3
	rankCall
	rankType
	rankDecision
	rankDeprecated
)

// index returns everything that can be found.
func (m *manual) index() (all []entry) {
	for _, p := range m.order {
		rank := rankPage
		if strings.HasPrefix(p.Path, decisions) {
			rank = rankDecision
		}
		for i, s := range p.Sections {
			link := p.Path
			if i > 0 {
				link += "#" + s.Anchor
			}
			all = append(all, newEntry(s.Title, p.Title, link, s.text, p.Title, rank))
		}
	}
	for _, s := range m.reference.Services {
		for _, c := range s.Calls {
			rank := rankCall
			if c.Deprecated {
				rank = rankDeprecated
			}
			text := c.Method + " " + c.Path + ": " + c.Summary
			all = append(all, newEntry(c.Name, s.Name, apiFolder+s.Name+"#"+c.ID, text, c.ID, rank))
		}
		for _, t := range s.Types {
			all = append(all, newEntry(t.Name, s.Name, apiFolder+s.Name+"#"+t.Anchor, t.Description, t.Anchor, rankType))
		}
	}
	return all
}

// newEntry returns an entry. The text in also is searched, and never shown.
func newEntry(title, where, at, text, also string, rank int) entry {
	text = strings.Join(strings.Fields(text), " ")
	return entry{
		title: title, where: where, path: at, text: text, lowerTitle: strings.ToLower(title),
		lower: strings.ToLower(title + " " + text + " " + also), rank: rank,
	}
}

// search returns the entries that have every word of a query.
func (m *manual) search(query string) *results {
	query = strings.ToValidUTF8(query[:min(len(query), maxQuery)], "")
	r := &results{Query: strings.TrimSpace(query)}
	words := strings.Fields(strings.ToLower(r.Query))
	if len(words) == 0 {
		return r
	}
	var found []entry
	for _, e := range m.entries {
		if hasAll(e.lower, words) {
			e.rank = e.rankFor(words)
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, func(a, b entry) int { return cmp.Compare(a.rank, b.rank) })
	r.Found = len(found)
	for _, e := range found[:min(len(found), maxResults)] {
		hit := result{Title: e.title, Where: e.where, Path: e.path}
		hit.Before, hit.Match, hit.After = excerpt(e.text, words)
		r.Results = append(r.Results, hit)
	}
	return r
}

// rankFor returns the rank of an entry among the results for some words.
func (e entry) rankFor(words []string) int {
	switch {
	case e.lowerTitle == strings.Join(words, ""), e.lowerTitle == strings.Join(words, " "):
		return 0
	case hasAll(e.lowerTitle, words) && e.rank == rankPage:
		return 1
	case hasAll(e.lowerTitle, words):
		return 2
	}
	return e.rank
}

// hasAll reports whether a text has every word.
func hasAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// excerpt returns the first match of a word in a text, and the text around it. If there is no match, it returns the
// beginning of the text as the part after.
func excerpt(text string, words []string) (before, match, after string) {
	first, length := 0, 0
	lower := strings.ToLower(text)
	if len(lower) == len(text) { // else positions in one are not positions in the other
		for _, w := range words {
			if i := strings.Index(lower, w); i >= 0 && (length == 0 || i < first) {
				first, length = i, len(w)
			}
		}
	}
	start, end := max(first-around, 0), min(first+length+around, len(text))
	if space := strings.LastIndexByte(text[:start], ' '); start > 0 && space >= 0 {
		start = space + 1
	}
	if space := strings.IndexByte(text[end:], ' '); space >= 0 {
		end += space
	} else {
		end = len(text)
	}
	before, after = text[start:first], text[first+length:end]
	if start > 0 {
		before = "… " + before
	}
	if end < len(text) {
		after += " …"
	}
	return before, text[first : first+length], after
}

// wordsOf returns the words of a path.
func wordsOf(at string) []string {
	return strings.FieldsFunc(at, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
