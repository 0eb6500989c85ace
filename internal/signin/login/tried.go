package login

import (
	"crypto/sha256"
	"net/http"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

const (
	triedTracked = 10_000 // e-mail addresses
)

// A target is an account that a password was tried with.
type target struct {
	account resource.UID
	meant   bool // no other account can be meant
}

func newTried() *lru.Cache[triedKey, []target] {
	tried, _ := lru.New[triedKey, []target](triedTracked) // fails only for a size of 0
	return tried
}

// rememberTried remembers which accounts a password is tried with, so that
// their organizations learn of it if it is wrong, and of those that follow.
func (s *Service) rememberTried(in credentials, tried []resource.Account, first int) {
	key := triedKeyOf(in.Organization, in.Email)
	if len(tried) == 0 {
		s.tried.Remove(key)
		return
	}
	var all []target
	for i, a := range tried {
		all = append(all, target{a.UID, len(tried) == 1 || i < first})
	}
	s.tried.Add(key, all)
}

// A triedKey is the digest of an organization and an e-mail address, so that a
// long address takes no more memory than a short one.
type triedKey [sha256.Size]byte

func triedKeyOf(org resource.UID, email string) triedKey {
	return sha256.Sum256([]byte("tried " + string(org) + " " + email))
}

// refusedPassword counts a refused password. Each organization whose account
// it was tried with learns of it. If it is not certain that its account was
// meant, it does not learn from where: otherwise whoever makes accounts with the
// addresses of others would learn where these people are. If there is no such
// account, only the log of the server has it, and the organization that was
// named. What was typed as the address is nowhere: it may be a password.
func (s *Service) refusedPassword(r *http.Request, f *flow, email, reason string) {
	all, _ := s.tried.Get(triedKeyOf(f.Organization, email))
	for _, t := range all {
		v := site.RefusalAt(resource.Account{UID: t.account}, resource.ByPassword, reason)
		if !t.meant {
			v.Hidden = input.Remote(r)
		}
		s.site.Refuse(r, v)
	}
	named := func(t target) bool { return t.account.Root() == f.Organization }
	if len(all) == 0 || f.Organization != "" && !slices.ContainsFunc(all, named) {
		v := site.RefusalAt(resource.Account{}, resource.ByPassword, reason)
		if v.Group = f.Organization; reason == resource.RefusedPassword {
			v.Reason = resource.RefusedUnknown
		}
		s.site.Refuse(r, v)
	}
}
