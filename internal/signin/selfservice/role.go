package selfservice

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// heldRoles describes the roles of a person, and returns their total number. It
// describes only the first roles if there are many.
func (s *Service) heldRoles(ctx context.Context, person resource.UID) ([]shownRole, int, error) {
	held, total, err := s.store.HeldRoles(ctx, person)
	if err != nil {
		return nil, 0, err
	}
	shown, err := s.showRoles(ctx, held)
	return shown, total, err
}

// showRoles describes roles of a person. It shows the names of all parent groups, which
// a person with a role in a group may know.
func (s *Service) showRoles(ctx context.Context, held []resource.HeldRole) (shown []shownRole, _ error) {
	var groups []resource.UID
	for _, h := range held {
		for _, uid := range append(h.Group().Ancestors(), h.Group()) {
			if !slices.Contains(groups, uid) {
				groups = append(groups, uid)
			}
		}
	}
	names, err := s.store.NamesOfGroups(ctx, groups)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		var path []string
		for d := 1; d <= h.Group().Depth(); d++ {
			path = append(path, names[h.Group().Ancestor(d)])
		}
		shown = append(shown, shownRole{
			Name: h.RoleInfo.Name, Place: strings.Join(path, "/"), May: mayDo(h), Source: sourceOf(h), Since: h.CreateTime,
		})
	}
	return shown, nil
}

const capabilitiesShown = 8

// mayDo returns the description of a role, or its first capabilities if it has no
// description.
func mayDo(h resource.HeldRole) string {
	if h.RoleInfo.Description != "" {
		return h.RoleInfo.Description
	}
	var names []string
	capabilities := h.Capabilities.All()
	for _, c := range capabilities[:min(len(capabilities), capabilitiesShown)] {
		names = append(names, c.String())
	}
	if hidden := len(capabilities) - len(names); hidden > 0 {
		names = append(names, "and "+strconv.Itoa(hidden)+" more")
	}
	return strings.Join(names, ", ")
}

// sourceOf describes how a person got a role.
func sourceOf(h resource.HeldRole) string {
	switch {
	case h.ExternalGroup != "":
		return "From your group " + h.ExternalGroup + " at " + h.Provider
	case h.Mapped:
		return "From a group that you have at " + h.Provider
	case h.ByInvite:
		return "By an invite"
	case h.Provider != "":
		return "What " + h.Provider + " gives to newcomers"
	case !h.Joined:
		return "Given by somebody in an organization that you have not joined"
	}
	return "Given to you there"
}
