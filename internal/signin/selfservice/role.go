package selfservice

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// heldRoles describes the roles of a person, and returns how many there are.
func (s *Service) heldRoles(ctx context.Context, person resource.UID) ([]shownRole, int, error) {
	held, total, err := s.store.HeldRoles(ctx, person)
	if err != nil {
		return nil, 0, err
	}
	shown, err := s.showRoles(ctx, held)
	return shown, total, err
}

// showRoles describes roles that a person holds. The names above a group in which
// somebody has a role are no secret to them.
func (s *Service) showRoles(ctx context.Context, held []resource.HeldRole) (all []shownRole, _ error) {
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
		all = append(all, shownRole{
			Name: h.RoleInfo.Name, Place: strings.Join(path, "/"), May: mayDo(h), Source: sourceOf(h), Since: h.CreateTime,
		})
	}
	return all, nil
}

const capabilitiesShown = 8

// mayDo describes what a role allows: in its own words, or else by its
// capabilities.
func mayDo(h resource.HeldRole) string {
	if h.RoleInfo.Description != "" {
		return h.RoleInfo.Description
	}
	var names []string
	all := h.Capabilities.All()
	for _, c := range all[:min(len(all), capabilitiesShown)] {
		names = append(names, c.String())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, "and "+strconv.Itoa(more)+" more")
	}
	return strings.Join(names, ", ")
}

// sourceOf describes where a role comes from.
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
