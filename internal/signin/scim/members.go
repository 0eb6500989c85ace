package scim

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/patch"
)

// membersAttribute is the attribute of a group that is stored row by row.
const membersAttribute = "members"

// maxMember is the greatest length of the id of a member in bytes.
const maxMember = 256

// A memberChange is a change of the members of a group.
type memberChange struct {
	cleared bool            // all previous members are removed first
	set     map[string]bool // whether a member is in the group afterwards
}

func (m *memberChange) put(members []string, present bool) {
	if m.set == nil {
		m.set = map[string]bool{}
	}
	for _, member := range members {
		m.set[member] = present
	}
}

func (m *memberChange) clear() { m.cleared, m.set = true, nil }

// empty reports whether nothing changes.
func (m memberChange) empty() bool { return !m.cleared && len(m.set) == 0 }

// named returns the members that the change names, sorted.
func (m memberChange) named() []string { return slices.Sorted(maps.Keys(m.set)) }

// errNested is the refusal of a group as a member.
func errNested() error {
	return document.Bad(document.InvalidValue, "A member is a group. This service does not support groups within groups: "+
		"let the directory send the people of the inner group as members of the outer group.")
}

// readMembers returns the ids in a value of the attribute members: one member or a list, as objects or texts.
func readMembers(value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok && value != nil {
		list = []any{value}
	}
	if len(list) > resource.MaxTeamMembers {
		return nil, &document.Error{Status: http.StatusRequestEntityTooLarge, Type: document.TooMany,
			Detail: "A group has too many members."}
	}
	members := make([]string, 0, len(list))
	for _, v := range list {
		o := filter.AsObject(v)
		member := document.Text(o, "value")
		if member == "" || len(member) > maxMember || !input.Readable(member) {
			return nil, document.Bad(document.InvalidValue, "Each member needs a value: the id of a user, of 1 to %d bytes.",
				maxMember)
		}
		if strings.EqualFold(document.Text(o, "type"), "Group") {
			return nil, errNested()
		}
		members = append(members, memberKey(member))
	}
	return members, nil
}

// memberKey returns the stored form of the id of a member. Ids of users are in lower case, but some directories send
// them back with capitals.
func memberKey(member string) string {
	if lower := strings.ToLower(member); isUserID(lower) {
		return lower
	}
	return member
}

// isUserID reports whether a text has the form of the ids that newUserID returns.
func isUserID(text string) bool {
	if len(text) != 26 {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// splitMembers separates the operations on members from the other operations of a PATCH request on a group.
func splitMembers(operations []patch.Operation) (others []patch.Operation, m memberChange, _ error) {
	for _, op := range operations {
		if op.Path == "" {
			rest, err := m.takeFrom(op)
			if err != nil {
				return nil, m, err
			}
			others = append(others, rest)
			continue
		}
		path, err := filter.ParsePath(op.Path)
		if err != nil {
			return nil, m, err
		}
		if path.Schema != "" || !strings.EqualFold(path.Attribute, membersAttribute) {
			others = append(others, op)
			continue
		}
		if err := m.apply(op, path); err != nil {
			return nil, m, err
		}
	}
	return others, m, nil
}

// takeFrom applies the members in an operation on the whole group, and returns the rest of the operation.
func (m *memberChange) takeFrom(op patch.Operation) (patch.Operation, error) {
	o, ok := op.Value.(document.Object)
	if !ok || op.Op == patch.Remove {
		return op, nil
	}
	rest := document.Object{}
	for name, v := range o {
		path, err := filter.ParsePath(name)
		if err != nil || path.Schema != "" || !strings.EqualFold(path.Attribute, membersAttribute) {
			rest[name] = v
			continue
		}
		if err := m.apply(patch.Operation{Op: op.Op, Path: name, Value: v}, path); err != nil {
			return op, err
		}
	}
	op.Value = rest
	return op, nil
}

// apply applies an operation whose path names members.
func (m *memberChange) apply(op patch.Operation, path filter.Path) error {
	if path.Values != nil {
		member, ok := path.Values.EqualTo("value", "")
		if !ok || path.Sub != "" || op.Op != patch.Remove {
			return document.Bad(document.InvalidPath, `Members are selected with members[value eq "id"], and can only be `+
				"removed in this way.")
		}
		m.put([]string{memberKey(member)}, false)
		return nil
	}
	if path.Sub != "" {
		return document.Bad(document.Mutability, "The parts of a member cannot be changed.")
	}
	if op.Op == patch.Remove && op.Value == nil || op.Op == patch.Replace {
		m.clear()
	}
	if op.Op == patch.Replace && op.Value == nil {
		return nil
	}
	members, err := readMembers(op.Value)
	if err != nil {
		return err
	}
	m.put(members, op.Op != patch.Remove)
	return nil
}
