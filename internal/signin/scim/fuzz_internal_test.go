package scim

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/patch"
)

// FuzzMembers checks that no PATCH request on a group breaks the operations on members, that several operations have
// the same effect in one request as in one request each, and that no operation on members is left for the engine that
// changes other attributes.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		`{"op":"Add","path":"members","value":[{"value":"a"},{"value":"b"}]}`,
		`{"op":"Remove","path":"members","value":[{"value":"a"}]},{"op":"add","path":"Members","value":"b"}`,
		`{"op":"remove","path":"members[value eq \"a\"]"},{"op":"add","value":{"members":[{"value":"a"}],"displayName":"x"}}`,
		`{"op":"replace","path":"members","value":[]},{"op":"remove","path":"members"},{"op":"replace","path":"members"}`,
		`{"op":"add","path":"members","value":[{"value":"a","type":"Group"}]}`,
		`{"op":"add","path":"members.value","value":[[],null,3]}`,
		`{"op":"remove","path":"members[value eq \"a\" or value pr]"}`,
		`{"op":"replace","value":{"MEMBERS":null,"members":{"value":"a"},"members[value eq \"b\"]":1}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(checkMembers)
}

func checkMembers(t *testing.T, text string) {
	t.Helper()
	o, err := document.Parse([]byte(`{"Operations":[` + text + `]}`))
	if err != nil {
		return
	}
	operations, err := patch.Parse(o)
	if err != nil {
		return
	}
	others, whole, err := splitMembers(operations)
	if refusal := (*document.Error)(nil); err != nil && !errors.As(err, &refusal) {
		t.Fatalf("%s: %v", text, err)
	}
	if err != nil {
		return
	}
	for _, op := range others {
		if path, err := filter.ParsePath(op.Path); err == nil && path.Schema == "" &&
			strings.EqualFold(path.Attribute, membersAttribute) {
			t.Fatalf("%s: %+v is left", text, op)
		}
	}
	members := map[string]bool{"a": true, "c": true}
	want := whole.applyTo(members)
	for _, op := range operations {
		_, m, err := splitMembers([]patch.Operation{op})
		if err != nil {
			t.Fatalf("%s: %+v alone: %v", text, op, err)
		}
		members = m.applyTo(members)
	}
	if !maps.Equal(members, want) {
		t.Fatalf("%s: in one request %v, one by one %v", text, want, members)
	}
}

// applyTo returns the members of a group after a change.
func (m memberChange) applyTo(before map[string]bool) map[string]bool {
	after := map[string]bool{}
	if !m.cleared {
		maps.Copy(after, before)
	}
	for member, present := range m.set {
		if delete(after, member); present {
			after[member] = true
		}
	}
	return after
}
