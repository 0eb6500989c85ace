package events

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
)

func entryType(e *auditpb.Entry) string            { return shortType(e.GetType()) }
func attemptedType(a *deliveriespb.Attempt) string { return shortType(a.GetType()) }

func deliveredType(d *deliveriespb.Delivery) string { return shortType(d.GetType()) }

// shortType returns the type of an event in the form that --type accepts: without the
// prefix and version that all types of a server have.
func shortType(t string) string {
	for _, prefix := range []string{".api.", ".registry."} {
		if _, rest, ok := strings.Cut(t, prefix); ok {
			return strings.TrimSuffix(rest, ".v1")
		}
	}
	return t
}

// actorColumn returns a column with the identity that made a change: its name, or the
// subject of its credential.
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

// subjectColumn returns a column with the changed resource: its path, or a description
// from the entry.
func subjectColumn() output.Column {
	return output.Named("subject", subjectUIDs, func(e *auditpb.Entry, called output.Called) string {
		if path := called(e.GetSubject()).Path; path != e.GetSubject() {
			return path
		}
		return cmp.Or(describe(stateOf(e), called), e.GetSubject())
	}).InCSV("subject")
}

// stateOf returns the state of a resource after the change, or before it if it was
// deleted.
func stateOf(e *auditpb.Entry) *structpb.Struct {
	if e.GetAfter() != nil {
		return e.GetAfter()
	}
	return e.GetBefore()
}

// subjectUIDs returns the UIDs whose names describe a subject.
func subjectUIDs(e *auditpb.Entry) []string {
	uids := []string{e.GetSubject()}
	for _, state := range append(items(stateOf(e)), stateOf(e)) {
		identity, role := bound(state)
		uids = append(uids, identity, role, text(state, "group", "uid"))
	}
	return uids
}

// describe returns a short description of a state: an identity and its role, or a name.
func describe(state *structpb.Struct, called output.Called) string {
	if states := items(state); len(states) > 0 {
		var words []string
		for _, item := range states {
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

// items returns the state of each resource, if a change affects several resources.
func items(state *structpb.Struct) (states []*structpb.Struct) {
	for _, v := range state.GetFields()["items"].GetListValue().GetValues() {
		if s := v.GetStructValue(); s != nil {
			states = append(states, s)
		}
	}
	return states
}

// text returns the string at a path of fields, or "".
func text(state *structpb.Struct, path ...string) string {
	v := structpb.NewStructValue(state)
	for _, name := range path {
		v = v.GetStructValue().GetFields()[name]
	}
	return v.GetStringValue()
}
