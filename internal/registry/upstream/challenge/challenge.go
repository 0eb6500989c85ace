// Package challenge parses the challenges by which registries ask clients to sign in, and the responses that contain
// tokens.
package challenge

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"time"
)

// A Challenge is a WWW-Authenticate header, such as Bearer realm="…",service="…".
type Challenge struct {
	Scheme string // authentication scheme in lower case, such as bearer
	Params map[string]string
}

// Parse parses a WWW-Authenticate header. It leaves out parameters that it cannot read.
func Parse(text string) Challenge {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	c := Challenge{strings.ToLower(scheme), map[string]string{}}
	for rest != "" {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			break
		}
		var value string
		if quoted, found := strings.CutPrefix(after, `"`); found {
			value, rest, _ = strings.Cut(quoted, `"`)
		} else if i := strings.IndexByte(after, ','); i >= 0 {
			value, rest = after[:i], after[i:]
		} else {
			value, rest = after, ""
		}
		c.Params[strings.ToLower(strings.Trim(name, " ,"))] = value
	}
	return c
}

// Realm returns the address where a bearer challenge says that tokens are issued. It returns false if there is none.
func (c Challenge) Realm() (*url.URL, bool) {
	realm, err := url.Parse(c.Params["realm"])
	return realm, c.Scheme == "bearer" && err == nil && realm.Host != "" && realm.User == nil
}

// Address returns the URL at which to request a token for scopes, which are separated by spaces. A token without scopes
// proves only the identity of the caller.
func (c Challenge) Address(realm *url.URL, scope string) string {
	u := *realm
	q := u.Query()
	if service := c.Params["service"]; service != "" {
		q.Set("service", service)
	}
	for i, one := range strings.Fields(scope) {
		if i == 0 {
			q.Del("scope")
		}
		q.Add("scope", one)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// A Token is a token that a realm has issued.
type Token struct {
	Text string
	Life time.Duration
}

// defaultLife is the lifetime of a token without expires_in, according to the specification.
const defaultLife = time.Minute

// ReadToken reads a token from the response of a realm. It reads at most limit bytes.
func ReadToken(body io.Reader, limit int64) (Token, error) {
	var got struct {
		Token       string  `json:"token"`
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"`
	}
	if err := json.NewDecoder(io.LimitReader(body, limit)).Decode(&got); err != nil {
		return Token{}, errors.New("the answer is not JSON")
	}
	t := Token{Text: got.Token, Life: time.Duration(min(got.ExpiresIn, 86400) * float64(time.Second))}
	if t.Text == "" {
		t.Text = got.AccessToken
	}
	if t.Text == "" || strings.ContainsAny(t.Text, "\r\n") {
		return Token{}, errors.New("the answer has no token")
	}
	if t.Life <= 0 {
		t.Life = defaultLife
	}
	return t, nil
}
