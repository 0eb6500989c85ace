package login

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// An oauthError is an error response of RFC 6749.
type oauthError struct {
	status     int
	code, text string
}

func (e *oauthError) Error() string { return e.text }

func badRequest(code, text string) error { return &oauthError{http.StatusBadRequest, code, text} }

// handleOAuth returns a handler for an OAuth endpoint. It writes the result of h, or its
// error.
func (s *Service) handleOAuth(h func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		answer, err := h(w, r)
		if err != nil {
			e := s.toOAuth(r, err)
			status, answer = e.status, map[string]string{"error": e.code, "error_description": e.text}
		}
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Cache-Control", "no-store")
		header.Set("Pragma", "no-cache")
		header.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // this fails only if the client has gone
	}
}

// toOAuth converts an error to an OAuth error.
func (s *Service) toOAuth(r *http.Request, err error) *oauthError {
	if e, ok := errors.AsType[*oauthError](err); ok {
		return e
	}
	f := s.site.Report(r, err)
	switch f.Code {
	case fault.Unauthenticated, fault.NotFound, fault.PermissionDenied:
		return &oauthError{http.StatusBadRequest, "invalid_grant", f.Message}
	case fault.InvalidArgument:
		return &oauthError{http.StatusBadRequest, "invalid_target", f.Message}
	}
	return &oauthError{f.Code.HTTPStatus(), "server_error", f.Message}
}

// replayWatched is how long a second use of an authorization code is detected.
const replayWatched = time.Hour

// deviceGrant is the grant type of RFC 8628.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// tokenEndpoint is the OAuth token endpoint. It exchanges an authorization code, a device
// code or a refresh token for tokens.
func (s *Service) tokenEndpoint(w http.ResponseWriter, r *http.Request) (any, error) {
	var access sts.Token
	var refresh string
	var err error
	switch input.Field(w, r, "grant_type") {
	case "authorization_code":
		access, refresh, err = s.redeemCode(w, r)
	case deviceGrant:
		access, refresh, err = s.pollDevice(w, r)
	case "refresh_token":
		access, refresh, err = s.refresh(w, r)
	default:
		err = badRequest("unsupported_grant_type", "must be authorization_code, refresh_token or "+deviceGrant)
	}
	answer := map[string]any{
		"access_token": access.Text, "token_type": "Bearer",
		"expires_in": int(access.Expiry.Sub(s.cfg.Now()).Seconds()),
	}
	if refresh != "" {
		answer["refresh_token"] = refresh
	}
	return answer, err
}

// redeemCode returns the tokens for an authorization code. The client must prove with its
// PKCE verifier that it has requested them. Using a code again ends the session of the
// tokens, because one of the two users has stolen the code.
func (s *Service) redeemCode(w http.ResponseWriter, r *http.Request) (access sts.Token, refresh string, _ error) {
	ctx := r.Context()
	code := input.Field(w, r, "code")
	bad := badRequest("invalid_grant", "the code is not valid, was used before, or belongs to another client")
	sealed, err := s.accounts.ConsumeHandoff(ctx, signindb.Digest("code "+code))
	if errors.Is(err, fault.NotFound) {
		if old, err := s.accounts.Handoff(ctx, signindb.Digest("used "+code)); err == nil {
			s.endSession(r, string(old))
		}
		return access, "", bad
	}
	var out issuedTokens
	if err == nil {
		err = s.unseal(sealed, &out)
	}
	if err == nil && out.Session != "" {
		err = s.accounts.PutHandoff(ctx, signindb.Digest("used "+code), []byte(out.Session), s.cfg.Now().Add(replayWatched))
	}
	if err != nil {
		return access, "", err
	}
	challenge := base64.RawURLEncoding.EncodeToString(signindb.Digest(input.Field(w, r, "code_verifier")))
	if subtle.ConstantTimeCompare([]byte(challenge), []byte(out.Challenge)) != 1 ||
		input.Field(w, r, "redirect_uri") != out.Redirect || input.Field(w, r, "client_id") != out.Client {
		s.endSession(r, out.Session)
		return access, "", bad
	}
	return out.Token, out.Refresh, nil
}

// endSession ends a session whose tokens may have been stolen.
func (s *Service) endSession(r *http.Request, id string) {
	if _, err := s.store.EndSession(r.Context(), id); err != nil {
		s.site.LogError(r, err)
	}
}

// refresh exchanges a refresh token for tokens.
func (s *Service) refresh(w http.ResponseWriter, r *http.Request) (access sts.Token, refresh string, _ error) {
	params := s.tokenParams(&flow{})
	if aud := input.Field(w, r, "audience"); aud != "" {
		params.Audience = strings.Split(aud, ",")
	}
	access, next, err := s.sts.Refresh(r.Context(), input.Field(w, r, "refresh_token"), params)
	return access, next.Text, err
}
