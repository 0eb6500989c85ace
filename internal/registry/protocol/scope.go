package protocol

import (
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// The actions of a scope, in the order in which responses list them.
var actions = []string{"pull", "push", "delete"}

// catalogScope is the scope for the list of repos.
var catalogScope = resource.RegistryScope{Type: "registry", Name: "catalog", Actions: []string{"*"}}

const (
	maxScopes    = 64      // greatest number of scopes in a token
	maxScopeText = 4 << 10 // greatest length of all scopes, in bytes; clients send the token in a header
)

// parseScopes returns the scopes that a client requests. Each text contains scopes that are
// separated by spaces. It ignores scopes of unknown types and unknown actions, because a
// token without them allows less. It returns an error if there are too many scopes.
func parseScopes(texts []string) ([]resource.RegistryScope, error) {
	text := strings.Join(texts, " ")
	words := strings.Fields(text)
	if len(text) > maxScopeText || len(words) > maxScopes {
		return nil, oci.NewProblem(http.StatusBadRequest, oci.Unsupported, "too many scopes are requested")
	}
	scopes := []resource.RegistryScope{}
	for _, word := range words {
		if s := parseScope(word); len(s.Actions) > 0 {
			scopes = addScope(scopes, s)
		}
	}
	return scopes, nil
}

// parseScope parses a scope such as repository:acme/app:pull,push. The result has no actions
// if the scope is unknown.
func parseScope(text string) (s resource.RegistryScope) {
	kind, rest, _ := strings.Cut(text, ":")
	end := strings.LastIndexByte(rest, ':')
	if end < 0 {
		return s
	}
	kind, _, _ = strings.Cut(kind, "(") // a class of repos may follow in parentheses
	s.Type, s.Name = kind, rest[:end]
	asked := strings.Split(rest[end+1:], ",")
	switch {
	case kind == catalogScope.Type && s.Name == catalogScope.Name && slices.Contains(asked, "*"):
		s.Actions = catalogScope.Actions
	case kind == "repository" && oci.ValidName(s.Name) && slices.Contains(asked, "*"):
		s.Actions = actions
	case kind == "repository" && oci.ValidName(s.Name):
		s.Actions = only(actions, asked)
	}
	return s
}

// only returns the elements of list that are in other, too.
func only(list, other []string) (both []string) {
	for _, a := range list {
		if slices.Contains(other, a) {
			both = append(both, a)
		}
	}
	return both
}

// addScope adds a scope to a list in which each resource occurs once.
func addScope(list []resource.RegistryScope, s resource.RegistryScope) []resource.RegistryScope {
	for i, have := range list {
		if have.Type == s.Type && have.Name == s.Name {
			list[i].Actions = only(slices.Concat(actions, catalogScope.Actions), slices.Concat(have.Actions, s.Actions))
			return list
		}
	}
	return append(list, s)
}

// narrowScopes returns the part of the requested scopes that a login allows. have is the
// narrowing of the token with which the client logs in. A client that logs in with a narrow
// token and requests no scope gets the same narrowing.
func narrowScopes(have, asked []resource.RegistryScope) []resource.RegistryScope {
	if have == nil {
		return asked
	}
	if len(asked) == 0 {
		return have
	}
	left := []resource.RegistryScope{}
	for _, a := range asked {
		for _, h := range have {
			if a.Type != h.Type || a.Name != h.Name {
				continue
			}
			left = append(left, resource.RegistryScope{Type: a.Type, Name: a.Name, Actions: only(a.Actions, h.Actions)})
		}
	}
	return left
}

// formatScopes returns scopes as a client requests them, without those that have no action.
func formatScopes(scopes []resource.RegistryScope) string {
	texts := make([]string, 0, len(scopes))
	for _, s := range scopes {
		if len(s.Actions) == 0 {
			continue
		}
		texts = append(texts, s.Type+":"+s.Name+":"+strings.Join(s.Actions, ","))
	}
	return strings.Join(texts, " ")
}

// inScope reports whether the token of a caller allows an action on a resource. It says
// nothing about the capabilities of the caller.
func inScope(c authz.Caller, kind, name, action string) bool {
	return c.Registry == nil || slices.ContainsFunc(c.Registry, func(s resource.RegistryScope) bool {
		return s.Type == kind && s.Name == name && slices.Contains(s.Actions, action)
	})
}

// allows reports whether the token of a caller allows a request. It is asked before the target is looked up, so that
// the token reveals nothing about repos that it does not name.
func allows(c authz.Caller, t target, e endpoint) bool {
	switch {
	case t.name != "":
		return inScope(c, "repository", t.name, actionOf(e.needs))
	case t.kind == "catalog":
		return inScope(c, catalogScope.Type, catalogScope.Name, "*")
	}
	return true
}

// insufficientScope is the error code of RFC 6750 for a valid token that does not allow a request.
const insufficientScope = "insufficient_scope"

func outOfScope() error {
	return fault.New(fault.Unauthenticated, "Unauthenticated: the token was requested for other scopes")
}

// scopesOf returns the scopes that a client should request for a target.
func scopesOf(t target, needs []resource.Capability) []resource.RegistryScope {
	switch {
	case t.name != "":
		s := resource.RegistryScope{Type: "repository", Name: t.name, Actions: []string{actionOf(needs)}}
		if s.Actions[0] == "push" {
			s.Actions = []string{"pull", "push"}
		}
		return []resource.RegistryScope{s}
	case t.kind == "catalog":
		return []resource.RegistryScope{catalogScope}
	}
	return nil
}

// actionOf returns the action that a request needs. needs are the capabilities of its
// endpoint; the deletion of a manifest or tag checks its capabilities itself.
func actionOf(needs []resource.Capability) string {
	switch {
	case slices.Contains(needs, resource.ManifestCreate):
		return "push"
	case slices.Contains(needs, resource.ManifestDelete), needs == nil:
		return "delete"
	}
	return "pull"
}
