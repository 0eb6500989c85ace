package login_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

var b64 = base64.RawURLEncoding.EncodeToString

// An authenticator is a device with a passkey that tests control.
type authenticator struct {
	key     *ecdsa.PrivateKey
	id      []byte
	count   uint32 // signature counter; 0 for most authenticators
	handle  []byte // user handle of the owner
	origin  string // origin of the page, as the browser reports it
	host    string // host of the passkey
	flags   byte   // WebAuthn flags: user present and user verified
	changed string // challenge to sign instead of the real one, or ""
	framed  bool   // whether the browser reports that a page of another origin contains the page
}

func (x *site) authenticator(t *testing.T) *authenticator {
	t.Helper()
	return &authenticator{
		key: must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), id: []byte(rand.Text()),
		origin: x.url, host: "localhost", flags: 0x05,
	}
}

// A question contains the options of a WebAuthn ceremony.
type question struct {
	PublicKey struct {
		Challenge string
		User      struct{ ID string }
	}
}

func ask(t *testing.T, a answer) (q question) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &q); err != nil || q.PublicKey.Challenge == "" {
		t.Fatalf("no question: %d %s", a.status, a.body)
	}
	return q
}

// about returns the client data and authenticator data that are signed.
func (d *authenticator) about(q question, kind string) (client, data []byte) {
	challenge := q.PublicKey.Challenge
	if d.changed != "" {
		challenge = d.changed
	}
	client, err := json.Marshal(
		map[string]any{"type": kind, "challenge": challenge, "origin": d.origin, "crossOrigin": d.framed},
	)
	if err != nil {
		panic(err)
	}
	host := sha256.Sum256([]byte(d.host))
	data = append(host[:], d.flags)
	return client, binary.BigEndian.AppendUint32(data, d.count)
}

// make answers a registration ceremony.
func (d *authenticator) make(q question) map[string]any {
	d.handle, _ = base64.RawURLEncoding.DecodeString(q.PublicKey.User.ID)
	client, data := d.about(q, "webauthn.create")
	point, err := d.key.PublicKey.Bytes() // the byte 4, followed by X and Y
	if err != nil {
		panic(err)
	}
	data[32] |= 0x40 // flag that the data contains a key
	data = append(data, make([]byte, 16)...)
	data = binary.BigEndian.AppendUint16(data, uint16(len(d.id)))
	data = slices.Concat(
		data, d.id, []byte("\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20"), point[1:33], []byte("\x22\x58\x20"),
		point[33:],
	)
	// The key and the attestation are encoded in CBOR.
	object := slices.Concat(
		[]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58"), []byte{byte(len(data))}, data,
	)
	return map[string]any{"id": b64(d.id), "rawId": b64(d.id), "type": "public-key", "response": map[string]any{
		"clientDataJSON": b64(client), "attestationObject": b64(object),
	}}
}

// sign answers an authentication ceremony.
func (d *authenticator) sign(q question) map[string]any {
	if d.count > 0 {
		d.count++
	}
	client, data := d.about(q, "webauthn.get")
	page := sha256.Sum256(client)
	sum := sha256.Sum256(append(slices.Clone(data), page[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, d.key, sum[:])
	if err != nil {
		panic(err)
	}
	return map[string]any{"id": b64(d.id), "rawId": b64(d.id), "type": "public-key", "response": map[string]any{
		"clientDataJSON": b64(client), "authenticatorData": b64(data), "signature": b64(signature),
		"userHandle": b64(d.handle),
	}}
}

// script sends a request like the script of a page.
func (b *browser) script(target string, fields map[string]any, headers ...string) answer {
	b.t.Helper()
	body := string(must[[]byte](b.t)(json.Marshal(fields)))
	r := must[*http.Request](b.t)(
		http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.x.url+target, strings.NewReader(body)),
	)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return b.send(r)
}

// register adds a passkey to the owner, who is signed in.
func (b *browser) register(d *authenticator) {
	b.t.Helper()
	csrf := b.csrf()
	q := ask(b.t, b.script("/account/passkeys/start", map[string]any{"csrf": csrf, "current": password}))
	if a := b.script("/account/passkeys", map[string]any{"csrf": csrf, "name": "key",
		"credential": d.make(q)}); a.status != http.StatusOK {
		b.t.Fatalf("%d %s", a.status, a.body)
	}
}

// begin starts to sign in with a passkey.
func (b *browser) begin(flow string) question {
	b.t.Helper()
	return ask(b.t, b.script("/signin/passkey/start", map[string]any{"flow": flow}))
}

func (b *browser) prove(flow string, credential any) answer {
	b.t.Helper()
	return b.script("/signin/passkey", map[string]any{"flow": flow, "credential": credential})
}

func TestPasskeys(t *testing.T) {
	x := sqlite(t)
	d, b := x.authenticator(t), x.browser(t)
	b.signIn()
	b.register(d)
	c := x.browser(t)
	flow := c.start(forCommand(""))
	here := must[*url.URL](t)(url.Parse(x.url))
	credential := d.sign(c.begin(flow))
	cookies := c.Jar.Cookies(here)
	if a := c.prove(flow, credential); !strings.Contains(a.body, "token=") || a.location != "" {
		t.Fatalf("a passkey alone: %d %s", a.status, a.body)
	}
	c.Jar.SetCookies(here, cookies) // restores the flow
	if a := c.prove(flow, credential); a.status != http.StatusUnauthorized {
		t.Errorf("the same answer again: %d %s", a.status, a.body)
	}
	c = x.browser(t)
	flow = c.start(forCommand(""))
	if a := c.password(flow, ownerEmail, password); a.location != "" ||
		!strings.Contains(a.body, `data-passkey="factor"`) {
		t.Fatalf("a password is enough: %d %s", a.status, a.location)
	}
	d.flags = 0x01 // a second factor need not verify the user
	if a := c.prove(flow, d.sign(c.begin(flow))); !strings.Contains(a.body, "token=") {
		t.Errorf("a passkey after the password: %d %s", a.status, a.body)
	}
}

// TestPasskeyAttacks: a response is refused if the authenticator has not made it for this challenge.
func TestPasskeyAttacks(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	other := x.authenticator(t)
	b.register(other)
	for name, change := range map[string]func(d *authenticator){
		"of a page of another site": func(d *authenticator) { d.origin = "https://evil.test" },
		"of another port":           func(d *authenticator) { d.origin = "http://localhost:1" },
		"for another site":          func(d *authenticator) { d.host = "evil.test" },
		"to another question": func(d *authenticator) {
			d.changed = b64([]byte("another challenge, of 32 bytes!!"))
		},
		"with another key":                  func(d *authenticator) { d.key = other.key },
		"of a passkey nobody has":           func(d *authenticator) { d.id = []byte("nobody") },
		"of nobody":                         func(d *authenticator) { d.handle = []byte("nobody") },
		"that nobody pressed":               func(d *authenticator) { d.flags = 0x04 },
		"of a device that does not look":    func(d *authenticator) { d.flags = 0x01 },
		"of a copy, which has counted less": func(d *authenticator) { d.count -= 5 },
	} {
		d := x.authenticator(t)
		b.register(d)
		d.count = 10
		c := x.browser(t)
		flow := c.start(forCommand(""))
		if a := c.prove(flow, d.sign(c.begin(flow))); !strings.Contains(a.body, "token=") {
			t.Fatalf("the right answer: %d %s", a.status, a.body)
		}
		c = x.browser(t)
		flow = c.start(forCommand(""))
		q := c.begin(flow)
		change(d)
		if a := c.prove(flow, d.sign(q)); a.status != http.StatusUnauthorized || c.session() != "" {
			t.Errorf("an answer %s: %d %s", name, a.status, a.body)
		}
		x.clock.move(15 * time.Minute) // resets the limits
	}
	c, e := x.browser(t), x.browser(t)
	flow := c.start(forCommand(""))
	good := other.sign(c.begin(flow))
	if a := e.prove(flow, good); a.status != http.StatusBadRequest {
		t.Errorf("an answer in another browser: %d", a.status)
	}
	if a := e.prove(e.start(forCommand("")), good); a.status != http.StatusUnauthorized {
		t.Errorf("an answer to what was not asked: %d", a.status)
	}
	for range 100 { // the limit is high, so that other people in the owner's network do not easily lock out the owner
		c.prove(flow, "x")
	}
	if a := c.prove(flow, other.sign(c.begin(flow))); a.status != http.StatusTooManyRequests {
		t.Errorf("after guessing: %d", a.status)
	}
}

// TestPasskeyOfAnother: a passkey is accepted as a second factor only if it belongs to the account whose password was
// right.
func TestPasskeyOfAnother(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	d := x.authenticator(t)
	b.register(d)
	owner := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID))
	victim := must[resource.Account](t)(x.addAccount(t, "victim@example.test"))
	must[resource.Account](t)(x.store.UpdateAccount(t.Context(), victim.UID, func(a *resource.Account) error {
		a.Password = owner.Password
		return nil
	}))
	if err := x.store.AddPasskey(t.Context(), victim.UID, resource.Passkey{ID: []byte("theirs"), Name: "p",
		Detail: owner.Passkeys[0].Detail}); err != nil {
		t.Fatal(err)
	}
	c := x.browser(t)
	flow := c.start(forCommand(""))
	if a := c.password(flow, victim.Email, password); !strings.Contains(a.body, `data-passkey="factor"`) {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	if a := c.prove(flow, d.sign(c.begin(flow))); a.status != http.StatusUnauthorized || c.session() != "" {
		t.Errorf("the owner's passkey after the victim's password: %d %s", a.status, a.body)
	}
}

// TestPasskeyForeign: a passkey is added only by a page of the session, only with the response to the challenge of the
// ceremony, and only once.
func TestPasskeyForeign(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	csrf := b.csrf()
	for name, token := range map[string]string{"none": "", "a word": "x", "another's": x.browserCSRF(t)} {
		for _, path := range []string{"/account/passkeys/start", "/account/passkeys"} {
			if a := b.script(path, map[string]any{"csrf": token}); a.status != http.StatusForbidden {
				t.Errorf("%s with a token that is %s: %d", path, name, a.status)
			}
		}
	}
	for _, path := range []string{"/account/passkeys/start", "/account/passkeys", "/signin/passkey/start",
		"/signin/passkey"} {
		if a := b.script(path, map[string]any{"csrf": csrf}, "Content-Type",
			"text/plain"); a.status != http.StatusUnsupportedMediaType {
			t.Errorf("%s of a form that looks like JSON: %d", path, a.status)
		}
		if a := b.script(path, map[string]any{"csrf": csrf}, "Sec-Fetch-Site",
			"cross-site"); a.status != http.StatusForbidden {
			t.Errorf("%s of another site: %d", path, a.status)
		}
	}
	if a := b.script("/account/passkeys/start", map[string]any{"csrf": csrf,
		"current": "wrong"}); a.status != http.StatusBadRequest || !strings.Contains(a.body, "not your password") {
		t.Errorf("a new passkey for a browser that was left open: %d %s", a.status, a.body)
	}
	for name, change := range map[string]func(d *authenticator){
		"of a page of another site": func(d *authenticator) { d.origin = "https://evil.test" },
		"for another site":          func(d *authenticator) { d.host = "evil.test" },
		"to another question":       func(d *authenticator) { d.changed = b64([]byte("another challenge, of 32 bytes!!")) },
		"that nobody pressed":       func(d *authenticator) { d.flags = 0 },
	} {
		d := x.authenticator(t)
		q := ask(t, b.script("/account/passkeys/start", map[string]any{"csrf": csrf, "current": password}))
		change(d)
		if a := b.script("/account/passkeys",
			map[string]any{"csrf": csrf, "credential": d.make(q)}); a.status != http.StatusBadRequest {
			t.Errorf("a new passkey %s: %d %s", name, a.status, a.body)
		}
	}
	here := must[*url.URL](t)(url.Parse(x.url))
	q := ask(t, b.script("/account/passkeys/start", map[string]any{"csrf": csrf, "current": password}))
	cookies := b.Jar.Cookies(here)
	for i, want := range []int{http.StatusOK, http.StatusBadRequest} {
		b.Jar.SetCookies(here, cookies) // restores the ceremony
		if a := b.script("/account/passkeys",
			map[string]any{"csrf": csrf, "credential": x.authenticator(t).make(q)}); a.status != want {
			t.Errorf("answer %d to one question: %d %s, want %d", i, a.status, a.body, want)
		}
	}
}
