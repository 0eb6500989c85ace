package transfer

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/link"
)

const indexType = "application/vnd.oci.image.index.v1+json"

// maxReferrers is the largest size of the list of referrers of one manifest, in bytes,
// including all pages.
const maxReferrers = 16 << 20

// A referrer is an entry in a list of attached artifacts. Only these fields are written
// to the target.
type referrer struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// referrers copies the artifacts that are attached to a manifest, by their subject or by
// the tags of cosign.
func (c *Copier) referrers(ctx context.Context, digest string, depth int) error {
	list, err := c.From.referrers(ctx, digest)
	if err != nil {
		return err
	}
	var unlisted []referrer // referrers that the target registry does not list itself
	for _, d := range list {
		if _, err := c.copy(ctx, d.Digest, "", depth+1); err != nil {
			return err
		}
		if !c.noted[d.Digest] {
			unlisted = append(unlisted, d)
		}
	}
	if err := c.note(ctx, digest, unlisted); err != nil {
		return err
	}
	for _, suffix := range []string{".sig", ".att", ".sbom"} {
		tag := tagOf(digest) + suffix
		resp, err := c.From.do(ctx, call{
			method: http.MethodHead, path: c.From.Name + "/manifests/" + tag, scope: c.From.pull(),
			header: map[string]string{"Accept": manifestTypes}, want: []int{http.StatusOK, http.StatusNotFound},
		})
		if err != nil {
			return err
		}
		discard(resp)
		if resp.StatusCode == http.StatusOK {
			if _, err := c.copy(ctx, tag, tag, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// tagOf returns the tag at which clients store the list of referrers, if a registry
// cannot list them.
func tagOf(digest string) string {
	tag := strings.Replace(digest, ":", "-", 1)
	return tag[:min(len(tag), 128)] // a tag has at most 128 characters
}

// referrers returns the artifacts that are attached to a manifest: the registry's list,
// or the list at a tag if the registry has none. A list that is too long is an error,
// because an incomplete copy should not look complete.
func (r Repo) referrers(ctx context.Context, digest string) (found []referrer, _ error) {
	first := r.Name + "/referrers/" + digest
	next, size := first, 0
	for range maxPages {
		resp, err := r.do(ctx, call{method: http.MethodGet, path: next, scope: r.pull(),
			want: []int{http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed}})
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			discard(resp)
			return r.noted(ctx, digest)
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
		discard(resp)
		page, ok := readReferrers(text)
		if err != nil || !ok {
			return nil, problem.New(problem.ExitError, "%s sends an invalid list of referrers", r.Host)
		}
		found = append(found, page...)
		query, ok := link.Next(resp.Header)
		if !ok {
			return found, nil
		}
		if size += len(text); size > maxReferrers || next == first+"?"+query {
			break
		}
		next = first + "?" + query
	}
	return nil, problem.New(problem.ExitError, "the list of referrers of %[2]s at %[1]s does not end", r.Host, digest)
}

// readReferrers reads an index. It returns false if text is not an index or is too long.
func readReferrers(text []byte) ([]referrer, bool) {
	var index struct {
		SchemaVersion int        `json:"schemaVersion"`
		Manifests     []referrer `json:"manifests"`
	}
	if json.Unmarshal(text, &index) != nil || len(text) > maxManifest || index.SchemaVersion != 2 {
		return nil, false
	}
	for _, d := range index.Manifests {
		if _, _, err := hasher(d.Digest); err != nil {
			return nil, false
		}
	}
	return index.Manifests, true
}

// noted returns the list of referrers at the fallback tag of a manifest (sha256-…), or nil
// if there is no such tag.
func (r Repo) noted(ctx context.Context, digest string) ([]referrer, error) {
	resp, err := r.do(ctx, call{method: http.MethodHead, path: r.Name + "/manifests/" + tagOf(digest), scope: r.pull(),
		header: map[string]string{"Accept": manifestTypes}, want: []int{http.StatusOK, http.StatusNotFound}})
	if err != nil {
		return nil, err
	}
	discard(resp)
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	text, _, _, err := r.manifest(ctx, tagOf(digest))
	if err != nil {
		return nil, err
	}
	found, ok := readReferrers(text)
	if !ok {
		return nil, problem.New(problem.ExitError, "%s of %s/%s does not list referrers", tagOf(digest), r.Host, r.Name)
	}
	return found, nil
}

// indexOf returns an index of referrers.
func indexOf(referrers []referrer) ([]byte, error) {
	return json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": referrers})
}

// note adds referrers to the list at the tag of a manifest, for a registry that does not
// list them itself.
func (c *Copier) note(ctx context.Context, digest string, unlisted []referrer) error {
	if len(unlisted) == 0 || c.DryRun {
		return nil
	}
	listed, err := c.To.noted(ctx, digest)
	if err != nil {
		return err
	}
	before := len(listed)
	for _, d := range unlisted {
		if !slices.ContainsFunc(listed, func(r referrer) bool { return r.Digest == d.Digest }) {
			listed = append(listed, d)
		}
	}
	if len(listed) == before {
		return nil
	}
	body, err := indexOf(listed)
	if len(body) > maxManifest {
		for i := range listed {
			listed[i].Annotations = nil // the referrer's manifest contains the annotations
		}
		body, err = indexOf(listed)
	}
	if err != nil {
		return err
	}
	if len(body) > maxManifest {
		return problem.New(problem.ExitError, "%s cannot list the referrers of %s: there are too many for one list",
			c.To.Host, digest)
	}
	_, err = c.put(ctx, tagOf(digest), indexType, body)
	return err
}
