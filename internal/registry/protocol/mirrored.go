package protocol

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
)

// updateManifest compares the manifest of a target that mirrors source with the upstream, and returns the current
// manifest. m and err are the result of reading the stored manifest. updateManifest sets the repo of the target,
// because a fetch may create it.
func (r *Registry) updateManifest(
	w http.ResponseWriter, req *http.Request, t *target, source *mirror.Source, m registry.Manifest, err error,
) (registry.Manifest, error) {
	if err != nil && !errors.Is(err, fault.NotFound) {
		return m, err
	}
	pull := mirror.Pull{Path: t.name, Repo: t.repo, Reference: t.reference, Public: t.public}
	if err == nil {
		pull.Stored = m.Digest
	}
	changed, warning, failed := r.mirror.Update(req.Context(), source, pull)
	if failed != nil {
		return m, failed
	}
	if warning != "" {
		warn(w, source, warning)
	}
	if !changed {
		return m, err
	}
	if err := r.relocate(req.Context(), t, source); err != nil {
		return m, err
	}
	return r.readManifest(req.Context(), *t)
}

// relocate sets the repo of a target again, because a fetch may have created the repo.
func (r *Registry) relocate(ctx context.Context, t *target, source *mirror.Source) error {
	repo, err := r.mirror.RepoOf(ctx, source, t.name)
	if err == nil {
		t.repo, t.group, t.found = repo, repo.Parent(), true
	}
	return err
}

// warn sets the Warning header, which says why a stored response may be outdated or incomplete.
func warn(w http.ResponseWriter, source *mirror.Source, text string) {
	text = strings.Map(func(c rune) rune {
		if c == '"' || c == '\\' || c < ' ' || c > '~' {
			return -1
		}
		return c
	}, "this is what was fetched before: "+source.Name+" "+text)
	w.Header().Set("Warning", `299 - "`+text+`"`)
}

// fetchBlob serves a blob that is not stored. It fetches the blob from the upstream of the target, and sends it while
// it arrives. It returns missing if the target has no upstream or the caller may not cause a fetch.
func (r *Registry) fetchBlob(
	w http.ResponseWriter, req *http.Request, t target, d digest.Digest, missing error,
) error {
	ctx := req.Context()
	source, err := r.mirror.SourceOf(ctx, t.group, t.name)
	if err != nil {
		return err
	}
	if source == nil || !r.mirror.MayFetch(source, t.public) {
		return missing
	}
	if req.Method == http.MethodHead {
		return r.statBlob(w, req, source, d)
	}
	arriving := r.mirror.FetchBlob(ctx, source, t.name, d)
	defer arriving.Leave()
	size, err := arriving.Size(ctx)
	if err == nil && (size < 0 || req.Header.Get("Range") != "") { // serve the blob once it is stored
		if err = arriving.Wait(ctx); err == nil {
			if err = r.relocate(ctx, &t, source); err == nil {
				return r.storedBlob(w, req, t, d)
			}
		}
	}
	if err != nil {
		return r.mirror.Problem(ctx, source, err)
	}
	setBlob(w, d)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	sent := &countingWriter{Writer: &guardedWriter{w, ctx}}
	err = arriving.CopyTo(ctx, sent, func() {
		if sent.n > 0 {
			_ = http.NewResponseController(w).Flush() // not every writer supports Flush
		}
	})
	if err != nil && sent.n == 0 {
		return r.mirror.Problem(ctx, source, err)
	}
	return nil // an error needs no response: the client gets fewer bytes than Content-Length
}

// A countingWriter counts the bytes that are written to it.
type countingWriter struct {
	io.Writer
	n int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n += int64(n)
	return n, err
}

// statBlob serves the headers of a blob that only the upstream has.
func (r *Registry) statBlob(w http.ResponseWriter, req *http.Request, source *mirror.Source, d digest.Digest) error {
	size, err := r.mirror.StatBlob(req.Context(), source, d)
	if err != nil {
		return err
	}
	setBlob(w, d)
	w.Header().Set("Accept-Ranges", "bytes")
	if size >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
	return nil
}

// fetchReferrers fetches the referrers of a subject from the upstream of a target and stores them, if the target has
// an upstream and the caller may cause a fetch. It sets the repo of the target, because a fetch may create it.
func (r *Registry) fetchReferrers(w http.ResponseWriter, req *http.Request, t *target, subject digest.Digest) error {
	ctx := req.Context()
	source, err := r.mirror.SourceOf(ctx, t.group, t.name)
	if err != nil || source == nil || !r.mirror.MayFetch(source, t.public) {
		return err
	}
	if warning := r.mirror.FetchReferrers(ctx, source, t.name, subject); warning != "" {
		warn(w, source, warning)
	}
	if err := r.relocate(ctx, t, source); err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}
