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

	"github.com/holdfast-dev/holdfast/advisory/feed"
	"github.com/holdfast-dev/holdfast/outbound"
)

// download asks a server, and keeps what it answers in a file.
func (f *Fetcher) download(ctx context.Context, address string, s state) (Result, error) {
	timed, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	resp, err := f.get(timed, address, s)
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
	file, sum, err := f.keep(resp)
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
func (f *Fetcher) keep(resp *http.Response) (*os.File, string, error) {
	file, err := os.CreateTemp(f.Dir, "feed-*")
	if err != nil {
		return nil, "", fmt.Errorf("keep a feed: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, "", fmt.Errorf("keep a feed: %w", errors.Join(err, file.Close()))
	}
	sum := sha256.New()
	promised := promises(resp.Header)
	to := []io.Writer{file, sum}
	for _, p := range promised {
		to = append(to, p.hash)
	}
	n, err := io.Copy(io.MultiWriter(to...), io.LimitReader(resp.Body, f.MaxBytes+1))
	switch {
	case resp.Request.Context().Err() != nil: // also if there was an end: hanging up may have made it
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

// A promise is a checksum the server says its answer has.
type promise struct {
	hash hash.Hash
	want string
}

// promises reads the checksums in a header: those of RFC 9530 and of RFC 3230
// before it, and the one that the store in which OSV publishes sends.
func promises(h http.Header) []promise {
	var all []promise
	for _, name := range []string{"Repr-Digest", "Content-Digest", "Digest", "X-Goog-Hash", "Content-Md5"} {
		for _, line := range h.Values(name) {
			if name == "Content-Md5" {
				line = "md5=" + line
			}
			for item := range strings.SplitSeq(line, ",") {
				kind, value, _ := strings.Cut(strings.TrimSpace(item), "=")
				want, err := base64.StdEncoding.DecodeString(strings.Trim(value, ":"))
				if sum := hashOf(kind); sum != nil && err == nil {
					all = append(all, promise{sum, string(want)})
				}
			}
		}
	}
	return all
}

// hashOf returns nil for a checksum we do not know. MD5 is no protection against
// anybody, but it does tell of what got lost on the way.
func hashOf(kind string) hash.Hash {
	switch strings.ToLower(kind) {
	case "sha-256":
		return sha256.New()
	case "sha-512":
		return sha512.New()
	case "md5":
		return md5.New()
	}
	return nil
}
