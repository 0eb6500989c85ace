package signin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// A handOff is a server on this machine. The issuer redirects the browser to it at the
// end of a sign-in. Its address contains a secret, so that another page that guesses the
// port cannot sign this command in as somebody else.
type handOff struct {
	server   *http.Server
	origin   string // http://127.0.0.1:port
	path     string
	received chan url.Values // receives the query of the first redirect
	shown    chan struct{}   // closed when the browser has shown the result
	showOnce sync.Once
	issuer   string // address of the issuer, to which the page links
	joined   bool   // whether the sign-in redeemed an invite

	mu      sync.Mutex
	done    bool   // whether a redirect was received
	problem string // error message to show in the browser
}

// listen starts a hand-off on a free port. Its page links to the account at the issuer.
// If joined is true, it links to the permissions of the account instead.
func listen(ctx context.Context, issuer string, joined bool) (*handOff, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &handOff{
		origin: "http://" + l.Addr().String(), path: "/callback/" + rand.Text(),
		received: make(chan url.Values, 1), shown: make(chan struct{}), issuer: issuer, joined: joined,
	}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { _ = h.server.Serve(l) }() // the error only says that the hand-off was closed
	return h, nil
}

// close gives the browser time to finish reading, and then stops the server.
func (h *handOff) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if h.server.Shutdown(ctx) != nil {
		_ = h.server.Close() // the browser does not read the answer
	}
}

// address returns the address to which the issuer redirects the browser. The issuer
// replaces each "true" with its value, or removes the parameter.
func (h *handOff) address() string { return h.origin + h.path + "?token=true&error=true" }

// ServeHTTP receives the redirect. It then redirects the browser to an address without a
// secret, which shows the result.
func (h *handOff) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case "http://"+r.Host != h.origin: // a foreign host name that resolves to this machine
		http.Error(w, "Misdirected request", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
	case r.URL.Path == h.path:
		h.receive(r.URL.Query())
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case r.URL.Path == "/":
		h.show(w)
	default:
		http.NotFound(w, r)
	}
}

// receive records the first redirect and ignores any other.
func (h *handOff) receive(q url.Values) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return
	}
	h.done = true
	if q.Get("code") == "" {
		h.problem = cmp.Or(q.Get("error"), "The answer has no code.")
	}
	h.received <- q
}

var (
	//go:embed loopback.html
	loopbackHTML string
	//go:embed loopback.css
	loopbackCSS string

	loopbackPage   = template.Must(template.New("page").Parse(loopbackHTML))
	loopbackPolicy = "default-src 'none'; style-src 'sha256-" + digest(loopbackCSS) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func digest(text string) string {
	d := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(d[:])
}

func (h *handOff) show(w http.ResponseWriter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.done {
		http.Error(w, "Nobody has signed in yet", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", loopbackPolicy)
	// Ignore the error, because the terminal shows the result as well.
	_ = loopbackPage.Execute(w, map[string]any{
		"Style": template.CSS(loopbackCSS), "Problem": h.problem, "Issuer": h.issuer, "Joined": h.joined,
	})
	h.showOnce.Do(func() { close(h.shown) })
}

// signInHere signs a person in with a browser on this machine. The browser delivers a
// code, which is useless without the verifier, and the verifier never leaves this
// machine.
func (a *Agent) signInHere(ctx context.Context, issuer string, p Person) (tokens, error) {
	h, err := listen(ctx, issuer, p.invite != "")
	if err != nil {
		return tokens{}, err
	}
	defer h.close()
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	challenge := sha256.Sum256([]byte(verifier))
	q := p.query()
	q.Set("exit", "redirect")
	q.Set("redirect", h.address())
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("state", state)
	a.invite(ctx, issuer+"/oauth?"+q.Encode())
	query, err := h.wait(ctx)
	if err != nil {
		return tokens{}, err
	}
	if query.Get("code") == "" {
		return tokens{}, notSignedIn(query.Get("error"), query.Get("status_code"))
	}
	if query.Get("state") != state {
		return tokens{}, errors.New("not signed in: the browser has completed another sign-in")
	}
	return a.grant(ctx, issuer, url.Values{
		"grant_type": {"authorization_code"}, "code": {query.Get("code")}, "code_verifier": {verifier},
		"redirect_uri": {h.address()}, "client_id": q["client_id"],
	})
}

// invite asks the person to sign in, and opens a browser if possible.
func (a *Agent) invite(ctx context.Context, address string) {
	if openBrowser(ctx, address) {
		a.Note("a browser opens; if it does not, sign in at %s", address)
		return
	}
	a.Note("sign in at %s", address)
	a.Note("hint: with --headless or --device the browser can be on another machine")
}

// signInTimeout is the time that a person has to sign in.
const signInTimeout = 15 * time.Minute

// wait returns the query of the redirect after the browser has shown the result.
func (h *handOff) wait(ctx context.Context) (url.Values, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, signInTimeout, errNobody)
	defer cancel()
	var query url.Values
	select {
	case query = <-h.received:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-h.shown:
	case <-time.After(2 * time.Second): // the person has closed the browser window
	}
	return query, nil
}

// notSignedIn returns the problem for an error of the issuer.
func notSignedIn(text, status string) *problem.Problem {
	p := problem.New(problem.ExitUnauthenticated, "%s", "not signed in: "+cmp.Or(text, "the issuer does not say why"))
	if status == "404" {
		p.Hints = []string{"use an invite to get an account: holdfast auth login --invite CODE"}
	}
	return p
}

// browser returns the command that opens an address, or nil if there is no screen. The
// variable BROWSER names another command, or none.
func browser(system string, getenv func(string) string) []string {
	switch command := getenv("BROWSER"); {
	case command == "none":
		return nil
	case command != "":
		first, _, _ := strings.Cut(command, ":") // BROWSER is a list; the first command is the preferred one
		return strings.Fields(first)
	}
	switch system {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	return []string{"xdg-open"}
}

// openBrowser opens an address in the person's browser, and reports whether it started
// one. The browser may still show nothing, so the caller prints the address as well.
func openBrowser(ctx context.Context, address string) bool {
	command := browser(runtime.GOOS, os.Getenv)
	if command == nil {
		return false
	}
	// The browser outlives this program.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command[0], append(command[1:], address)...)
	if cmd.Start() != nil {
		return false
	}
	go func() { _ = cmd.Wait() }() // the exit code of the browser has no meaning
	return true
}
