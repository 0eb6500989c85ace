// Package page implements paging for every list method. It turns the list
// parameters of a call (page_size, page_token, order_by, skip) into a Request
// that a store can run, and the last row of a page into the token for the next
// page.
package page

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// These are the limits for the number of results on a page.
const (
	DefaultSize = 50
	MaxSize     = 200
)

// Params contains the list parameters of a call, before they are checked.
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

// aliases contains other accepted names for sort fields: the names in the API's
// contract, and the names of the fields in JSON.
var aliases = map[string]string{
	"created_at": "create_time", "createdAt": "create_time", "createTime": "create_time",
	"updated_at": "update_time", "updatedAt": "update_time", "updateTime": "update_time",
}

// ParseOrder parses "field", "field asc" or "field desc". It returns fallback for
// an empty string, and fault.InvalidArgument for a field that is not in fields.
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

// A Request describes one page to read.
type Request struct {
	Size, Skip int
	Order      Order
	After      *Cursor // nil on the first page
	Expired    bool    // the token had expired, so the list starts again
	binding    [16]byte
	filter     []byte // the filter as JSON
}

// A Cursor is the position of a row in a sorted list. Key is the row's name if
// the list is sorted by name. Number is the time in milliseconds if the list is
// sorted by a time. UID decides between equal rows.
type Cursor struct {
	Key    string `json:"k,omitempty"`
	Number int64  `json:"n,omitempty"`
	UID    string `json:"u"`
}

// A Page is the result of a list call.
type Page[T any] struct {
	Items   []T
	Last    *Cursor // position of the last item; nil on the last page
	Total   int64   // number of items on all pages
	Next    string  // token for the next page; "" on the last page
	Skipped int     // number of items that the request skips
	Expired bool    // the request's token had expired
}

// With returns the page p with other items, one for each item in p.
func With[T, U any](p Page[T], items []U) Page[U] {
	return Page[U]{Items: items, Last: p.Last, Total: p.Total, Next: p.Next, Skipped: p.Skipped, Expired: p.Expired}
}

// Cut returns the page that r requests from items in memory. key returns a unique text
// for each item, by which the items are ordered.
func Cut[T any](all []T, r Request, key func(T) string) (out Page[T]) {
	type row struct {
		key string
		at  int
	}
	out.Total = int64(len(all))
	rows := make([]row, 0, len(all))
	for i, v := range all {
		k := bounded(key(v))
		if r.After == nil || k != r.After.Key && k > r.After.Key != r.Order.Desc {
			rows = append(rows, row{k, i})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		if r.Order.Desc {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	})
	rows = rows[min(r.Skip, len(rows)):]
	if len(rows) > r.Size {
		rows = rows[:r.Size]
		out.Last = &Cursor{Key: rows[r.Size-1].key}
	}
	for _, v := range rows {
		out.Items = append(out.Items, all[v.at])
	}
	return out
}

// maxKey is the greatest length of a key, in bytes, that always fits into a token.
const maxKey = 400

// bounded returns a key that fits into a token. A digest replaces the end of a long key.
func bounded(key string) string {
	if len(key) <= maxKey {
		return key
	}
	return strings.ToValidUTF8(key[:maxKey-2*sha256.Size], "") + fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}
