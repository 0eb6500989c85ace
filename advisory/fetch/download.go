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

	"github.com/holdfast-dev/holdfast/advisory/feed"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/outbound"
)

// download asks a server, and keeps what it answers in a file.
func (f *Fetcher) download(ctx context.Context, address string, s state) (Result, error) {
	timed, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	timed, pace := f.newPace(timed)
	defer pace.stop()
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
		return Result{}, errors.New("the server points to another address, and redirects are not followed")
	case resp.StatusCode != http.StatusOK:
		return Result{}, fmt.Errorf("the server answered %s", resp.Status)
	case resp.ContentLength > f.MaxBytes:
		return Result{}, outbound.ErrTooLong
	}
	file, sum, err := f.keep(resp, pace)
	if err != nil {
		return Result{}, err
	}
	next := state{Address: address, ETag: short(resp.Header.Get("ETag")), LastModified: short(resp.Header.Get("Last-Modified")), Sum: sum}
	if sum == s.Sum { // the server does not know conditions, or forgot
		return unchanged(next), file.Close()
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return Result{}, errors.Join(err, file.Close())
	}
	return Result{
		Changed: true, State: next.bytes(), Size: size, Close: file.Close,
		Records: feed.Read(ctx, path.Base(resp.Request.URL.Path), file, size, feed.Limits{}),
	}, nil
}

// short is s, or nothing if it is longer than what anybody means by it: it is kept
// with the feed.
func short(s string) string {
	if len(s) > 256 {
		return ""
	}
	return s
}

// get asks for what changed since.
func (f *Fetcher) get(ctx context.Context, address string, s state) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "holdfast")
	req.Header.Set("Accept-Encoding", "identity") // what is counted is what comes, and checksums are of that
	if s.ETag != "" {
		req.Header.Set("If-None-Match", s.ETag)
	}
	if s.LastModified != "" {
		req.Header.Set("If-Modified-Since", s.LastModified)
	}
	return f.Client.Do(req)
}

// keep writes an answer into a file and returns the checksum of what it wrote. It
// must be what the server says it is. The file has no name any more: whatever
// happens to us, nothing of it stays.
func (f *Fetcher) keep(resp *http.Response, pace *pace) (*os.File, string, error) {
	file, err := f.unnamedFile()
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	promised := promises(resp.Header)
	to := []io.Writer{pace, file, sum}
	for _, p := range promised {
		to = append(to, p.hash)
	}
	n, err := io.Copy(io.MultiWriter(to...), io.LimitReader(resp.Body, f.MaxBytes+1))
	switch timed := resp.Request.Context(); {
	case errors.Is(context.Cause(timed), errStalled):
		err = errStalled
	case timed.Err() != nil: // also if there was an end: hanging up may have made it
		err = errors.New("the answer took too long")
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the answer ends before its end")
	case err != nil:
		err = errors.New(outbound.Reason(err))
	case n > f.MaxBytes:
		err = outbound.ErrTooLong
	}
	for _, p := range promised {
		if err == nil && p.want != string(p.hash.Sum(nil)) {
			err = errors.New("the answer does not have the checksum the server says")
		}
	}
	if err != nil {
		return nil, "", errors.Join(err, file.Close())
	}
	return file, hex.EncodeToString(sum.Sum(nil)), nil
}

// unnamedFile returns a file in the folder for downloads that has no name there.
func (f *Fetcher) unnamedFile() (*os.File, error) {
	file, err := os.CreateTemp(f.Dir, "feed-*")
	if err == nil {
		if err = os.Remove(file.Name()); err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil { // it names a folder of ours
		return nil, &fault.Error{Code: fault.Internal, Message: "the server has no place to keep the download", Cause: err}
	}
	return file, nil
}

// minProgress is how many bytes must come within Config.Stall, so that a server
// that sends a byte now and then is as stalled as one that sends none.
const minProgress = 64 << 10

// errStalled is why a download ended before its time.
var errStalled = errors.New("the server sends nothing, or too little")

// A pace cancels a download once less than minProgress has come within a time.
// Downloads write to it what comes.
type pace struct {
	within time.Duration
	timer  *time.Timer
	n      int // bytes since the timer was set
	cancel context.CancelCauseFunc
}

func (f *Fetcher) newPace(ctx context.Context) (context.Context, *pace) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &pace{within: f.Stall, timer: time.AfterFunc(f.Stall, func() { cancel(errStalled) }), cancel: cancel}
}

func (p *pace) stop() {
	p.timer.Stop()
	p.cancel(nil)
}

// Write implements io.Writer.
func (p *pace) Write(b []byte) (int, error) {
	if p.n += len(b); p.n >= minProgress {
		p.n = 0
		p.timer.Reset(p.within)
	}
	return len(b), nil
}

// A promise is a checksum the server says its answer has.
type promise struct {
	hash hash.Hash
	want string
}

// promises reads the checksums in a header: those of RFC 9530 and of RFC 3230
// before it, and the one that the store in which OSV publishes sends. It returns
// at most one of each kind, because each costs a pass over the answer. If the
// header has several of a kind that differ, no answer has them all, and the
// promise is one that cannot be kept.
func promises(h http.Header) map[string]promise {
	all := map[string]promise{}
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
				p, known := all[kind]
				if !known {
					p = promise{hashOf(kind), want}
				}
				if p.hash == nil || err != nil {
					continue
				}
				if p.want != want {
					p.want = "" // no checksum is empty
				}
				all[kind] = p
			}
		}
	}
	return all
}

// hashOf returns nil for a checksum we do not know. MD5 is no protection against
// anybody, but it does tell of what got lost on the way.
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
