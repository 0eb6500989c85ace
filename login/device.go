package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/sts"
)

const (
	deviceLife     = 10 * time.Minute
	userCodeLen    = 8
	userLetters    = "BCDFGHJKLMNPQRSTVWXZ" // no vowels, which could form words or be mistaken for digits
	maxCodeGuesses = 10                     // guesses of user codes, per network and window
	replayWatched  = time.Hour
)

func newUserCode() string {
	var b strings.Builder
	for range userCodeLen {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(userLetters))))
		if err != nil {
			panic(err) // never fails
		}
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

// readUserCode normalizes a code that a person has typed.
func readUserCode(text string) string {
	return strings.Map(func(r rune) rune {
		if r = upper(r); strings.ContainsRune(userLetters, r) {
			return r
		}
		return -1
	}, text)
}

func upper(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r - 'a' + 'A'
	}
	return r
}

// writeOAuthError writes an error response of RFC 6749.
func writeOAuthError(w http.ResponseWriter, status int, code, why string) {
	writeOAuth(w, status, map[string]string{"error": code, "error_description": why})
}

func writeOAuth(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}

// deviceEndpoint is the device authorization endpoint (RFC 8628, section 3.1).
func (s *Service) deviceEndpoint(w http.ResponseWriter, r *http.Request) {
	if wait := s.limits.acquire("devices "+network(r), maxDevices); wait > 0 {
		retryAfter(w, wait)
		writeOAuthError(w, http.StatusTooManyRequests, "slow_down", "too many devices of this address wait")
		return
	}
	client := s.field(w, r, "client_id")
	if !plainWord.MatchString(client) {
		writeOAuthError(w, http.StatusBadRequest, "invalid_request", "client_id is required")
		return
	}
	f := &flow{}
	var ok bool
	if f.Scopes, ok = deviceScopes(r.PostForm["scope"]); !ok {
		writeOAuthError(w, http.StatusBadRequest, "invalid_scope", "scope must be uids of groups, separated by spaces")
		return
	}
	for aud := range strings.SplitSeq(s.field(w, r, "audience"), ",") {
		if aud = strings.TrimSpace(aud); aud != "" {
			f.Audience = append(f.Audience, aud)
		}
	}
	if err := s.checkTokenParams(f); err != nil {
		writeOAuthError(w, http.StatusBadRequest, "invalid_target", plainText(fault.From(err)))
		return
	}
	now := s.now()
	d := resource.Device{
		UserCode: newUserCode(), Client: client, Agent: agent(r), Address: remote(r),
		Audience: f.Audience, Scopes: f.Scopes,
		CreateTime: now, ExpireTime: now.Add(deviceLife),
	}
	code := newID() + newID()
	if err := s.accounts.AddDevice(r.Context(), digest("device "+code), d); err != nil {
		reported := s.report(r, err)
		writeOAuthError(w, reported.Code.HTTPStatus(), "server_error", reported.Message)
		return
	}
	shown := shownUserCode(d.UserCode)
	writeOAuth(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": shown, "verification_uri": s.at("/device"),
		"verification_uri_complete": s.at("/device?user_code=" + url.QueryEscape(shown)),
		"expires_in":                int(deviceLife.Seconds()), "interval": max(1, int(s.cfg.PollEvery.Seconds())),
	})
}

const maxDeviceScopes = 16 // as many as a sign-in in a browser may name

// deviceScopes returns the groups that a device wants its token narrowed to.
// Scopes of OpenID Connect, which clients send by habit, are ignored. Anything
// else that is not a group is an error, because the device would get more than
// it has asked for.
func deviceScopes(lists []string) (all []string, ok bool) {
	for _, scope := range strings.Fields(strings.Join(lists, " ")) {
		switch scope {
		case "openid", "profile", "email", "offline_access":
			continue
		}
		if _, err := resource.ParseUID("scope", scope); err != nil || len(all) == maxDeviceScopes {
			return nil, false
		}
		all = append(all, scope)
	}
	return all, true
}

// showDevice shows the form for the code of a device.
func (s *Service) showDevice(w http.ResponseWriter, r *http.Request) {
	code := readUserCode(r.URL.Query().Get("user_code"))
	s.show(w, r, http.StatusOK, "device", nil, &devicePage{Code: shownUserCode(code)})
}

// enterDevice accepts the code of a device and starts a sign-in for it.
func (s *Service) enterDevice(w http.ResponseWriter, r *http.Request) {
	code := readUserCode(s.field(w, r, "user_code"))
	refuse := func(status int, why string) {
		p := &devicePage{Code: shownUserCode(code)}
		p.Wrong = map[string]string{"user_code": why}
		s.show(w, r, status, "device", nil, p)
	}
	key := "user codes " + network(r)
	if wait := s.limits.acquire(key, maxCodeGuesses); wait > 0 {
		retryAfter(w, wait)
		refuse(http.StatusTooManyRequests, tooMany(wait))
		return
	}
	d, err := s.accounts.DeviceOf(r.Context(), code)
	if errors.Is(err, fault.NotFound) {
		refuse(http.StatusNotFound, "No device with this code waits. Codes are good for ten minutes.")
		return
	}
	if err != nil {
		s.fail(w, r, "This sign-in cannot begin", err)
		return
	}
	s.limits.release(key)
	s.start(w, r, &flow{Purpose: forDevice, UserCode: d.UserCode, Client: d.Client})
}

// A deviceApproval is who has approved a device, stored until the device
// polls.
type deviceApproval struct {
	Identity resource.UID       `json:"identity"`
	Act      *resource.Upstream `json:"act"`
	Email    string             `json:"email"`
	Voucher  resource.Voucher   `json:"voucher,omitempty"`
	Home     resource.UID       `json:"home,omitempty"`
	Session  string             `json:"session"` // session of the browser: if that ends, so does this
}

func (s *Service) deliverToDevice(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session) error {
	sealed, err := s.seal(deviceApproval{n.Identity, n.Act, n.Email, n.Voucher, n.Home, n.ID})
	if err != nil {
		return err
	}
	if err := s.accounts.DecideDevice(r.Context(), f.UserCode, resource.DeviceAllowed, sealed); err != nil {
		return err
	}
	s.deleteFlow(w, f)
	s.show(w, r, http.StatusOK, "done", nil, &donePage{
		Purpose: forDevice, Text: "The device is signed in. You can close this window.",
	})
	return nil
}

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// tokenEndpoint is the token endpoint of OAuth: it exchanges an authorization
// code, a device code or a refresh token.
func (s *Service) tokenEndpoint(w http.ResponseWriter, r *http.Request) {
	switch s.field(w, r, "grant_type") {
	case "authorization_code":
		s.redeemCode(w, r)
	case deviceGrant:
		s.pollDevice(w, r)
	case "refresh_token":
		s.refresh(w, r)
	default:
		writeOAuthError(w, http.StatusBadRequest, "unsupported_grant_type",
			"must be authorization_code, refresh_token or "+deviceGrant)
	}
}

func (s *Service) writeTokens(w http.ResponseWriter, t sts.Token, refresh string) {
	answer := map[string]any{
		"access_token": t.Text, "token_type": "Bearer", "expires_in": int(t.Expiry.Sub(s.cfg.Now()).Seconds()),
	}
	if refresh != "" {
		answer["refresh_token"] = refresh
	}
	writeOAuth(w, http.StatusOK, answer)
}

// redeemCode returns the tokens stored for an authorization code to the client
// that proves with its verifier that it asked for them. Using a code again
// ends the session that it started, because one of the two users has stolen
// it.
func (s *Service) redeemCode(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	code := s.field(w, r, "code")
	bad := func() {
		writeOAuthError(w, http.StatusBadRequest, "invalid_grant",
			"the code is not good, was used before, or is not of this client")
	}
	sealed, err := s.accounts.ConsumeHandoff(ctx, digest("code "+code))
	if errors.Is(err, fault.NotFound) {
		if old, err := s.accounts.Handoff(ctx, digest("used "+code)); err == nil {
			if _, err := s.store.EndSession(ctx, string(old)); err != nil {
				s.logError(r, err)
			}
		}
		bad()
		return
	}
	var out issuedTokens
	if err == nil {
		err = s.unseal(sealed, &out)
	}
	if err == nil && out.Session != "" {
		err = s.accounts.PutHandoff(ctx, digest("used "+code), []byte(out.Session), s.cfg.Now().Add(replayWatched))
	}
	if err != nil {
		s.writeTokenError(w, r, err)
		return
	}
	sum := sha256.Sum256([]byte(s.field(w, r, "code_verifier")))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(challenge), []byte(out.Challenge)) != 1 ||
		s.field(w, r, "redirect_uri") != out.Redirect || s.field(w, r, "client_id") != out.Client {
		if _, err := s.store.EndSession(ctx, out.Session); err != nil {
			s.logError(r, err)
		}
		bad()
		return
	}
	s.writeTokens(w, out.Token, out.Refresh)
}

func (s *Service) writeTokenError(w http.ResponseWriter, r *http.Request, err error) {
	f := s.report(r, err)
	switch f.Code {
	case fault.Unauthenticated, fault.NotFound, fault.PermissionDenied:
		writeOAuthError(w, http.StatusBadRequest, "invalid_grant", f.Message)
	case fault.InvalidArgument:
		writeOAuthError(w, http.StatusBadRequest, "invalid_target", f.Message)
	default:
		writeOAuthError(w, f.Code.HTTPStatus(), "server_error", f.Message)
	}
}

// pollDevice answers a device that asks whether somebody has approved it (RFC
// 8628, section 3.4).
func (s *Service) pollDevice(w http.ResponseWriter, r *http.Request) {
	refuse := func(code, text string) { writeOAuthError(w, http.StatusBadRequest, code, text) }
	code := digest("device " + s.field(w, r, "device_code"))
	d, hasty, err := s.accounts.PollDevice(r.Context(), code, s.cfg.PollEvery)
	switch {
	case errors.Is(err, fault.NotFound):
		refuse("expired_token", "the device code is not known, was used, or has expired")
	case err != nil:
		s.writeTokenError(w, r, err)
	case d.Client != s.field(w, r, "client_id"):
		refuse("invalid_grant", "the device code is of another client")
	case hasty:
		refuse("slow_down", "ask less often")
	case d.State == resource.DevicePending:
		refuse("authorization_pending", "nobody has decided yet")
	case d.State == resource.DeviceDenied:
		refuse("access_denied", "the sign-in was refused in the browser")
	default:
		out, err := s.issueToDevice(r.Context(), d)
		if err != nil {
			s.writeTokenError(w, r, err)
			return
		}
		s.writeTokens(w, out.Token, out.Refresh)
	}
}

// issueToDevice issues the tokens of a device that was approved, unless the
// session it was approved in has ended.
func (s *Service) issueToDevice(ctx context.Context, d resource.Device) (issuedTokens, error) {
	var by deviceApproval
	if err := s.unseal(d.Granted, &by); err != nil {
		return issuedTokens{}, err
	}
	if _, err := s.store.Session(ctx, by.Session); err != nil {
		return issuedTokens{}, err
	}
	f := &flow{Audience: d.Audience, Scopes: d.Scopes, Refresh: true}
	n := resource.Session{Identity: by.Identity, Act: by.Act, Email: by.Email, Voucher: by.Voucher, Home: by.Home}
	return s.issue(ctx, f, n, d.Client+" on a device", d.Address, "")
}

// refresh returns tokens for a refresh token.
func (s *Service) refresh(w http.ResponseWriter, r *http.Request) {
	params := s.tokenParams(&flow{})
	if aud := s.field(w, r, "audience"); aud != "" {
		params.Audience = strings.Split(aud, ",")
	}
	access, next, err := s.sts.Refresh(r.Context(), s.field(w, r, "refresh_token"), params)
	if err != nil {
		s.writeTokenError(w, r, err)
		return
	}
	s.writeTokens(w, access, next.Text)
}
