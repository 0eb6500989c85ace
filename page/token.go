package page

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
)

const (
	tokenLife = 3 * 24 * time.Hour
	maxToken  = 4096
	macSize   = 16
)

// Tokens makes and reads page tokens. A token carries a MAC, so that only the
// service can make one. It belongs to one list with its filter and order, and
// is valid for three days.
type Tokens struct {
	key []byte
	now func() time.Time
}

// NewTokens returns Tokens that authenticate with key, which must be the same on
// every replica.
func NewTokens(key []byte, now func() time.Time) *Tokens { return &Tokens{key, now} }

type payload struct {
	Cursor
	Binding [16]byte `json:"b"`
	Expires int64    `json:"e"` // seconds
}

// A List describes a list method: the kind it returns and the fields it can be
// ordered by.
type List struct {
	Kind    string
	Fields  []string // that order_by accepts, by their canonical names
	Default Order
}

// Request checks the parameters of a call to l. filter is what else selects the
// rows; it must encode to JSON, because tokens are bound to it.
func (t *Tokens) Request(l List, filter any, p Params) (Request, error) {
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
	b, err := json.Marshal(struct {
		Kind   string
		Order  Order
		Filter any
	}{l.Kind, order, filter})
	if err != nil {
		return Request{}, err
	}
	r := Request{Size: min(int(p.Size), MaxSize), Skip: int(p.Skip), Order: order}
	if r.Size == 0 {
		r.Size = DefaultSize
	}
	sum := sha256.Sum256(b)
	copy(r.binding[:], sum[:])
	r.After, r.Expired, err = t.parse(p.Token, r.binding)
	return r, err
}

// parse returns the cursor of a token. As the API's contract wants it, an
// expired token is no error: the list starts again at the first page.
func (t *Tokens) parse(token string, binding [16]byte) (after *Cursor, expired bool, _ error) {
	if token == "" {
		return nil, false, nil
	}
	forged := fault.Field("page_token", "is not a token this service issued")
	if len(token) > maxToken {
		return nil, false, forged
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= macSize || !hmac.Equal(b[:macSize], t.mac(b[macSize:])) {
		return nil, false, forged
	}
	var c payload
	if err := json.Unmarshal(b[macSize:], &c); err != nil {
		return nil, false, forged
	}
	if c.Binding != binding {
		return nil, false, fault.Field("page_token", "belongs to a list with another filter or order")
	}
	if t.now().Unix() >= c.Expires {
		return nil, true, nil
	}
	return &c.Cursor, false, nil
}

// Next returns the token of the page that begins after last.
func (t *Tokens) Next(r Request, last Cursor) string {
	b, _ := json.Marshal(payload{last, r.binding, t.now().Add(tokenLife).Unix()}) // cannot fail: strings and numbers
	return base64.RawURLEncoding.EncodeToString(append(t.mac(b), b...))
}

func (t *Tokens) mac(b []byte) []byte {
	m := hmac.New(sha256.New, t.key)
	m.Write(b)
	return m.Sum(nil)[:macSize]
}

// Read returns one page of l. It validates the filter and the parameters, calls
// read for the rows below reach, and adds the token of the next page.
func Read[T, R any, F interface{ Validate() error }](
	ctx context.Context, t *Tokens, l List, reach R, f F, p Params,
	read func(context.Context, R, F, Request) (Page[T], error),
) (Page[T], error) {
	if err := f.Validate(); err != nil {
		return Page[T]{}, err
	}
	req, err := t.Request(l, f, p)
	if err != nil {
		return Page[T]{}, err
	}
	got, err := read(ctx, reach, f, req)
	if err != nil {
		return Page[T]{}, err
	}
	return Finish(t, req, got), nil
}

// Finish adds to a page that was read for r what the caller gets besides the
// items: the token of the next page, and whether its own token had expired.
func Finish[T any](t *Tokens, r Request, p Page[T]) Page[T] {
	p.Skipped, p.Expired = r.Skip, r.Expired
	if p.Last != nil {
		p.Next = t.Next(r, *p.Last)
	}
	return p
}
