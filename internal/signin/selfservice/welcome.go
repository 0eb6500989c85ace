package selfservice

import (
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// showWelcome shows a new member of a group their roles there and the next commands to run. It shows only roles that
// the person holds, whatever group the address names. If the address names no group, it shows the group of the person's
// newest role.
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
		return site.Redirect(w, r, "/account")
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
	return s.site.Show(w, r, http.StatusOK, "welcome", p)
}

// nextCommands returns the first commands for a new member of a group, depending on
// their permissions there.
func (s *Service) nextCommands(person, group resource.UID, path string) []string {
	commands := []string{"holdfast config set api " + s.baseURL, "holdfast auth login"}
	may := func(want resource.Capability) bool { return s.authz.Holds(person, want, group) }
	if may(resource.GroupsList) {
		commands = append(commands, "holdfast iam tree "+shellWord(path))
	}
	if may(resource.RepoBlobsGet) {
		commands = append(commands, "holdfast auth configure-docker")
	}
	if may(resource.GroupInvitesCreate) {
		commands = append(commands, "holdfast iam invites create --role viewer --ttl 7d --parent "+shellWord(path))
	}
	return commands
}

// shellWord quotes a path for the shell if necessary, because names may contain spaces.
func shellWord(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(plainInShell, r) }) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

const plainInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/"
