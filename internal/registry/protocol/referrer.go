package protocol

import (
	"net/http"
	"strings"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// listReferrers responds with an index of the referrers. If there are none, the index is empty: status 404 would mean
// that this registry does not support referrers.
func (r *Registry) listReferrers(w http.ResponseWriter, req *http.Request, t target) error {
	subject, err := oci.ParseDigest(t.reference)
	if err != nil {
		return err
	}
	q := req.URL.Query()
	kind, last := q.Get("artifactType"), q.Get("last")
	if strings.ContainsRune(kind+last, 0) {
		return oci.NewProblem(http.StatusBadRequest, oci.Unsupported, "artifactType and last cannot contain a NUL character")
	}
	if err := r.fetchReferrers(w, req, &t, subject); err != nil {
		return err
	}
	page, err := r.images.Referrers(req.Context(), t.repo, subject, kind, last)
	if err != nil {
		return err
	}
	if page.More {
		setNext(w, req, page.List[len(page.List)-1].Digest.String())
	}
	if kind != "" {
		w.Header().Set("Oci-Filters-Applied", "artifactType")
	}
	return writeJSON(w, req, ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: page.List,
	})
}
