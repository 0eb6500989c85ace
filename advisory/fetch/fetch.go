// Package fetch gets feeds from where a group's administrators say they are: an
// https address, or a folder or file of this machine that the operator allows.
//
// An address is somebody else's choice. What answers there is read under limits
// of size and time, is never followed elsewhere, and is kept in a file of ours
// before the first record of it is believed.
package fetch

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/advisory/feed"
	"github.com/holdfast-dev/holdfast/fault"
)

// Config is where feeds may come from.
type Config struct {
	Client   *http.Client  // made by outbound: it decides which addresses are reached
	Dir      string        // where downloads are kept while they are read; empty is the system's folder for such
	Folders  []string      // folders of this machine that feeds may be read from
	MaxBytes int64         // of one download; 0 is 4 GiB
	Timeout  time.Duration // of one download; 0 is 15 minutes
	Stall    time.Duration // after which a download ends that brings less than minProgress; 0 is a minute
}

// A Fetcher gets feeds. It is safe for concurrent use.
type Fetcher struct{ Config }

// New returns a Fetcher.
func New(c Config) *Fetcher {
	if c.MaxBytes <= 0 {
		c.MaxBytes = 4 << 30
	}
	if c.Timeout <= 0 {
		c.Timeout = 15 * time.Minute
	}
	if c.Stall <= 0 {
		c.Stall = time.Minute
	}
	return &Fetcher{c}
}

// A Result is what Fetch found.
type Result struct {
	Changed bool                  // there is something new; if not, there are no Records
	State   []byte                // for the next Fetch of the same address
	Records iter.Seq[feed.Record] // to be read before Close
	Size    int64                 // of the feed in bytes, of which a Record's Offset is a part; 0 where there is none
	Close   func() error          // to be called in any case; never nil
}

// A state is what a Fetch remembers for the next.
type state struct {
	Address      string `json:"address"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	Sum          string `json:"sum,omitempty"` // of the content, or of a folder's names, sizes and times
}

// remembered reads a state. One of another address is none.
func remembered(text []byte, address string) state {
	var s state
	if json.Unmarshal(text, &s) != nil || s.Address != address {
		return state{Address: address}
	}
	return s
}

func (s state) bytes() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return nil // text is nothing that JSON lacks
	}
	return text
}

// Fetch looks at an address. before is the State of the last Result, or nil. It
// returns fault.InvalidArgument for what Check refuses; any other error says in
// words for people why there was nothing to be had.
func (f *Fetcher) Fetch(ctx context.Context, address string, before []byte) (Result, error) {
	if err := f.Check(address); err != nil {
		return Result{}, err
	}
	s := remembered(before, address)
	if isPath(address) {
		return f.local(ctx, address, s)
	}
	return f.download(ctx, address, s)
}

// Check reports an address that cannot be fetched, as far as that can be seen. It
// returns fault.InvalidArgument.
func (f *Fetcher) Check(address string) error {
	if isPath(address) {
		if _, _, ok := f.allowed(address); !ok {
			return fault.Field("address", "is not in a folder that the operator allows feeds to be read from")
		}
		return nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return fault.Field("address", "must be an https address, or the path of a folder or file")
	case u.User != nil:
		return fault.Field("address", "must not have a user name or password: it is shown to everybody who may see the feed")
	case u.Fragment != "":
		return fault.Field("address", "must not have a fragment")
	}
	return nil
}

func isPath(address string) bool { return strings.HasPrefix(address, "/") }

func isLoopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// allowed finds the folder of the operator's that a path is in, and the path from
// there.
func (f *Fetcher) allowed(path string) (folder, rest string, ok bool) {
	for _, folder := range f.Folders {
		rest, err := filepath.Rel(folder, path)
		if err == nil && filepath.IsLocal(rest) {
			return folder, rest, true
		}
	}
	return "", "", false
}

// unchanged is the Result when there is nothing new.
func unchanged(s state) Result {
	return Result{State: s.bytes(), Records: func(func(feed.Record) bool) {}, Close: func() error { return nil }}
}
