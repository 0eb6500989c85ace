package fetch

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// download requests a feed from a server, and saves the response in a file.
func (f *Fetcher) download(ctx context.Context, address string, s state) (Result, error) {
	timed, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	timed, watchdog := f.newWatchdog(timed)
	defer watchdog.stop()
	resp, err := f.get(timed, address, s)
	if errors.Is(context.Cause(timed), errStalled) {
		return Result{}, errStalled
	}
	if err != nil {
		return Result{}, errors.New(outbound.Reason(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && s.Sum != "":
		return unchanged(s), nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return Result{}, errors.New("the server redirects to another address, and redirects are not followed")
	case resp.StatusCode != http.StatusOK:
		return Result{}, fmt.Errorf("the server answered %s", resp.Status)
	case resp.ContentLength > f.MaxBytes:
		return Result{}, outbound.ErrTooLong
	}
	file, sum, err := f.save(resp, watchdog)
	if err != nil {
		return Result{}, err
	}
	next := state{Address: address, Sum: sum}
	next.ETag, next.LastModified = validator(resp.Header.Get("ETag")), validator(resp.Header.Get("Last-Modified"))
	if sum == s.Sum { // the server ignores conditional requests, but the content is unchanged
		return unchanged(next), file.Close()
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return Result{}, errors.Join(err, file.Close())
	}
	return Result{
		Changed: true, State: next.bytes(), Size: size, File: file, Close: file.Close,
		Records: format.Read(ctx, path.Base(resp.Request.URL.Path), file, size, format.Limits{}),
	}, nil
}

// validator returns s, which is an entity tag or a modification time. It returns "" if s is too long to be stored with
// the feed.
func validator(s string) string {
	if len(s) > 256 {
		return ""
	}
	return s
}

// get sends the request. The request is conditional if s contains the validators of an earlier response.
func (f *Fetcher) get(ctx context.Context, address string, s state) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "holdfast")
	req.Header.Set("Accept-Encoding", "identity") // limits and checksums apply to the transmitted bytes
	if s.ETag != "" {
		req.Header.Set("If-None-Match", s.ETag)
	}
	if s.LastModified != "" {
		req.Header.Set("If-Modified-Since", s.LastModified)
	}
	return f.Client.Do(req)
}

// save writes a response to an unnamed file, which disappears when it is closed, and
// returns its checksum. It verifies the checksums that the server sent.
func (f *Fetcher) save(resp *http.Response, w *watchdog) (*os.File, string, error) {
	file, err := f.unnamedFile()
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	expected := checksums(resp.Header)
	to := []io.Writer{w, file, sum}
	for _, c := range expected {
		to = append(to, c.hash)
	}
	n, err := io.Copy(io.MultiWriter(to...), io.LimitReader(resp.Body, f.MaxBytes+1))
	switch timed := resp.Request.Context(); {
	case errors.Is(context.Cause(timed), errStalled):
		err = errStalled
	// This is checked even if err is nil, because a cancellation may look like the end of the response.
	case timed.Err() != nil:
		err = errors.New("the response took too long")
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the response is incomplete")
	case err != nil:
		err = errors.New(outbound.Reason(err))
	case n > f.MaxBytes:
		err = outbound.ErrTooLong
	}
	for _, c := range expected {
		if err == nil && c.want != string(c.hash.Sum(nil)) {
			err = errors.New("the response does not match the checksum that the server sent")
		}
	}
	if err != nil {
		return nil, "", errors.Join(err, file.Close())
	}
	return file, hex.EncodeToString(sum.Sum(nil)), nil
}

// unnamedFile returns a file in the directory for downloads that is already unlinked.
func (f *Fetcher) unnamedFile() (*os.File, error) {
	file, err := os.CreateTemp(f.Dir, "feed-*")
	if err == nil {
		if err = os.Remove(file.Name()); err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil { // clients must not see err, because it contains a path of the server
		return nil, &fault.Error{Code: fault.Internal, Message: "the server cannot store the download", Cause: err}
	}
	return file, nil
}

// minProgress is the number of bytes that must arrive within Config.Stall. So a server
// that sends a byte now and then is also stalled.
const minProgress = 64 << 10

// errStalled is returned for a download that a watchdog has canceled.
var errStalled = errors.New("the server sends no data, or sends too slowly")

// A watchdog cancels a download if less than minProgress is written to it within a time.
type watchdog struct {
	within time.Duration
	timer  *time.Timer
	n      int // bytes since the timer was set
	cancel context.CancelCauseFunc
}

func (f *Fetcher) newWatchdog(ctx context.Context) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(f.Stall, func() { cancel(errStalled) })
	return ctx, &watchdog{within: f.Stall, timer: timer, cancel: cancel}
}

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

func (w *watchdog) Write(b []byte) (int, error) {
	if w.n += len(b); w.n >= minProgress {
		w.n = 0
		w.timer.Reset(w.within)
	}
	return len(b), nil
}

// A checksum is a checksum that the server sent for its response.
type checksum struct {
	hash hash.Hash
	want string
}

// checksums parses the checksums in a header: the headers of RFC 9530 and RFC 3230, and the header of the object store
// in which OSV publishes. It returns at most one checksum of each kind, because each costs a pass over the response. If
// the header has different checksums of one kind, the result matches no response.
func checksums(h http.Header) map[string]checksum {
	byKind := map[string]checksum{}
	for _, name := range []string{"Repr-Digest", "Content-Digest", "Digest", "X-Goog-Hash", "Content-Md5"} {
		for _, line := range h.Values(name) {
			if name == "Content-Md5" {
				line = "md5=" + line
			}
			for item := range strings.SplitSeq(line, ",") {
				kind, value, _ := strings.Cut(strings.TrimSpace(item), "=")
				kind = strings.ToLower(kind)
				text, err := base64.StdEncoding.DecodeString(strings.Trim(value, ":"))
				want := string(text)
				c, known := byKind[kind]
				if !known {
					c = checksum{hashOf(kind), want}
				}
				if c.hash == nil || err != nil {
					continue
				}
				if c.want != want {
					c.want = "" // matches no response, because a checksum is never empty
				}
				byKind[kind] = c
			}
		}
	}
	return byKind
}

// hashOf returns the hash function for a kind of checksum, or nil if the kind is unknown. MD5 does not protect against
// attackers, but it detects transmission errors.
func hashOf(kind string) hash.Hash {
	switch kind {
	case "sha-256":
		return sha256.New()
	case "sha-512":
		return sha512.New()
	case "md5":
		return md5.New()
	}
	return nil
}
