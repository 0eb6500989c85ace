package format

import (
	"bufio"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// Write writes the managed kinds of a model as a file. Each line of notes becomes a comment
// at the beginning.
func Write(to io.Writer, m *model.Model, notes []string) error {
	w := writer{bufio.NewWriterSize(to, 1<<16)}
	w.header(m, notes)
	for _, k := range model.Kinds {
		if m.Manages(k) {
			w.section(k, m.Sorted(k))
		}
	}
	return w.Flush()
}

type writer struct{ *bufio.Writer }

// say writes strings. Flush returns the first error.
func (w writer) say(parts ...string) {
	for _, p := range parts {
		_, _ = w.WriteString(p) // Flush returns the error
	}
}

func (w writer) header(m *model.Model, notes []string) {
	for _, note := range notes {
		w.say("# ", strings.Map(printable, note), "\n")
	}
	w.say("apiVersion: ", Version, "\n", "group: ", Quote(m.Group), "\n")
}

func (w writer) section(k *model.Kind, resources []*model.Resource) {
	if len(resources) == 0 {
		w.say(k.Name, ": []\n")
		return
	}
	w.say(k.Name, ":\n")
	for _, r := range resources {
		w.resource(r)
	}
}

func (w writer) resource(r *model.Resource) {
	lead := "  - "
	line := func(indent, key string) {
		w.say(lead, indent, key, ":")
		lead = "    "
	}
	switch {
	case r.Kind.Named():
		line("", "path")
		w.say(" ", Quote(r.Path()), "\n")
	case r.In != "":
		line("", "in")
		w.say(" ", Quote(r.In), "\n")
	}
	open := ""
	for i := range r.Kind.Fields {
		f := &r.Kind.Fields[i]
		v := r.Fields[f.Name]
		if v == nil {
			continue
		}
		outer, inner, nested := strings.Cut(f.Name, ".")
		if nested && outer != open {
			line("", outer)
			w.say("\n")
			open = outer
		}
		indent := ""
		if nested {
			indent, outer = "  ", inner
		}
		line(indent, outer)
		w.value("    "+indent, v)
	}
	if lead == "  - " {
		w.say(lead, "{}\n")
	}
}

// value writes a value after its key.
func (w writer) value(indent string, v model.Value) {
	switch v := v.(type) {
	case bool:
		w.say(" ", strconv.FormatBool(v), "\n")
	case int64:
		w.say(" ", strconv.FormatInt(v, 10), "\n")
	case string:
		w.text(indent, v)
	case []string:
		w.say("\n")
		for _, text := range v {
			w.say(indent, "  - ", Quote(text), "\n")
		}
	case map[string]string:
		w.say("\n")
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.say(indent, "  ", Quote(key), ": ", Quote(v[key]), "\n")
		}
	}
}

// text writes a text on one line, or as a block if it has several lines.
func (w writer) text(indent, text string) {
	if !blockable(text) {
		w.say(" ", Quote(text), "\n")
		return
	}
	mark := " |-\n"
	if strings.HasSuffix(text, "\n") {
		mark = " |\n"
	}
	w.say(mark)
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if line != "" {
			w.say(indent, "  ", line)
		}
		w.say("\n")
	}
}

// blockable reports whether a block of lines keeps a text exactly.
func blockable(text string) bool {
	body := strings.TrimSuffix(text, "\n")
	if !strings.Contains(body, "\n") || strings.HasSuffix(body, "\n") || strings.HasPrefix(body, "\n") {
		return false
	}
	for line := range strings.SplitSeq(body, "\n") {
		if strings.HasSuffix(line, " ") || strings.IndexFunc(line, func(r rune) bool { return printable(r) != r }) >= 0 {
			return false
		}
	}
	return body[0] != ' '
}

// printable replaces characters that must not be in a comment or a block.
func printable(r rune) rune {
	if r == unicode.ReplacementChar || !unicode.IsPrint(r) || r > 0xffff {
		return '?'
	}
	return r
}

// Quote returns a text as a YAML scalar on one line, without quotes if they are not needed.
func Quote(text string) string {
	if plain(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// plain reports whether YAML reads an unquoted text as that text.
func plain(text string) bool {
	if text == model.Root {
		return true
	}
	if text == "" || slices.Contains(words, strings.ToLower(text)) {
		return false
	}
	for i, r := range text {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		switch {
		case letter, r == '/', r == '_':
		case i > 0 && (r >= '0' && r <= '9' || strings.ContainsRune(".-@*+=", r)):
		case i > 0 && r == ':' && i+1 < len(text) && text[i+1] != ' ':
		case i > 0 && i+1 < len(text) && r == ' ' && text[i+1] != '#' && text[i-1] != ':':
		default:
			return false
		}
	}
	return true
}

// words are texts that YAML readers do not read as texts.
var words = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// Split divides a model into one model for each folder directly below its group, by name.
// The key "" has everything that is in none of them.
func Split(m *model.Model) map[string]*model.Model {
	parts := map[string]*model.Model{}
	for _, k := range model.Kinds {
		if !m.Manages(k) {
			continue
		}
		byPart := map[string][]*model.Resource{"": nil}
		for _, r := range m.Sorted(k) {
			name := part(r)
			byPart[name] = append(byPart[name], r)
		}
		for name, resources := range byPart {
			p := parts[name]
			if p == nil {
				p = model.New(m.Group)
				parts[name] = p
			}
			p.Managed = append(p.Managed, k.Name)
			p.Put(k, resources)
		}
	}
	return parts
}

// part returns the name of the folder below the model's group that contains a resource.
func part(r *model.Resource) string {
	path := r.In
	if r.Kind.Name == model.Folders {
		path = r.Path()
	}
	if r.Kind.Parent != "" && r.Kind.Parent != model.Folders {
		path, _ = model.Split(path)
	}
	name, _, _ := strings.Cut(path, "/")
	if name == model.Root {
		return ""
	}
	return name
}
