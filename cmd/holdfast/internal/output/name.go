package output

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A Name is the title and path of a resource, for people. Kind is the server's name for
// its kind.
type Name struct{ Title, Path, Kind string }

// Names returns the names of the resources with these UIDs. It omits resources that the
// caller may not see.
type Names func(uids []string) map[string]Name

// A Called returns the name of a UID, or the UID itself if the name is unknown.
type Called func(uid string) Name

// Named returns a column whose text is computed with the names of UIDs.
func Named[T proto.Message](name string, uids func(T) []string, text func(T, Called) string) Column {
	return Column{
		Name: name,
		uids: func(m protoreflect.Message) []string { return uids(m.Interface().(T)) },
		named: func(m protoreflect.Message, called Called) string {
			return text(m.Interface().(T), called)
		},
	}
}

// NameOf returns a column with the name of the resource whose UID is in a field.
func NameOf(name, path string) Column {
	return refColumn(name, path, func(n Name) string { return n.Title })
}

// PathOf returns a column with the path of the resource whose UID is in a field. Paths
// distinguish resources of the same name.
func PathOf(name, path string) Column {
	c := refColumn(name, path, func(n Name) string { return n.Path })
	c.tail = true
	return c
}

// GroupOf returns a column with the path of the group that contains the resource whose
// UID is in a field.
func GroupOf(name, path string) Column {
	c := PathOf(name, path)
	uids, named := c.uids, c.named
	c.uids = func(m protoreflect.Message) []string {
		groups := uids(m)
		for i, uid := range groups {
			groups[i] = parentOf(uid)
		}
		return groups
	}
	c.named = func(m protoreflect.Message, called Called) string {
		return named(m, func(uid string) Name { return called(parentOf(uid)) })
	}
	return c
}

// parentOf returns the UID of the group that contains a resource, or the UID itself for
// an organization.
func parentOf(uid string) string {
	for i := len(uid) - 1; i > 0; i-- {
		if uid[i] == '/' {
			return uid[:i]
		}
	}
	return uid
}

func refColumn(name, path string, part func(Name) string) Column {
	field := Column{path: path}
	return Column{
		Name: name,
		uids: func(m protoreflect.Message) []string {
			if uid := field.value(m); uid != "" {
				return []string{uid}
			}
			return nil
		},
		named: func(m protoreflect.Message, called Called) string {
			if uid := field.value(m); uid != "" {
				return part(called(uid))
			}
			return ""
		},
	}
}

// A rower converts messages to rows. It looks up the names of all UIDs of a page in one
// call.
type rower struct {
	columns  []Column
	names    Names
	known    map[string]Name
	relative bool // whether times are relative to now
	now      time.Time
}

func (r *rower) rows(page []protoreflect.Message) [][]string {
	r.learn(page)
	rows := make([][]string, len(page))
	for i, m := range page {
		rows[i] = make([]string, len(r.columns))
		for j, c := range r.columns {
			rows[i][j] = r.cell(c, m)
		}
	}
	return rows
}

// learn looks up the UIDs of a page that are not known yet.
func (r *rower) learn(page []protoreflect.Message) {
	var unknown []string
	for _, c := range r.columns {
		if c.uids == nil {
			continue
		}
		for _, m := range page {
			for _, uid := range c.uids(m) {
				if _, ok := r.known[uid]; !ok && uid != "" {
					unknown = append(unknown, uid)
				}
			}
		}
	}
	if len(unknown) == 0 || r.names == nil {
		return
	}
	if r.known == nil {
		r.known = map[string]Name{}
	}
	slices.Sort(unknown)
	for uid, name := range r.names(slices.Compact(unknown)) {
		r.known[uid] = name
	}
}

// called returns the name of a UID, or the UID itself.
func (r *rower) called(uid string) Name {
	n := r.known[uid]
	return Name{cmp.Or(n.Title, uid), cmp.Or(n.Path, uid), n.Kind}
}

func (r *rower) cell(c Column, m protoreflect.Message) string {
	if c.named != nil {
		return c.named(m, r.called)
	}
	if t, ok := c.time(m); ok && r.relative {
		return Relative(t, r.now)
	}
	return c.value(m)
}

// time returns the time in the field of the column, if the field is a time.
func (c Column) time(m protoreflect.Message) (time.Time, bool) {
	if c.text != nil {
		return time.Time{}, false
	}
	m, fd := c.field(m)
	if fd == nil || fd.IsList() || fd.Message() == nil || !m.Has(fd) {
		return time.Time{}, false
	}
	t, ok := m.Get(fd).Message().Interface().(*timestamppb.Timestamp)
	return t.AsTime(), ok
}

// Relative formats a time relative to now, or as a date if it is more than a month away.
func Relative(t, now time.Time) string {
	d := now.Sub(t)
	text := "%s ago"
	if d < 0 {
		d, text = -d, "in %s"
	}
	for _, unit := range []struct {
		limit, one time.Duration
		letter     string
	}{
		{time.Minute, time.Second, "s"}, {time.Hour, time.Minute, "m"}, {48 * time.Hour, time.Hour, "h"},
		{31 * 24 * time.Hour, 24 * time.Hour, "d"},
	} {
		if d < time.Second {
			return "now"
		}
		if d < unit.limit {
			return fmt.Sprintf(text, fmt.Sprint(int64(d/unit.one), unit.letter))
		}
	}
	return t.UTC().Format(time.DateOnly)
}
