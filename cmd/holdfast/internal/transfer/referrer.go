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

// maxReferrers is how much a list of what is attached to one manifest may have, in bytes, with all of its pages.
const maxReferrers = 16 << 20

// A referrer is an entry in a list of what is attached. What else a registry sends is not written to another.
type referrer struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// referrers copies what is attached to a manifest: by its subject, and by tags as cosign makes them.
func (c *Copier) referrers(ctx context.Context, digest string, depth int) error {
	list, err := c.From.referrers(ctx, digest)
	if err != nil {
		return err
	}
	var unlisted []referrer // by the registry that they are copied to
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
		resp, err := c.From.do(ctx, call{method: http.MethodHead, path: c.From.Name + "/manifests/" + tag, scope: c.From.pull(),
			header: map[string]string{"Accept": manifestTypes}, want: []int{http.StatusOK, http.StatusNotFound}})
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

// tagOf returns the tag at which clients note what is attached to a manifest, if a registry cannot list that.
func tagOf(digest string) string {
	tag := strings.Replace(digest, ":", "-", 1)
	return tag[:min(len(tag), 128)] // as long as a tag can be
}

// referrers returns what is attached to a manifest: what the registry lists, or what is noted at a tag if it cannot. A list
// that is too long is an error, because a copy that is not whole should not look like one.
func (r Repo) referrers(ctx context.Context, digest string) (all []referrer, _ error) {
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
		some, ok := readReferrers(text)
		if err != nil || !ok {
			return nil, problem.New(problem.ExitError, "%s does not list referrers as it should", r.Host)
		}
		all = append(all, some...)
		query, more := link.Next(resp.Header)
		if !more {
			return all, nil
		}
		if size += len(text); size > maxReferrers || next == first+"?"+query {
			break
		}
		next = first + "?" + query
	}
	return nil, problem.New(problem.ExitError, "%s lists referrers of %s without end", r.Host, digest)
}

// readReferrers reads an index. It reports false if it is none, or too long.
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

// noted returns what is noted at the tag of a manifest: nothing, if there is none.
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
	all, ok := readReferrers(text)
	if !ok {
		return nil, problem.New(problem.ExitError, "%s of %s/%s does not list referrers", tagOf(digest), r.Host, r.Name)
	}
	return all, nil
}

// indexOf returns an index of referrers.
func indexOf(all []referrer) ([]byte, error) {
	return json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": all})
}

// note adds referrers to those that are noted at the tag of a manifest, for a registry that does not list them itself.
func (c *Copier) note(ctx context.Context, digest string, unlisted []referrer) error {
	if len(unlisted) == 0 || c.DryRun {
		return nil
	}
	all, err := c.To.noted(ctx, digest)
	if err != nil {
		return err
	}
	before := len(all)
	for _, d := range unlisted {
		if !slices.ContainsFunc(all, func(there referrer) bool { return there.Digest == d.Digest }) {
			all = append(all, d)
		}
	}
	if len(all) == before {
		return nil
	}
	body, err := indexOf(all)
	if len(body) > maxManifest {
		for i := range all {
			all[i].Annotations = nil // they are in its manifest, too
		}
		body, err = indexOf(all)
	}
	if err != nil {
		return err
	}
	if len(body) > maxManifest {
		return problem.New(problem.ExitError, "%s cannot list the referrers of %s: they are too many for its tag", c.To.Host, digest)
	}
	_, err = c.put(ctx, tagOf(digest), indexType, body)
	return err
}
