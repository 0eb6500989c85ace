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
	maxKnownAccounts = 4 // greatest number of known accounts; more people seldom share a browser
)

// A knownAccount is an account to which a browser has signed in. It is stored in a
// sealed cookie. It does not authenticate anybody. It gives the browser additional
// attempts at the account, so that the guesses of an attacker do not lock out the
// owner.
type knownAccount struct {
	Account resource.UID `json:"account"`
	ID      string       `json:"id"`    // key of the counter of attempts
	Expires int64        `json:"until"` // in seconds since 1970

	account resource.Account // the stored account; set by knownFor
}

// idsOf returns the ids of known accounts for site.AcquireAttempt.
func idsOf(known []knownAccount) (ids []string) {
	for _, k := range known {
		ids = append(ids, k.ID)
	}
	return ids
}

// knownAccounts returns the accounts to which the browser of a request has signed in.
func (s *Service) knownAccounts(r *http.Request) (known []knownAccount) {
	b, ok := s.site.OpenCookie(r, knownCookie, sealedKnown)
	if !ok || json.Unmarshal(b, &known) != nil {
		return nil
	}
	return slices.DeleteFunc(known, func(k knownAccount) bool { return s.cfg.Now().Unix() >= k.Expires })
}

// knownTo returns the known accounts of the browser that are the given account: one or none.
func (s *Service) knownTo(r *http.Request, account resource.UID) []knownAccount {
	return slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account != account })
}

// rememberBrowser adds an account to the known accounts of the browser. It does not
// change the entries of other accounts, so that signing in to one account gives no new
// attempts at another.
func (s *Service) rememberBrowser(w http.ResponseWriter, r *http.Request, account resource.UID) {
	older := slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account == account })
	newest := knownAccount{Account: account, ID: rand.Text(), Expires: s.cfg.Now().Add(knownLife).Unix()}
	known := append([]knownAccount{newest}, older...)
	b, err := json.Marshal(known[:min(len(known), maxKnownAccounts)])
	if err != nil {
		return // cannot happen; the cookie is optional in any case
	}
	http.SetCookie(w, s.site.SealedCookie(knownCookie, sealedKnown, b, knownLife))
}
