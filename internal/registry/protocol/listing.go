package protocol

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The largest number of entries on a page. A Link header names the next page.
const (
	tagPage  = 10_000
	repoPage = page.MaxSize
)

func (r *Registry) listTags(w http.ResponseWriter, req *http.Request, t target) error {
	n, err := pageSize(req, tagPage)
	if err != nil {
		return err
	}
	if t.repo == "" {
		return oci.NewProblem(http.StatusNotFound, oci.NameUnknown, "there is no repository %s", t.name)
	}
	tags, err := r.store.TagNames(req.Context(), t.repo, req.URL.Query().Get("last"), n+1)
	if err != nil {
		return err
	}
	if len(tags) > n {
		tags = tags[:n]
		if n > 0 {
			setNext(w, req, tags[n-1])
		}
	}
	return writeJSON(w, req, "application/json", struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{t.name, tags})
}

// pageSize returns the number of entries that a client asks for, limited to most.
func pageSize(req *http.Request, most int) (int, error) {
	q := req.URL.Query()
	if !q.Has("n") {
		return most, nil
	}
	asked, err := strconv.Atoi(q.Get("n"))
	if err != nil || asked < 0 {
		return 0, oci.NewProblem(http.StatusBadRequest, oci.Unsupported, "n=%.20q is not a number of entries", q.Get("n"))
	}
	if last := q.Get("last"); len(last) > oci.MaxName || strings.ContainsRune(last, 0) {
		return 0, oci.NewProblem(http.StatusBadRequest, oci.Unsupported, "last is not the name of an entry")
	}
	return min(asked, most), nil
}

// setNext sets the Link header to the address of the page that begins after last.
func setNext(w http.ResponseWriter, req *http.Request, last string) {
	q := req.URL.Query()
	q.Set("last", last)
	u := url.URL{Path: req.URL.Path, RawQuery: q.Encode()}
	w.Header().Set("Link", "<"+u.String()+`>; rel="next"`)
}

// listRepos serves the catalog: the repos that the caller may list, ordered by UID.
func (r *Registry) listRepos(w http.ResponseWriter, req *http.Request, _ target) error {
	ctx := req.Context()
	n, err := pageSize(req, repoPage)
	if err != nil {
		return err
	}
	names := []string{}
	reach, err := r.authz.Reach(ctx, resource.RepoList)
	if err != nil && !errors.Is(err, fault.Unauthenticated) {
		return err
	}
	p := page.Request{Size: max(n, 1), Order: page.Order{Field: "uid"}}
	if last := req.URL.Query().Get("last"); last != "" {
		repo, err := r.store.UncachedRepo(ctx, strings.Split(last, "/"))
		if err == nil && !store.Covered(reach, repo) {
			err = fault.Missing("repo", last)
		}
		if err != nil {
			return oci.StoreProblem(err, oci.NameUnknown, "repository "+last)
		}
		p.After = &page.Cursor{UID: string(repo)}
	}
	found, err := r.store.Repos(ctx, store.Reach{Under: reach}, resource.Filter{}, p)
	if err != nil {
		return err
	}
	for _, repo := range found.Items[:min(n, len(found.Items))] {
		name, err := r.store.RepoPath(ctx, repo.UID)
		if errors.Is(err, fault.NotFound) { // the repo was just deleted
			continue
		}
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if found.Last != nil && len(names) > 0 {
		setNext(w, req, names[len(names)-1])
	}
	return writeJSON(w, req, "application/json", map[string][]string{"repositories": names})
}
