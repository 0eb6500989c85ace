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
	triedTracked = 10_000 // greatest number of e-mail addresses whose tried accounts are remembered
)

// A target is an account with which a password was tried.
type target struct {
	account resource.UID
	meant   bool // whether the person can have meant no other account
}

func newTried() *lru.Cache[triedKey, []target] {
	tried, _ := lru.New[triedKey, []target](triedTracked) // lru.New fails only for a size of 0
	return tried
}

// rememberTried remembers the accounts with which a password is tried. If the password or
// a later one is refused, refusedPassword records it for their organizations.
func (s *Service) rememberTried(in credentials, tried []resource.Account, first int) {
	key := triedKeyOf(in.Organization, in.Email)
	if len(tried) == 0 {
		s.tried.Remove(key)
		return
	}
	var targets []target
	for i, a := range tried {
		targets = append(targets, target{a.UID, len(tried) == 1 || i < first})
	}
	s.tried.Add(key, targets)
}

// A triedKey is the digest of an organization and an e-mail address, so that a
// long address takes no more memory than a short one.
type triedKey [sha256.Size]byte

func triedKeyOf(org resource.UID, email string) triedKey {
	return sha256.Sum256([]byte("tried " + string(org) + " " + email))
}

// refusedPassword records a refused password for each organization with an account that
// was tried. If the person may have meant another account, the record hides the network
// address. Otherwise somebody could create accounts with the e-mail addresses of other
// people and learn where these people are. If no account was tried, or none in the named
// organization, the refusal is recorded for the named organization and in the log of
// the server. The text that was typed as the e-mail address is never recorded, because
// it may be a password.
func (s *Service) refusedPassword(r *http.Request, f *flow, email, reason string) {
	targets, _ := s.tried.Get(triedKeyOf(f.Organization, email))
	for _, t := range targets {
		v := site.RefusalAt(resource.Account{UID: t.account}, resource.ByPassword, reason)
		if !t.meant {
			v.Hidden = input.Remote(r)
		}
		s.site.Refuse(r, v)
	}
	named := func(t target) bool { return t.account.Root() == f.Organization }
	if len(targets) == 0 || f.Organization != "" && !slices.ContainsFunc(targets, named) {
		v := site.RefusalAt(resource.Account{}, resource.ByPassword, reason)
		if v.Group = f.Organization; reason == resource.RefusedPassword {
			v.Reason = resource.RefusedUnknown
		}
		s.site.Refuse(r, v)
	}
}
