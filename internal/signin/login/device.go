package login

import (
	"context"
	"crypto/rand"
	"errors"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

const (
	deviceLife  = 10 * time.Minute // time in which a person must enter the user code
	userCodeLen = 8
	userLetters = "BCDFGHJKLMNPQRSTVWXZ" // no vowels, because they could form words or look like digits
	maxDevices  = 60                     // greatest number of device authorizations per network and time window

	// Greatest numbers of wrong user codes per time window.
	maxCodeGuesses     = 10    // per network, and per person who is signed in
	maxStrangersCodes  = 1_000 // in all browsers together in which nobody is signed in
	tooManyOfStrangers = "Too many wrong codes were entered. Sign in in this browser first, and then enter the code again."
)

func newUserCode() string {
	var b strings.Builder
	for range userCodeLen {
		n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(userLetters)))) // rand.Reader never fails
		b.WriteByte(userLetters[n.Int64()])
	}
	return b.String()
}

func shownUserCode(code string) string {
	if len(code) != userCodeLen {
		return code
	}
	return code[:4] + "-" + code[4:]
}

// readUserCode normalizes a code that a person has typed. It removes all characters that no user code contains.
func readUserCode(text string) string {
	return strings.Map(func(r rune) rune {
		if r = unicode.ToUpper(r); strings.ContainsRune(userLetters, r) {
			return r
		}
		return -1
	}, text)
}

const maxTypedCode = 16 // greatest length in characters

// echoUserCode returns a typed code for showing it again. A complete code is formatted as on
// the device. Any other text is unchanged, so that the person can see the mistake.
func echoUserCode(typed string) string {
	if code := readUserCode(typed); len(code) == userCodeLen {
		return shownUserCode(code)
	}
	letters := []rune(strings.TrimSpace(typed))
	return string(letters[:min(len(letters), maxTypedCode)])
}

// unknownUserCode returns the message for a code that no device has. It shows the normalized
// code.
func unknownUserCode(code string) string {
	if len(code) != userCodeLen {
		return "This is not a whole code: they have eight letters, and no vowels or digits."
	}
	return "No device with the code " + shownUserCode(code) + " waits. Codes are good for ten minutes."
}

// deviceEndpoint is the device authorization endpoint (RFC 8628, section 3.1).
func (s *Service) deviceEndpoint(w http.ResponseWriter, r *http.Request) (any, error) {
	if wait := s.site.Acquire("devices "+input.Network(r), maxDevices); wait > 0 {
		site.RetryAfter(w, wait)
		const text = "too many devices of this network are waiting; try again later"
		return nil, &oauthError{http.StatusTooManyRequests, "slow_down", text}
	}
	client := input.Field(w, r, "client_id")
	if !plainWord.MatchString(client) {
		return nil, badRequest("invalid_request", "client_id is required")
	}
	scopes, ok := deviceScopes(r.PostForm["scope"])
	if !ok {
		return nil, badRequest("invalid_scope", "scope must be uids of groups, separated by spaces")
	}
	f := &flow{Scopes: scopes, Audience: splitAudience(input.Field(w, r, "audience"))}
	if err := s.checkTokenParams(f); err != nil {
		return nil, badRequest("invalid_target", site.PlainText(fault.From(err)))
	}
	created := s.now()
	d := resource.Device{
		UserCode: newUserCode(), Client: client, Agent: input.Agent(r), Address: input.Remote(r),
		Audience: f.Audience, Scopes: f.Scopes,
		CreateTime: created, ExpireTime: created.Add(deviceLife),
	}
	code := rand.Text() + rand.Text()
	if err := s.accounts.AddDevice(r.Context(), signindb.Digest("device "+code), d); err != nil {
		return nil, err
	}
	shown := shownUserCode(d.UserCode)
	return map[string]any{
		"device_code": code, "user_code": shown, "verification_uri": s.site.URL("/device"),
		"verification_uri_complete": s.site.URL("/device?user_code=" + url.QueryEscape(shown)),
		"expires_in":                int(deviceLife.Seconds()), "interval": max(1, int(s.cfg.PollEvery.Seconds())),
	}, nil
}

const maxDeviceScopes = 16 // the same limit as for a sign-in in a browser

// deviceScopes returns the groups to which a device wants its token narrowed. It ignores the scopes of OpenID Connect,
// which many clients send. It returns false if any other scope is not the UID of a group, because a token without that
// scope would allow more than the device requests.
func deviceScopes(lists []string) (groups []string, ok bool) {
	for _, scope := range strings.Fields(strings.Join(lists, " ")) {
		switch scope {
		case "openid", "profile", "email", "offline_access":
			continue
		}
		if _, err := resource.ParseUID("scope", scope); err != nil || len(groups) == maxDeviceScopes {
			return nil, false
		}
		groups = append(groups, scope)
	}
	return groups, true
}

// showDevice shows the form for the user code of a device.
func (s *Service) showDevice(w http.ResponseWriter, r *http.Request) error {
	code := readUserCode(r.URL.Query().Get("user_code"))
	return s.show(w, r, http.StatusOK, "device", nil, &devicePage{Code: shownUserCode(code)})
}

// enterDevice checks the user code of a device and starts a sign-in for the device.
func (s *Service) enterDevice(w http.ResponseWriter, r *http.Request) error {
	typed := input.Field(w, r, "user_code")
	code := readUserCode(typed)
	refuse := func(status int, problem string) error {
		p := &devicePage{Frame: site.Wrong("user_code", problem), Code: echoUserCode(typed)}
		return s.show(w, r, status, "device", nil, p)
	}
	release, wait, problem := s.acquireUserCode(r)
	if wait > 0 {
		site.RetryAfter(w, wait)
		return refuse(http.StatusTooManyRequests, problem)
	}
	d, err := s.accounts.DeviceOf(r.Context(), code)
	if errors.Is(err, fault.NotFound) {
		s.site.Refuse(r, site.RefusalAt(resource.Account{}, resource.ByDevice, resource.RefusedCode))
		return refuse(http.StatusNotFound, unknownUserCode(code))
	}
	if err != nil {
		return site.Titled(cannotBegin, err)
	}
	release()
	return s.start(w, r, &flow{Purpose: forDevice, UserCode: d.UserCode, Client: d.Client})
}

// acquireUserCode counts an attempt to enter a user code. It returns a function that undoes the count, or the time to
// wait and the message for the person. If strangers with many networks guess codes, only people who are signed in can
// enter one, so that the guesses do not stop the devices of these people.
func (s *Service) acquireUserCode(r *http.Request) (release func(), wait time.Duration, problem string) {
	network, shared, limit := "user codes "+input.Network(r), "user codes of strangers", maxStrangersCodes
	n, signedIn := s.site.Session(r)
	if signedIn {
		shared, limit = "user codes of "+string(n.Identity), maxCodeGuesses
	}
	if wait = s.site.Acquire(network, maxCodeGuesses); wait > 0 {
		return nil, wait, site.TooMany(wait)
	}
	if wait = s.site.Acquire(shared, limit); wait == 0 {
		return func() { s.site.Release(network, shared) }, 0, ""
	}
	s.site.Release(network)
	if !signedIn {
		return nil, wait, tooManyOfStrangers
	}
	return nil, wait, site.TooMany(wait)
}

// A deviceApproval describes the person who has approved a device. It is stored until the device polls.
type deviceApproval struct {
	Identity resource.UID       `json:"identity"`
	Act      *resource.Upstream `json:"act"`
	Email    string             `json:"email"`
	Voucher  resource.Voucher   `json:"voucher,omitempty"`
	Home     resource.UID       `json:"home,omitempty"`
	Session  string             `json:"session"` // session of the browser; the approval is void when the session ends
}

func (s *Service) deliverToDevice(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session) error {
	sealed, err := s.seal(deviceApproval{n.Identity, n.Act, n.Email, n.Voucher, n.Home, n.ID})
	if err != nil {
		return err
	}
	if err := s.accounts.DecideDevice(r.Context(), f.UserCode, resource.DeviceAllowed, sealed); err != nil {
		return err
	}
	return s.done(w, r, f, "The device is signed in. You can close this window.")
}

// pollDevice returns the tokens for a device that was approved (RFC 8628, section 3.4).
func (s *Service) pollDevice(w http.ResponseWriter, r *http.Request) (access sts.Token, refresh string, _ error) {
	code := signindb.Digest("device " + input.Field(w, r, "device_code"))
	d, hasty, err := s.accounts.PollDevice(r.Context(), code, s.cfg.PollEvery)
	switch {
	case errors.Is(err, fault.NotFound):
		err = badRequest("expired_token", "the device code is unknown, was used, or has expired")
	case err != nil:
	case d.Client != input.Field(w, r, "client_id"):
		err = badRequest("invalid_grant", "the device code belongs to another client")
	case hasty:
		err = badRequest("slow_down", "poll less often")
	case d.State == resource.DevicePending:
		err = badRequest("authorization_pending", "nobody has decided yet")
	case d.State == resource.DeviceDenied:
		err = badRequest("access_denied", "the sign-in was refused in the browser")
	}
	if err != nil {
		return access, "", err
	}
	out, err := s.issueToDevice(r.Context(), d)
	return out.Token, out.Refresh, err
}

// issueToDevice issues the tokens of a device that was approved. It returns fault.NotFound if
// the session of the approval has ended.
func (s *Service) issueToDevice(ctx context.Context, d resource.Device) (out issuedTokens, _ error) {
	var by deviceApproval
	if err := s.unseal(d.Granted, &by); err != nil {
		return out, err
	}
	approving, err := s.store.Session(ctx, by.Session)
	if err != nil {
		return out, err
	}
	ctx = s.authz.WithSession(ctx, approving)
	f := &flow{Audience: d.Audience, Scopes: d.Scopes, Refresh: true}
	n := resource.Session{Identity: by.Identity, Act: by.Act, Email: by.Email, Voucher: by.Voucher, Home: by.Home}
	return s.issue(ctx, f, n, d.Client+" on a device", d.Address, "")
}
