package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// A deviceGrant is the issuer's response to a device authorization request (RFC 8628).
type deviceGrant struct {
	Code     string `json:"device_code"`
	UserCode string `json:"user_code"`
	Address  string `json:"verification_uri"`
	Complete string `json:"verification_uri_complete"`
	Expires  int    `json:"expires_in"` // lifetime of the codes, in seconds
	Interval int    `json:"interval"`   // polling interval, in seconds
}

// signInDevice signs in a person who enters a short code in a browser anywhere.
func (a *Agent) signInDevice(ctx context.Context, issuer string, p Person) (tokens, error) {
	var g deviceGrant
	form := url.Values{"client_id": {clientID}, "audience": {p.audience}}
	if err := a.askIssuer(ctx, http.MethodPost, issuer+"/oauth/device_authorization", form, &g); err != nil {
		return tokens{}, err
	}
	if g.Code == "" || g.UserCode == "" || holdfast.CheckAddress(originOf(g.Address)) != nil {
		return tokens{}, errors.New("the issuer's answer has no code")
	}
	a.Note("open %s in a browser and enter the code %s", g.Address, g.UserCode)
	ctx, cancel := context.WithTimeoutCause(ctx, min(seconds(g.Expires), signInTimeout), errNobody)
	defer cancel()
	return a.pollDevice(ctx, issuer, g)
}

var errNobody = problem.New(problem.ExitUnauthenticated, "nobody has signed in")

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// pollDevice polls the issuer, at its interval, until the person has answered.
func (a *Agent) pollDevice(ctx context.Context, issuer string, g deviceGrant) (tokens, error) {
	every := max(seconds(g.Interval), time.Second)
	for {
		if err := pause(ctx, every); err != nil {
			return tokens{}, err
		}
		t, err := a.grant(ctx, issuer, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"},
			"device_code": {g.Code}, "client_id": {clientID}})
		refused, ok := errors.AsType[*oauthError](err)
		switch {
		case err == nil:
			return t, nil
		case ok && refused.Code == "authorization_pending":
		case ok && refused.Code == "slow_down":
			every += 5 * time.Second
		case ok:
			return tokens{}, notSignedIn(refused.Error(), "")
		case ctx.Err() != nil:
			return tokens{}, context.Cause(ctx)
		case isUnreachable(err): // polls again, because the network may come back
		default:
			return tokens{}, err
		}
	}
}

func isUnreachable(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.Code == problem.ExitUnreachable
}

// pause waits for d. If ctx ends first, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// originOf returns the scheme and host of an address.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
