package login

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	knownCookie      = "hf_known"
	sealedKnown      = "known browser"
	knownLife        = 180 * 24 * time.Hour
	maxKnownAccounts = 4 // accounts that a browser remembers; more people seldom share one
)

// A knownAccount is an account that a browser has signed in to, stored in a
// sealed cookie. It proves nothing else. It gives the browser some attempts of
// its own at the account, so that the guesses of others do not lock its owner
// out.
type knownAccount struct {
	Account resource.UID `json:"account"`
	ID      string       `json:"id"`    // attempts are counted by this id
	Expires int64        `json:"until"` // in seconds

	account resource.Account // set by knownFor
}

// idsOf returns the ids of known accounts, as site.AcquireAttempt takes them.
func idsOf(known []knownAccount) (ids []string) {
	for _, k := range known {
		ids = append(ids, k.ID)
	}
	return ids
}

// knownAccounts returns the accounts that the browser of a request has signed
// in to.
func (s *Service) knownAccounts(r *http.Request) (all []knownAccount) {
	b, ok := s.site.OpenCookie(r, knownCookie, sealedKnown)
	if !ok || json.Unmarshal(b, &all) != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(k knownAccount) bool { return s.cfg.Now().Unix() >= k.Expires })
}

// knownTo returns the browser's entry for an account, if there is one.
func (s *Service) knownTo(r *http.Request, account resource.UID) []knownAccount {
	return slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account != account })
}

// rememberBrowser adds an account that the browser has signed in to. Entries
// for other accounts stay as they are, so that signing in to one account gives
// no new attempts at another.
func (s *Service) rememberBrowser(w http.ResponseWriter, r *http.Request, account resource.UID) {
	others := slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account == account })
	newest := knownAccount{Account: account, ID: rand.Text(), Expires: s.cfg.Now().Add(knownLife).Unix()}
	all := append([]knownAccount{newest}, others...)
	b, err := json.Marshal(all[:min(len(all), maxKnownAccounts)])
	if err != nil {
		return // impossible, and the cookie is optional
	}
	http.SetCookie(w, s.site.SealedCookie(knownCookie, sealedKnown, b, knownLife))
}
