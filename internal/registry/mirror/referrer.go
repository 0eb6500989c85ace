package mirror

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

// Limits on the referrers of one image that are fetched from an upstream.
const (
	maxFetchedReferrers = 64
	maxReferrerPages    = 16
)

// Outcomes of fetching referrers.
const (
	allReferrers  = "all"
	someReferrers = "some" // the upstream lists more referrers than the limits allow to fetch
)

// FetchReferrers stores the referrers of a subject that the upstream has. If the upstream fails, or has more
// referrers than the limits allow, it returns a warning for the client. The client then gets the referrers that are
// stored.
func (f *Fetcher) FetchReferrers(ctx context.Context, s *Source, path string, subject digest.Digest) (warning string) {
	key := seenKey{s.UID, path + "@" + subject.String(), s.UpdateTime}
	cut := key
	cut.tag += " cut off"
	if seen, ok := f.seen.Get(key); !ok || f.store.Time().Sub(seen) >= s.FreshFor {
		fetched, err := f.shareReferrers(ctx, s, path, subject)
		switch {
		case err != nil && ctx.Err() == nil:
			warning = noAnswer(err)
		case err == nil && fetched == someReferrers:
			f.seen.Add(cut, f.store.Time())
		case err == nil:
			f.seen.Remove(cut)
		}
		if err == nil {
			f.seen.Add(key, f.store.Time())
		}
	}
	if f.seen.Contains(cut) && warning == "" {
		warning = "lists more than " + strconv.Itoa(maxFetchedReferrers) +
			" referrers, or does not end its list: not all were fetched"
	}
	return warning
}

// shareReferrers is copyReferrers, but concurrent calls for the same subject share one result.
func (f *Fetcher) shareReferrers(
	ctx context.Context, s *Source, path string, subject digest.Digest,
) (fetched string, _ error) {
	key := string(s.UID) + " referrers " + path + " " + subject.String()
	return f.shared.do(ctx, key, func(ctx context.Context) (string, error) {
		if err := f.pauses.err(s.UID, true, f.config.Now()); err != nil {
			return "", err
		}
		return f.copyReferrers(ctx, s, path, subject)
	})
}

// copyReferrers stores the referrers of a subject. It returns allReferrers or someReferrers.
func (f *Fetcher) copyReferrers(
	ctx context.Context, s *Source, path string, subject digest.Digest,
) (fetched string, _ error) {
	list, fetched, err := f.listReferrers(ctx, s, subject)
	if upstream.NotFound(err) || upstream.Unsupported(err) { // the registry does not have the referrers endpoint
		list, fetched, err = f.taggedReferrers(ctx, s, path, subject)
	}
	if err != nil {
		return "", err
	}
	for _, d := range list {
		if _, err := f.fetchManifest(ctx, s, path, d, ""); err != nil && !upstream.NotFound(err) {
			return "", err
		}
	}
	return fetched, nil
}

// listReferrers returns the digests of the referrers that the upstream lists. It reads the pages of the list until the
// end, the limit, or a page that it has already read.
func (f *Fetcher) listReferrers(
	ctx context.Context, s *Source, subject digest.Digest,
) (list []string, fetched string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, manifestTime)
	defer cancel()
	end, err := f.short.take(ctx, s.UID.Root())
	if err != nil {
		return nil, "", err
	}
	defer end()
	read := map[string]bool{}
	for query := ""; len(read) < maxReferrerPages && !read[query]; {
		read[query] = true
		page, err := f.config.Upstreams.Referrers(ctx, f.remote(s.Upstream), s.repo(), subject.String(), query)
		f.noteAnswer(ctx, s, err)
		if err != nil {
			return nil, "", err
		}
		longer, fits, err := addReferrers(list, page.Body)
		if err != nil || !fits {
			return longer, someReferrers, err
		}
		if !page.More {
			return longer, allReferrers, nil
		}
		list, query = longer, page.Next
	}
	return list, someReferrers, nil
}

// taggedReferrers fetches the index at the referrers tag of a subject, in which clients list referrers if a registry
// lacks the referrers endpoint. It returns the digests of the referrers in that index.
func (f *Fetcher) taggedReferrers(
	ctx context.Context, s *Source, path string, subject digest.Digest,
) (list []string, fetched string, _ error) {
	tag := oci.ReferrersTag(subject)
	_, err := f.fetchManifest(ctx, s, path, tag, "")
	if upstream.NotFound(err) {
		return nil, allReferrers, nil
	}
	if err != nil {
		return nil, "", err
	}
	repo, err := f.RepoOf(ctx, s, path)
	if err != nil {
		return nil, "", err
	}
	m, err := f.store.Manifest(ctx, repo, tag)
	if err != nil {
		return nil, "", err
	}
	list, fits, err := addReferrers(nil, m.Body)
	if !fits {
		return list, someReferrers, err
	}
	return list, allReferrers, err
}

// addReferrers adds the digests in an index to a list, without duplicates. fits is false if the list would exceed the
// limit.
func addReferrers(list []string, body []byte) (_ []string, fits bool, _ error) {
	var index ocispec.Index
	if err := json.Unmarshal(body, &index); err != nil || index.SchemaVersion != 2 {
		return nil, false, &upstream.Error{Reason: "what it sent is no list of referrers", Cause: err}
	}
	for _, d := range index.Manifests {
		if _, err := oci.ParseDigest(d.Digest.String()); err != nil {
			return nil, false, &upstream.Error{Reason: "what it sent is no list of referrers", Cause: err}
		}
		if slices.Contains(list, d.Digest.String()) {
			continue
		}
		if len(list) == maxFetchedReferrers {
			return list, false, nil
		}
		list = append(list, d.Digest.String())
	}
	return list, true, nil
}
