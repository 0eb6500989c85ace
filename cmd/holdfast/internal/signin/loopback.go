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

// A handOff is where a browser on this machine brings what the issuer gives it
// at the end of a sign-in. Its address holds a secret: a page of somebody else's
// that guesses the port cannot sign this command in as them.
type handOff struct {
	server   *http.Server
	origin   string // http://127.0.0.1:port
	path     string
	received chan url.Values // what came, once
	seen     chan struct{}   // closed when the person was told how it went
	told     sync.Once

	mu      sync.Mutex
	brought bool
	problem string // that the person is told of
}

// listen opens a hand-off until it is closed.
func listen(ctx context.Context) (*handOff, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &handOff{
		origin: "http://" + l.Addr().String(), path: "/callback/" + rand.Text(),
		received: make(chan url.Values, 1), seen: make(chan struct{}),
	}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { _ = h.server.Serve(l) }() // it ends when the hand-off is closed
	return h, nil
}

// close lets the browser read to the end what it is being told.
func (h *handOff) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if h.server.Shutdown(ctx) != nil {
		_ = h.server.Close() // a browser that does not read
	}
}

// address is where the issuer is to send the browser. It replaces the words true
// by what it brings, or takes them away.
func (h *handOff) address() string { return h.origin + h.path + "?token=true&error=true" }

// ServeHTTP takes what the browser brings, sends it on to an address that holds
// no secret, and tells the person there.
func (h *handOff) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case "http://"+r.Host != h.origin: // a name of somebody else's that leads here
		http.Error(w, "Misdirected request", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
	case r.URL.Path == h.path:
		h.take(r.URL.Query())
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case r.URL.Path == "/":
		h.tell(w)
	default:
		http.NotFound(w, r)
	}
}

// take keeps what came first.
func (h *handOff) take(q url.Values) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.brought {
		return
	}
	h.brought = true
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
	loopbackPolicy = "default-src 'none'; style-src 'sha256-" + digest(loopbackCSS) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func digest(text string) string {
	d := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(d[:])
}

func (h *handOff) tell(w http.ResponseWriter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.brought {
		http.Error(w, "Nobody has signed in yet", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", loopbackPolicy)
	_ = loopbackPage.Execute(w, map[string]any{"Style": template.CSS(loopbackCSS), "Problem": h.problem}) // the terminal tells it, too
	h.told.Do(func() { close(h.seen) })
}

// signInHere signs a person in with a browser on this machine. What the browser
// brings is a code, of no use to whoever else sees it: the verifier stays here.
func (a *Agent) signInHere(ctx context.Context, issuer string, w Person) (tokens, error) {
	h, err := listen(ctx)
	if err != nil {
		return tokens{}, err
	}
	defer h.close()
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	challenge := sha256.Sum256([]byte(verifier))
	q := w.query()
	q.Set("exit", "redirect")
	q.Set("redirect", h.address())
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("state", state)
	a.invite(ctx, issuer+"/oauth?"+q.Encode())
	brought, err := h.wait(ctx)
	if err != nil {
		return tokens{}, err
	}
	if brought.Get("code") == "" {
		return tokens{}, notSignedIn(brought.Get("error"), brought.Get("status_code"))
	}
	if brought.Get("state") != state {
		return tokens{}, errors.New("not signed in: the browser brings the end of another sign-in")
	}
	return a.grant(ctx, issuer, url.Values{
		"grant_type": {"authorization_code"}, "code": {brought.Get("code")}, "code_verifier": {verifier},
		"redirect_uri": {h.address()}, "client_id": q["client_id"],
	})
}

// invite shows the person where to sign in.
func (a *Agent) invite(ctx context.Context, address string) {
	if openBrowser(ctx, address) {
		a.Note("a browser opens; if it does not, sign in at %s", address)
		return
	}
	a.Note("sign in at %s", address)
	a.Note("hint: with --headless or --device the browser can be on another machine")
}

// patience is how long a person has to sign in.
const patience = 15 * time.Minute

// wait returns what the browser brings, once the person has seen it.
func (h *handOff) wait(ctx context.Context) (url.Values, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNobody)
	defer cancel()
	var brought url.Values
	select {
	case brought = <-h.received:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-h.seen:
	case <-time.After(2 * time.Second): // the window was closed
	}
	return brought, nil
}

// notSignedIn is what the issuer says went wrong.
func notSignedIn(text, status string) *problem.Problem {
	p := problem.New(problem.ExitUnauthenticated, "%s", "not signed in: "+cmp.Or(text, "the issuer does not say why"))
	if status == "404" {
		p.Hints = []string{"an invite makes an account: holdfast auth login --invite CODE"}
	}
	return p
}

// browser is the command that shows an address to the person; nil if nobody is
// there to see it. BROWSER names another, or none.
func browser(system string, getenv func(string) string) []string {
	switch own := getenv("BROWSER"); {
	case own == "none":
		return nil
	case own != "":
		first, _, _ := strings.Cut(own, ":") // a list, best first
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

// openBrowser shows an address in the person's browser. It tells whether one was
// started; the address is printed too, for when that shows nothing.
func openBrowser(ctx context.Context, address string) bool {
	command := browser(runtime.GOOS, os.Getenv)
	if command == nil {
		return false
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command[0], append(command[1:], address)...) // it outlives this program
	if cmd.Start() != nil {
		return false
	}
	go func() { _ = cmd.Wait() }() // the browser's own end says nothing of the sign-in
	return true
}
