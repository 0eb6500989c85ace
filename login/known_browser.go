package login

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	knownCookie      = "hf_known"
	sealedKnown      = "known browser"
	knownLife        = 180 * 24 * time.Hour
	maxKnownAccounts = 4 // that a browser is known to; more people than that seldom share one
)

// A knownAccount is an account that a browser has signed in to. It is kept in a
// sealed cookie of the browser, which proves nothing but that: with it, the
// browser has a few tries of its own at the account, so that other people's
// guesses do not keep its owner out.
type knownAccount struct {
	Account resource.UID `json:"account"`
	ID      string       `json:"id"`    // of this acquaintance, which tries are counted by
	Expires int64        `json:"until"` // in seconds
}

// knownAccounts returns the accounts that know the browser of a request.
func (s *Service) knownAccounts(r *http.Request) (all []knownAccount) {
	c, err := r.Cookie(s.cookieName(knownCookie))
	if err != nil {
		return nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return nil
	}
	b, err := s.cfg.Key.Open(sealedKnown, sealed)
	if err != nil || json.Unmarshal(b, &all) != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(k knownAccount) bool { return s.cfg.Now().Unix() >= k.Expires })
}

// knownTo returns the browser's acquaintance with an account, if there is one.
func (s *Service) knownTo(r *http.Request, account resource.UID) []knownAccount {
	return slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account != account })
}

// rememberBrowser makes the browser of a request known to an account that it has signed
// in to. Its acquaintance with others stays as it is: signing in to one account
// gives no new tries at another.
func (s *Service) rememberBrowser(w http.ResponseWriter, r *http.Request, account resource.UID) {
	others := slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account == account })
	all := append([]knownAccount{{account, newID(), s.cfg.Now().Add(knownLife).Unix()}}, others...)
	b, err := json.Marshal(all[:min(len(all), maxKnownAccounts)])
	if err != nil {
		return // it cannot fail; and without it one can sign in as well
	}
	http.SetCookie(w, s.cookie(knownCookie, base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(sealedKnown, b)), knownLife))
}
