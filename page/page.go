// Package page is the one way to list: it turns the list parameters of a
// request (page_size, page_token, order_by, skip) into a Request a store can
// run, and the last row of a page into the token of the next.
package page

import (
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/fault"
)

// The number of results a page has.
const (
	DefaultSize = 50
	MaxSize     = 200
)

// Params are the list parameters as they came in.
type Params struct {
	Size    int32
	Token   string
	OrderBy string
	Skip    int32
}

// An Order is a parsed order_by.
type Order struct {
	Field string `json:"f"`
	Desc  bool   `json:"d,omitempty"`
}

// aliases are other names of sort fields: those of the contract, and those that
// answers have in JSON.
var aliases = map[string]string{
	"created_at": "create_time", "createdAt": "create_time", "createTime": "create_time",
	"updated_at": "update_time", "updatedAt": "update_time", "updateTime": "update_time",
}

// ParseOrder reads "field", "field asc" or "field desc". An empty string means
// fallback.
func ParseOrder(s string, fallback Order, fields []string) (Order, error) {
	words := strings.Fields(s)
	if s == "" {
		return fallback, nil
	}
	if len(words) == 0 || len(words) > 2 || len(words) == 2 && words[1] != "desc" && words[1] != "asc" {
		return Order{}, fault.Field("order_by", "must be a field, optionally followed by asc or desc")
	}
	field := words[0]
	if name, ok := aliases[field]; ok {
		field = name
	}
	if !slices.Contains(fields, field) {
		return Order{}, fault.Field("order_by", "must be one of %s", strings.Join(fields, ", "))
	}
	return Order{Field: field, Desc: len(words) == 2 && words[1] == "desc"}, nil
}

// A Request is one page to read: how many, in what order, after what.
type Request struct {
	Size, Skip int
	Order      Order
	After      *Cursor // nil on the first page
	Expired    bool    // the token had expired, and so the list starts again
	binding    [16]byte
}

// A Cursor is the place of a row in its order. By name, Key is the name; by a
// time, Number is its milliseconds; UID tells rows apart that tie.
type Cursor struct {
	Key    string `json:"k,omitempty"`
	Number int64  `json:"n,omitempty"`
	UID    string `json:"u"`
}

// A Page is one answer to a list call.
type Page[T any] struct {
	Items   []T
	Last    *Cursor // of the last item; nil if no page follows
	Total   int64   // across all pages
	Next    string  // the token of the page that follows, or ""
	Skipped int     // the skip that was asked for
	Expired bool    // the request's token had expired
}
