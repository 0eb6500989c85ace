// Package fetch reads advisory feeds from https addresses, or from directories and
// files of this machine that the operator allows.
//
// Users choose the addresses, so responses are limited in size and time, redirects are not followed, and a
// response is completely downloaded and verified before its first record is used.
package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// Config configures a Fetcher. Client is required.
type Config struct {
	Client   *http.Client  // client from package outbound, which limits the addresses
	Dir      string        // directory for downloads; "" means os.TempDir()
	Folders  []string      // directories of this machine from which feeds may be read
	MaxBytes int64         // maximum size of a download; 0 means 4 GiB
	Timeout  time.Duration // maximum duration of a download; 0 means 15 minutes
	Stall    time.Duration // time in which at least minProgress must arrive; 0 means a minute
}

// A Fetcher reads feeds. It is safe for concurrent use.
type Fetcher struct{ Config }

// New returns a Fetcher.
func New(c Config) *Fetcher {
	c.MaxBytes = cmp.Or(c.MaxBytes, 4<<30)
	c.Timeout = cmp.Or(c.Timeout, 15*time.Minute)
	c.Stall = cmp.Or(c.Stall, time.Minute)
	return &Fetcher{c}
}

// A Result is the result of Fetch.
type Result struct {
	Changed bool                    // whether the feed has changed; if not, Records is empty
	State   []byte                  // input for the next Fetch of the same address
	Records iter.Seq[format.Record] // must be read before Close
	File    io.ReaderAt             // file that contains the records; nil for a directory
	Size    int64                   // size of File in bytes, comparable to the Offset of a Record; 0 for a directory
	Close   func() error            // must be called; never nil
}

// A state describes a version of a feed, for the next Fetch.
type state struct {
	Address      string `json:"address"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// Sum is a checksum of a file's content, or of the names, sizes and times of a directory's files.
	Sum    string `json:"sum,omitempty"`
	Reader int    `json:"reader,omitempty"` // version of the reader that read the feed; 0 for version 0.1.0
}

// reader is the version of the reader. It changes when more of a record is stored than before, so that every feed is
// read once again although it has not changed.
const reader = 1

// parseState parses a state. It returns an empty state if text is invalid, belongs to another address, or comes from
// another version of the reader.
func parseState(text []byte, address string) state {
	var s state
	if json.Unmarshal(text, &s) != nil || s.Address != address || s.Reader != reader {
		return state{Address: address}
	}
	return s
}

// Revision returns the server's name for the version of a feed in a State: its entity tag, or its modification time. It
// returns "" if the server sent neither.
func Revision(text []byte) string {
	var s state
	if json.Unmarshal(text, &s) != nil {
		return ""
	}
	return strings.ToValidUTF8(cmp.Or(s.ETag, s.LastModified), "?")
}

func (s state) bytes() []byte {
	s.Reader = reader
	text, _ := json.Marshal(s) // cannot fail: a state consists of texts and a number
	return text
}

// Fetch reads the feed at an address. before is the State of the last Result, or nil. It returns fault.InvalidArgument
// for an address that Check refuses. Any other error has a text for the owner of the feed.
func (f *Fetcher) Fetch(ctx context.Context, address string, before []byte) (Result, error) {
	if err := f.Check(address); err != nil {
		return Result{}, err
	}
	s := parseState(before, address)
	if isPath(address) {
		return f.local(ctx, address, s)
	}
	return f.download(ctx, address, s)
}

// Check returns fault.InvalidArgument for an address that can never be fetched.
func (f *Fetcher) Check(address string) error {
	if isPath(address) {
		if _, _, ok := f.allowed(address); !ok {
			return fault.Field("address", "is not in a folder that the operator allows for feeds")
		}
		return nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return fault.Field("address", "must be an https address, or the path of a folder or file")
	case u.User != nil:
		return fault.Field("address",
			"must not have a user name or password, because everyone who may see the feed sees its address")
	case u.Fragment != "":
		return fault.Field("address", "must not have a fragment")
	}
	return nil
}

func isPath(address string) bool { return strings.HasPrefix(address, "/") }

func isLoopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// allowed returns the allowed directory that contains a path, and the path relative to it.
func (f *Fetcher) allowed(path string) (folder, rest string, ok bool) {
	for _, folder := range f.Folders {
		rest, err := filepath.Rel(folder, path)
		if err == nil && filepath.IsLocal(rest) {
			return folder, rest, true
		}
	}
	return "", "", false
}

// unchanged returns the Result for a feed that has not changed.
func unchanged(s state) Result {
	return Result{State: s.bytes(), Records: func(func(format.Record) bool) {}, Close: func() error { return nil }}
}
