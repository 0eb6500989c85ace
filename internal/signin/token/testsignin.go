package token

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	testSignInPath = "/authorize"
	testCodeLife   = time.Minute
	maxTestCodes   = 1000
	maxTestField   = 1024 // longest field of the sign-in page in bytes
)

//go:embed testsignin.html
var testSignInHTML string

var testSignInPage = template.Must(template.New("sign-in").Parse(testSignInHTML))

// A testGrant is what a code of the test issuer can be exchanged for.
type testGrant struct {
	client, redirect, challenge string
	claims                      map[string]any
	expires                     time.Time
}

// testCodes are the codes that were not exchanged yet. They are safe for concurrent use.
type testCodes struct {
	mu     sync.Mutex
	grants map[string]testGrant
}

// add returns a new code for a grant. It forgets expired codes, and all codes if there are too many.
func (c *testCodes) add(g testGrant, now time.Time) (code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old, v := range c.grants {
		if !now.Before(v.expires) {
			delete(c.grants, old)
		}
	}
	if c.grants == nil || len(c.grants) >= maxTestCodes {
		c.grants = map[string]testGrant{}
	}
	code = rand.Text()
	c.grants[code] = g
	return code
}

// take returns the grant of a code and forgets the code.
func (c *testCodes) take(code string, now time.Time) (g testGrant, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok = c.grants[code]
	delete(c.grants, code)
	return g, ok && now.Before(g.expires)
}

// testPerson are the fields of the sign-in page.
type testPerson struct{ Subject, Name, Email, Verified, Groups string }

// showSignIn shows a page on which anybody can sign in as anybody.
func (i *TestIssuer) showSignIn(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if why := i.signInProblem(q); why != "" {
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	i.writeSignIn(w, http.StatusOK, "", testPerson{
		Subject: "ann", Name: "Ann Example", Email: "ann@example.com", Verified: "true",
	}, q)
}

func (i *TestIssuer) writeSignIn(w http.ResponseWriter, status int, problem string, p testPerson, q url.Values) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_ = testSignInPage.Execute(w, map[string]any{ // this fails only if the client has gone
		"Issuer": i.url, "Client": q.Get("client_id"), "Action": i.url + testSignInPath + "?" + q.Encode(),
		"Person": p, "Problem": problem,
	})
}

// signInProblem returns why an authorization request cannot be answered, or "". Answers are sent only to the server
// that runs the issuer, and to this machine.
func (i *TestIssuer) signInProblem(q url.Values) string {
	issuer, err := url.Parse(i.url)
	if err != nil {
		return "the address of the issuer is wrong"
	}
	to, err := url.Parse(q.Get("redirect_uri"))
	loopback := err == nil && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, to.Hostname())
	switch {
	case q.Get("client_id") == "" || len(q.Encode()) > 8*maxTestField:
		return "client_id is required"
	case err != nil || to.Scheme != "http" && to.Scheme != "https" || to.User != nil ||
		to.Host != issuer.Host && !loopback:
		return "redirect_uri must be an address of this server or of this machine"
	case q.Get("response_type") != "code":
		return "response_type must be code"
	case q.Get("code_challenge") != "" && q.Get("code_challenge_method") != "S256":
		return "code_challenge_method must be S256"
	}
	return ""
}

// signIn answers an authorization request with a code for the claims that were typed.
func (i *TestIssuer) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxTestClaims)
	q := r.URL.Query()
	if why := i.signInProblem(q); why != "" {
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	p := testPerson{
		r.PostFormValue("sub"), r.PostFormValue("name"), r.PostFormValue("email"), r.PostFormValue("email_verified"),
		r.PostFormValue("groups"),
	}
	if p.Subject == "" || len(p.Subject)+len(p.Name)+len(p.Email)+len(p.Groups) > maxTestField {
		i.writeSignIn(w, http.StatusBadRequest,
			"A subject is required, and all fields together have at most 1024 bytes.", p, q)
		return
	}
	code := i.codes.add(testGrant{
		client: q.Get("client_id"), redirect: q.Get("redirect_uri"), challenge: q.Get("code_challenge"),
		claims: i.claimsOf(p, q), expires: i.now().Add(testCodeLife),
	}, i.now())
	to, _ := url.Parse(q.Get("redirect_uri")) // signInProblem has parsed it
	answer := to.Query()
	answer.Set("code", code)
	answer.Set("iss", i.url)
	if state := q.Get("state"); state != "" {
		answer.Set("state", state)
	}
	to.RawQuery = answer.Encode()
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}

// claimsOf returns the claims of the ID token for a person.
func (i *TestIssuer) claimsOf(p testPerson, q url.Values) map[string]any {
	claims := i.common()
	claims["sub"], claims["aud"], claims["auth_time"] = p.Subject, q.Get("client_id"), i.now().Unix()
	for name, value := range map[string]string{"nonce": q.Get("nonce"), "name": p.Name, "email": p.Email} {
		if value != "" {
			claims[name] = value
		}
	}
	if p.Email != "" {
		claims["email_verified"] = p.Verified == "true"
	}
	var groups []string
	for _, group := range strings.Split(p.Groups, ",") {
		if group = strings.TrimSpace(group); group != "" {
			groups = append(groups, group)
		}
	}
	if groups != nil {
		claims["groups"] = groups
	}
	return claims
}

// isForm reports whether a request to the token endpoint is one of OAuth, and not a JSON object of claims. curl sends
// both with the same type.
func isForm(r *http.Request, body *bufio.Reader) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	first, _ := body.Peek(1) // an empty body is no JSON, either
	return err == nil && kind == "application/x-www-form-urlencoded" && !strings.HasPrefix(string(first), "{")
}

// serveCode exchanges a code for an ID token. It accepts every client and every secret.
func (i *TestIssuer) serveCode(w http.ResponseWriter, r *http.Request) {
	refuse := func(why string) { writeTestJSON(w, http.StatusBadRequest, map[string]string{"error": why}) }
	if r.PostFormValue("grant_type") != "authorization_code" {
		refuse("unsupported_grant_type")
		return
	}
	client, _, ok := r.BasicAuth()
	if unescaped, err := url.QueryUnescape(client); ok && err == nil { // RFC 6749, 2.3.1
		client = unescaped
	}
	if !ok {
		client = r.PostFormValue("client_id")
	}
	g, ok := i.codes.take(r.PostFormValue("code"), i.now())
	if !ok || g.client != client || g.redirect != r.PostFormValue("redirect_uri") ||
		g.challenge != "" && !proves(r.PostFormValue("code_verifier"), g.challenge) {
		refuse("invalid_grant")
		return
	}
	token, err := i.keys.signer(i.now()).encode(g.claims)
	if err != nil {
		refuse("server_error")
		return
	}
	writeTestJSON(w, http.StatusOK, map[string]any{
		"access_token": rand.Text(), "token_type": "Bearer", "expires_in": int(testTokenLife.Seconds()), "id_token": token,
	})
}

// proves reports whether a PKCE verifier has a challenge.
func proves(verifier, challenge string) bool {
	sum := sha256.Sum256([]byte(verifier))
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(challenge)) == 1
}
