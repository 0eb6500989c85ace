package events

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
)

func entryType(e *auditpb.Entry) string             { return shortType(e.GetType()) }
func deliveredType(d *deliveriespb.Delivery) string { return shortType(d.GetType()) }

// shortType returns the type of an event as --type takes it, without the prefix and version
// that all types of a server have.
func shortType(t string) string {
	for _, prefix := range []string{".api.", ".registry."} {
		if _, rest, ok := strings.Cut(t, prefix); ok {
			return strings.TrimSuffix(rest, ".v1")
		}
	}
	return t
}

// actorColumn shows who made a change: by name, or as the issuer of their credential calls them.
func actorColumn() output.Column {
	uids := func(e *auditpb.Entry) []string { return []string{e.GetActor().GetUid()} }
	return output.Named("by", uids, func(e *auditpb.Entry, called output.Called) string {
		actor := e.GetActor()
		if name := called(actor.GetUid()).Title; name != actor.GetUid() {
			return name
		}
		return cmp.Or(actor.GetSubject(), actor.GetUid())
	}).InCSV("actor.subject")
}

// subjectColumn shows what was changed: its path, or what the entry tells of it.
func subjectColumn() output.Column {
	return output.Named("subject", subjectUIDs, func(e *auditpb.Entry, called output.Called) string {
		if path := called(e.GetSubject()).Path; path != e.GetSubject() {
			return path
		}
		return cmp.Or(describe(stateOf(e), called), e.GetSubject())
	}).InCSV("subject")
}

// stateOf returns what was changed as it is since, or as it was.
func stateOf(e *auditpb.Entry) *structpb.Struct {
	if e.GetAfter() != nil {
		return e.GetAfter()
	}
	return e.GetBefore()
}

// subjectUIDs returns the uids whose names describe a subject.
func subjectUIDs(e *auditpb.Entry) []string {
	all := []string{e.GetSubject()}
	for _, state := range append(items(stateOf(e)), stateOf(e)) {
		identity, role := bound(state)
		all = append(all, identity, role, text(state, "group", "uid"))
	}
	return all
}

// describe tells a state in a few words: who got which role, or its name.
func describe(state *structpb.Struct, called output.Called) string {
	if all := items(state); len(all) > 0 {
		var words []string
		for _, item := range all {
			words = append(words, describe(item, called))
		}
		return strings.Join(words, ", ")
	}
	identity, role := bound(state)
	switch {
	case identity != "" && role != "":
		words := called(identity).Title + " → " + called(role).Title
		if group := text(state, "group", "uid"); group != "" {
			words += " on " + called(group).Path
		}
		return words
	case role != "" && text(state, "externalGroupId") != "":
		return text(state, "externalGroupId") + " → " + called(role).Title
	}
	return cmp.Or(text(state, "email"), text(state, "name"), text(state, "sink"))
}

// bound returns the identity and the role of a binding, a mapping or an invite.
func bound(state *structpb.Struct) (identity, role string) {
	return cmp.Or(text(state, "identity", "uid"), text(state, "identityUid")),
		cmp.Or(text(state, "role", "uid"), text(state, "roleUid"))
}

// items returns the states of a change of several.
func items(state *structpb.Struct) (all []*structpb.Struct) {
	for _, v := range state.GetFields()["items"].GetListValue().GetValues() {
		if s := v.GetStructValue(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// text returns the text at a path of fields, or "".
func text(state *structpb.Struct, path ...string) string {
	v := structpb.NewStructValue(state)
	for _, name := range path {
		v = v.GetStructValue().GetFields()[name]
	}
	return v.GetStringValue()
}
