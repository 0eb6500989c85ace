package output

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A Page shows one complete message: each field that is set on its own line, with the
// names of resources instead of UIDs.
type Page struct {
	Console *Console
	Names   Names
	UIDs    bool // whether references are shown with their UIDs
	IsUID   func(string) bool
	called  Called
	lines   []pageLine
}

type pageLine struct {
	label  string
	values []string
}

// Show prints a message.
func (p *Page) Show(m protoreflect.Message) {
	r := rower{names: p.Names, columns: []Column{{uids: p.references}}}
	r.learn([]protoreflect.Message{m})
	p.called = r.called
	if uid := ownUID(m); uid != "" {
		if path := p.called(uid).Path; path != uid {
			p.lines = append(p.lines, pageLine{"path", []string{path}})
		}
	}
	p.add("", m)
	p.print()
}

// ShowColumns prints the columns of a message, one below the other.
func (p *Page) ShowColumns(columns []Column, m protoreflect.Message) {
	r := rower{names: p.Names, columns: columns}
	for i, text := range r.rows([]protoreflect.Message{m})[0] {
		if text != "" {
			p.lines = append(p.lines, pageLine{words(columns[i].Name), []string{text}})
		}
	}
	p.print()
}

func (p *Page) print() {
	slices.SortStableFunc(p.lines, func(x, y pageLine) int { return rank(x.label) - rank(y.label) })
	width := 0
	for _, l := range p.lines {
		width = max(width, cells(l.label))
	}
	for _, l := range p.lines {
		label := l.label
		for _, value := range l.values {
			pad := strings.Repeat(" ", width-cells(label)+gap)
			fmt.Fprintln(p.Console.Out, p.Console.Paint(Bold, label)+pad+Printable(value))
			label = ""
		}
	}
}

// rank sorts names first and the UID last.
func rank(label string) int {
	if i := slices.Index([]string{"name", "display name", "path"}, label); i >= 0 {
		return i - 10
	}
	if label == "uid" {
		return 1
	}
	return 0
}

func ownUID(m protoreflect.Message) string {
	if fd := m.Descriptor().Fields().ByName("uid"); fd != nil && fd.Kind() == protoreflect.StringKind {
		return m.Get(fd).String()
	}
	return ""
}

// references returns all UIDs in a message.
func (p *Page) references(m protoreflect.Message) (uids []string) {
	for fd, v := range m.Range {
		switch {
		case fd.IsMap():
			uids = append(uids, p.mapReferences(fd, v.Map())...)
		case fd.IsList():
		case fd.Message() != nil:
			uids = append(uids, p.references(v.Message())...)
		case fd.Kind() == protoreflect.StringKind && p.IsUID(v.String()):
			uids = append(uids, v.String())
		}
	}
	return uids
}

func (p *Page) mapReferences(fd protoreflect.FieldDescriptor, m protoreflect.Map) (uids []string) {
	if fd.MapValue().Kind() != protoreflect.StringKind {
		return nil
	}
	for _, v := range m.Range {
		if p.IsUID(v.String()) {
			uids = append(uids, v.String())
		}
	}
	return uids
}

// add adds the lines of a message. The label of a nested message is a prefix of the
// labels of its fields.
func (p *Page) add(prefix string, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		always := fd.Kind() == protoreflect.BoolKind && fd.ContainingOneof() == nil && !fd.IsList()
		if !m.Has(fd) && !always {
			continue
		}
		label := strings.TrimSpace(prefix + " " + words(fd.JSONName()))
		v := m.Get(fd)
		if fd.Message() != nil && !fd.IsList() && !fd.IsMap() {
			p.addMessage(label, v.Message())
			continue
		}
		if fd.Kind() == protoreflect.StringKind && !fd.IsList() && !fd.IsMap() && p.IsUID(v.String()) {
			label = strings.TrimSuffix(label, " uid") // the name of the resource is shown instead of its UID
		}
		if values := p.values(fd, v); len(values) > 0 {
			p.lines = append(p.lines, pageLine{label, values})
		}
	}
}

func (p *Page) addMessage(label string, m protoreflect.Message) {
	switch v := m.Interface().(type) {
	case *timestamppb.Timestamp:
		text := v.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
		if p.Console.Terminal {
			text += " (" + Relative(v.AsTime(), time.Now()) + ")"
		}
		p.lines = append(p.lines, pageLine{label, []string{text}})
		return
	case *durationpb.Duration:
		p.lines = append(p.lines, pageLine{label, []string{v.AsDuration().String()}})
		return
	}
	name := m.Descriptor().Fields().ByName("name")
	// m is a resource inside another message, such as the group in a role binding
	if uid := ownUID(m); uid != "" && name != nil {
		text := m.Get(name).String()
		if known := p.reference(uid); known != uid || text == "" {
			text = known
		}
		p.lines = append(p.lines, pageLine{label, []string{text}})
		return
	}
	p.add(label, m)
}

// values returns the lines of a field.
func (p *Page) values(fd protoreflect.FieldDescriptor, v protoreflect.Value) (lines []string) {
	switch {
	case fd.IsMap():
		for k, value := range v.Map().Range {
			text := strings.Trim(string(appendValue(nil, fd.MapValue(), value)), `"`)
			lines = append(lines, k.String()+" = "+p.reference(text))
		}
		slices.Sort(lines)
		return lines
	case fd.IsList():
		for i := range v.List().Len() {
			if fd.Message() != nil {
				lines = append(lines, string(appendValue(nil, fd, v.List().Get(i))))
				continue
			}
			lines = append(lines, scalarText(fd, v.List().Get(i)))
		}
		return lines
	case fd.Kind() == protoreflect.StringKind && fd.Name() != "uid":
		return strings.Split(p.reference(v.String()), "\n")
	}
	return []string{scalarText(fd, v)}
}

// reference returns the name of the resource if text is a UID, and otherwise text.
func (p *Page) reference(text string) string {
	if !p.IsUID(text) {
		return text
	}
	n := p.called(text)
	name := n.Title
	if strings.Contains(n.Path, "/") {
		name = n.Path
	}
	if p.UIDs && name != text {
		name += " (" + text + ")"
	}
	return name
}
