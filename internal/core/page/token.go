package page

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

const (
	tokenLife = 3 * 24 * time.Hour
	maxToken  = 4096
	macSize   = 16

	numberSize = 8 // bytes of Cursor.Number at the start of an encrypted token
)

// Tokens creates and reads page tokens. A token is encrypted and authenticated, so that
// only the service can create one, and clients learn nothing from it: the position may be
// a number that counts the changes of all tenants. A token is bound to one list, with its
// filter and order, which it contains. It is valid for three days.
//
// Version 0.1 created tokens in clear text with a MAC. They are still accepted.
type Tokens struct {
	// WithOlder reports whether a replica of version 0.1 shares the database. As long as
	// it does, new tokens are not encrypted, because that replica could not read them.
	// nil means that there is no such replica.
	WithOlder func() bool

	key  []byte // authenticates the tokens of version 0.1
	aead cipher.AEAD
	now  func() time.Time
}

// NewTokens returns Tokens that use keys derived from key, which must be the same on
// every replica.
func NewTokens(key []byte, now func() time.Time) *Tokens {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("encrypt"))
	aead, err := chacha20poly1305.NewX(m.Sum(nil)) // its nonces are long enough to be random
	if err != nil {
		panic(err) // only if the key has another size
	}
	return &Tokens{key: key, aead: aead, now: now}
}

// A payload is the content of a token.
type payload struct {
	Cursor
	Binding [16]byte        `json:"b"` // digest of the list, its order and its filter
	Expires int64           `json:"e"` // expiry in seconds since 1970
	Order   Order           `json:"o"`
	Filter  json.RawMessage `json:"q,omitempty"` // the filter; absent if it is too long
}

// A List describes a list method: the kind of resource that it returns and the
// fields that it can be sorted by.
type List struct {
	Kind    string
	Fields  []string // fields that order_by accepts, by their canonical names
	Default Order
}

// Resume checks the parameters of a call to l. It returns the page to read, and
// the filter to read it with: f, completed from the page token. If a call omits
// the order or a part of the filter, the token provides it. If a part differs from the
// token, Resume returns fault.InvalidArgument.
//
// f selects the rows of the list. It must encode to JSON without the fields that are
// not set, and decode to the same value.
func Resume[F any](t *Tokens, l List, f F, p Params) (F, Request, error) {
	r, err := p.request(l)
	if err != nil {
		return f, Request{}, err
	}
	tok, err := t.parse(p.Token)
	if err != nil {
		return f, Request{}, err
	}
	if tok != nil && p.OrderBy == "" && slices.Contains(l.Fields, tok.Order.Field) {
		r.Order = tok.Order
	}
	if tok != nil && tok.Filter != nil {
		if f, err = completed(f, tok.Filter); err != nil {
			return f, Request{}, err
		}
	}
	if err := r.bind(l, f); err != nil || tok == nil {
		return f, r, err
	}
	if tok.Binding != r.binding {
		return f, Request{}, tok.otherList()
	}
	// The API's contract says that an expired token is no error: the list starts again at the first page.
	if r.Expired = t.now().Unix() >= tok.Expires; !r.Expired {
		r.After = &tok.Cursor
	}
	return f, r, nil
}

// request returns the size, skip and order that p asks for. It does not read p.Token.
func (p Params) request(l List) (Request, error) {
	order, err := ParseOrder(p.OrderBy, l.Default, l.Fields)
	if err != nil {
		return Request{}, err
	}
	if p.Size < 0 {
		return Request{}, fault.Field("page_size", "must not be negative")
	}
	if p.Skip < 0 {
		return Request{}, fault.Field("skip", "must not be negative")
	}
	r := Request{Size: min(int(p.Size), MaxSize), Skip: int(p.Skip), Order: order}
	if r.Size == 0 {
		r.Size = DefaultSize
	}
	return r, nil
}

// bind sets the digest of the list, order and filter that tokens for the request are bound to.
func (r *Request) bind(l List, filter any) (err error) {
	if r.filter, err = json.Marshal(filter); err != nil {
		return err
	}
	b, err := json.Marshal(struct {
		Kind   string
		Order  Order
		Filter json.RawMessage
	}{l.Kind, r.Order, r.filter})
	sum := sha256.Sum256(b)
	copy(r.binding[:], sum[:])
	return err
}

// completed returns the filter from a token. It returns fault.InvalidArgument
// if a part of f differs from that filter.
func completed[F any](f F, token json.RawMessage) (F, error) {
	given, err := json.Marshal(f)
	if err != nil {
		return f, err
	}
	var part, full any
	if err := errors.Join(json.Unmarshal(given, &part), json.Unmarshal(token, &full)); err != nil {
		return f, err
	}
	var whole F
	if !within(part, full) || json.Unmarshal(token, &whole) != nil {
		return f, (&payload{Filter: token}).otherList()
	}
	return whole, nil
}

// within reports whether full contains every part of part. In a list, an empty text
// means that the element is not set.
func within(part, full any) bool {
	given, ok := part.([]any)
	whole, also := full.([]any)
	if ok && also && len(given) == len(whole) {
		for i := range given {
			if given[i] != "" && !within(given[i], whole[i]) {
				return false
			}
		}
		return true
	}
	return withinObject(part, full)
}

func withinObject(part, full any) bool {
	given, ok := part.(map[string]any)
	whole, also := full.(map[string]any)
	if !ok || !also {
		return reflect.DeepEqual(part, full)
	}
	for k, v := range given {
		if value, ok := whole[k]; !ok || !within(v, value) {
			return false
		}
	}
	return true
}

// otherList returns the error for a token that belongs to another list.
func (c *payload) otherList() error {
	if c.Filter == nil {
		return fault.Field("page_token",
			"belongs to a list with another filter or order; a filter this long must be sent again")
	}
	return fault.Field("page_token", "belongs to a list with another filter or order")
}

// parse returns the content of a token, or nil for "".
func (t *Tokens) parse(token string) (*payload, error) {
	if token == "" {
		return nil, nil
	}
	forged := fault.Field("page_token", "is not a token this service issued")
	if len(token) > maxToken {
		return nil, forged
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, forged
	}
	if c, ok := t.decrypt(b); ok {
		return c, nil
	}
	if len(b) <= macSize || !hmac.Equal(b[:macSize], t.mac(b[macSize:])) {
		return nil, forged
	}
	var c payload
	if err := json.Unmarshal(b[macSize:], &c); err != nil {
		return nil, forged
	}
	return &c, nil
}

// Next returns the token for the page that begins after last. It leaves out the
// filter if the token would become too long.
func (t *Tokens) Next(r Request, last Cursor) string {
	encode := t.encrypt
	if t.WithOlder != nil && t.WithOlder() {
		encode = t.sign
	}
	c := payload{last, r.binding, t.now().Add(tokenLife).Unix(), r.Order, r.filter}
	if token := base64.RawURLEncoding.EncodeToString(encode(c)); len(token) <= maxToken {
		return token
	}
	c.Filter = nil
	return base64.RawURLEncoding.EncodeToString(encode(c))
}

// encrypt returns a nonce and the encrypted payload: Cursor.Number in a fixed size, so
// that the length of the token does not reveal the number of its digits, then the JSON of
// the other fields.
func (t *Tokens) encrypt(c payload) []byte {
	plain := binary.BigEndian.AppendUint64(nil, uint64(c.Number))
	c.Number = 0
	b, _ := json.Marshal(c) // Marshal cannot fail: c has strings, numbers, and JSON that was encoded before
	nonce := make([]byte, t.aead.NonceSize())
	rand.Read(nonce) // never returns an error
	return t.aead.Seal(nonce, nonce, append(plain, b...), nil)
}

// decrypt returns the payload of the output of encrypt. ok is false if it is not such an output.
func (t *Tokens) decrypt(b []byte) (_ *payload, ok bool) {
	n := t.aead.NonceSize()
	if len(b) < n {
		return nil, false
	}
	plain, err := t.aead.Open(nil, b[:n], b[n:], nil)
	if err != nil || len(plain) < numberSize {
		return nil, false
	}
	var c payload
	if err := json.Unmarshal(plain[numberSize:], &c); err != nil {
		return nil, false
	}
	c.Number = int64(binary.BigEndian.Uint64(plain))
	return &c, true
}

// sign returns a payload in the form of version 0.1: a MAC and the JSON.
func (t *Tokens) sign(c payload) []byte {
	b, _ := json.Marshal(c) // cannot fail, as in encrypt
	return append(t.mac(b), b...)
}

func (t *Tokens) mac(b []byte) []byte {
	m := hmac.New(sha256.New, t.key)
	m.Write(b)
	return m.Sum(nil)[:macSize]
}

// Read returns one page of l. It validates the filter and the parameters, calls
// read with reach and with the filter that Resume returns, and adds the token for
// the next page.
func Read[T, R any, F interface{ Validate() error }](
	ctx context.Context, t *Tokens, l List, reach R, f F, p Params,
	read func(context.Context, R, F, Request) (Page[T], error),
) (Page[T], error) {
	if err := f.Validate(); err != nil {
		return Page[T]{}, err
	}
	f, req, err := Resume(t, l, f, p)
	if err != nil {
		return Page[T]{}, err
	}
	got, err := read(ctx, reach, f, req)
	if err != nil {
		return Page[T]{}, err
	}
	return Finish(t, req, got), nil
}

// Finish adds the token for the next page to p, which was read for r. It also sets
// whether the token of the request had expired.
func Finish[T any](t *Tokens, r Request, p Page[T]) Page[T] {
	p.Skipped, p.Expired = r.Skip, r.Expired
	if p.Last != nil {
		p.Next = t.Next(r, *p.Last)
	}
	return p
}
