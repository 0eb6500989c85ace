package protocol

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// A target is the resource that the path of a request names.
type target struct {
	kind      string // base, token, catalog, tags, uploads, upload, blob, manifest or referrers
	name      string // names of the groups and of the repo, separated by slashes
	reference string // digest, tag or ID of an upload

	group resource.UID // group of the repo, or the nearest existing group above it
	found bool         // whether the group of the repo exists
	repo  resource.UID // "" if the repo does not exist

	cached bool // whether repo comes from the cache

	public bool // whether the caller is allowed only because the repo is public
	unsaid bool // whether the client did not name the repo; then a denial is neither counted nor recorded

	method string // HTTP method; "" if the target is the source of a mounted blob
}

// base returns the last part of the name, which is the name of the repo in its group.
func (t target) base() string { return t.name[strings.LastIndexByte(t.name, '/')+1:] }

// An endpoint handles requests with one method for one kind of target.
type endpoint struct {
	needs []resource.Capability
	serve func(*Registry, http.ResponseWriter, *http.Request, target) error
}

// The capabilities that endpoints need. There are no capabilities to push or delete
// blobs: a caller who may push manifests may push blobs.
var (
	pullBlob  = []resource.Capability{resource.RepoBlobsGet}
	pull      = []resource.Capability{resource.ManifestList}
	push      = []resource.Capability{resource.ManifestCreate}
	remove    = []resource.Capability{resource.ManifestDelete}
	listTags  = []resource.Capability{resource.TagList}
	referrers = []resource.Capability{resource.ReferrersList}
)

// endpoints are the endpoints of the protocol, by method and kind of target. The comments are their numbers in the
// OCI specification.
var endpoints = map[string]endpoint{
	"GET base":    {nil, (*Registry).base}, // end-1
	"HEAD base":   {nil, (*Registry).base},
	"GET token":   {nil, (*Registry).serveToken},
	"POST token":  {nil, (*Registry).serveToken},
	"GET catalog": {nil, (*Registry).listRepos},

	"GET blob":    {pullBlob, (*Registry).getBlob}, // end-2
	"HEAD blob":   {pullBlob, (*Registry).getBlob},
	"DELETE blob": {remove, (*Registry).deleteBlob}, // end-10

	"POST uploads":  {push, (*Registry).startUpload},  // end-4a, 4b, 4c, 11
	"GET upload":    {push, (*Registry).statUpload},   // end-13
	"PATCH upload":  {push, (*Registry).patchUpload},  // end-5
	"PUT upload":    {push, (*Registry).putUpload},    // end-6
	"DELETE upload": {push, (*Registry).cancelUpload}, // end-14

	"GET manifest":    {pull, (*Registry).getManifest}, // end-3
	"HEAD manifest":   {pull, (*Registry).getManifest},
	"PUT manifest":    {push, (*Registry).putManifest},   // end-7a, 7b
	"DELETE manifest": {nil, (*Registry).deleteManifest}, // end-9

	"GET tags":      {listTags, (*Registry).listTags},       // end-8a, 8b
	"GET referrers": {referrers, (*Registry).listReferrers}, // end-12a, 12b
}

// Writes returns the endpoints that are not called with GET or HEAD, each as its method and the kind of its target.
// Tests use it to find every endpoint that may change something.
func Writes() (names []string) {
	for name := range endpoints {
		if method, _, _ := strings.Cut(name, " "); method != http.MethodGet && method != http.MethodHead {
			names = append(names, name)
		}
	}
	return names
}

// parseTarget parses a path from its end, because a name has any number of segments and may contain "blobs" or
// "manifests". http.ServeMux cannot do this, because its {name...} must come last.
func parseTarget(u *url.URL) (target, error) {
	notFound := oci.NewProblem(http.StatusNotFound, oci.Unsupported, "no such address")
	if strings.Contains(strings.ToLower(u.RawPath), "%2f") {
		return target{}, oci.NewProblem(http.StatusBadRequest, oci.NameInvalid, "a slash in a name cannot be encoded")
	}
	rest, ok := strings.CutPrefix(u.Path, "/v2")
	switch {
	case ok && (rest == "" || rest == "/"):
		return target{kind: "base"}, nil
	case rest == "/token":
		return target{kind: "token"}, nil
	case rest == "/_catalog":
		return target{kind: "catalog"}, nil
	}
	rest, ok = strings.CutPrefix(rest, "/")
	if !ok {
		return target{}, notFound
	}
	if name, ok := strings.CutSuffix(rest, "/tags/list"); ok {
		return newTarget("tags", name, "")
	}
	if name, ok := strings.CutSuffix(strings.TrimSuffix(rest, "/"), "/blobs/uploads"); ok {
		return newTarget("uploads", name, "")
	}
	i := strings.LastIndexByte(rest, '/')
	if i < 0 {
		return target{}, notFound
	}
	rest, reference := rest[:i], rest[i+1:]
	for _, k := range [...]struct{ suffix, kind string }{
		{"/blobs/uploads", "upload"}, {"/blobs", "blob"}, {"/manifests", "manifest"}, {"/referrers", "referrers"},
	} {
		if name, ok := strings.CutSuffix(rest, k.suffix); ok {
			return newTarget(k.kind, name, reference)
		}
	}
	return target{}, notFound
}

func newTarget(kind, name, reference string) (target, error) {
	t := target{kind: kind, name: name, reference: reference}
	if !oci.ValidName(name) {
		return target{}, oci.NewProblem(http.StatusBadRequest, oci.NameInvalid,
			"%.300q is not the name of a repository", name)
	}
	return t, nil
}

// fetchable reports whether the content of a target can be fetched from an upstream.
func (t target) fetchable() bool {
	return (t.method == http.MethodGet || t.method == http.MethodHead) &&
		(t.kind == "manifest" || t.kind == "blob" || t.kind == "referrers")
}
