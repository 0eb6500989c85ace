package login

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// welcome returns the address of the page for whoever has joined a group in this
// flow, or "".
func (f *flow) welcome() string {
	if f.Joined == "" {
		return ""
	}
	return "/account/welcome?group=" + url.QueryEscape(string(f.Joined))
}

// showWelcome tells somebody who has joined a group what they may do there, and
// what to do next. It shows the person's own roles only, whatever group the
// address names. Without a group it is the one they were let into last.
func (s *Service) showWelcome(w http.ResponseWriter, r *http.Request, n resource.Session) error {
	held, _, err := s.store.HeldRoles(r.Context(), n.Identity)
	if err != nil {
		return err
	}
	group := resource.UID(r.URL.Query().Get("group"))
	if group == "" && len(held) > 0 {
		newest := slices.MaxFunc(held, func(a, b resource.HeldRole) int { return a.CreateTime.Compare(b.CreateTime) })
		group = newest.Group()
	}
	held = slices.DeleteFunc(held, func(h resource.HeldRole) bool { return !h.Group().Covers(group) })
	if len(held) == 0 {
		return s.redirect(w, r, "/account")
	}
	i, err := s.store.Identity(r.Context(), n.Identity)
	if err != nil {
		return err
	}
	p := &welcomePage{Name: i.Name}
	if p.Roles, err = s.showRoles(r.Context(), held); err != nil {
		return err
	}
	deepest := 0
	for i, h := range held {
		if h.Group().Depth() > held[deepest].Group().Depth() {
			deepest = i
		}
	}
	p.Place = p.Roles[deepest].Place
	p.Commands = s.nextCommands(n.Identity, held[deepest].Group(), p.Place)
	return s.show(w, r, http.StatusOK, "welcome", nil, p)
}

// nextCommands returns what a newcomer runs first, for what they may do in a
// group.
func (s *Service) nextCommands(person, group resource.UID, path string) []string {
	all := []string{"holdfast config set api " + s.cfg.BaseURL, "holdfast auth login"}
	may := func(want resource.Capability) bool { return s.authz.Holds(person, want, group) }
	if may(resource.GroupsList) {
		all = append(all, "holdfast iam tree "+shellWord(path))
	}
	if may(resource.RepoBlobsGet) {
		all = append(all, "holdfast auth configure-docker")
	}
	if may(resource.GroupInvitesCreate) {
		all = append(all, "holdfast iam invites create --role viewer --ttl 7d --parent "+shellWord(path))
	}
	return all
}

// shellWord returns a path as one word of a command: names may have spaces.
func shellWord(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(plainInShell, r) }) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

const plainInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/"

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
