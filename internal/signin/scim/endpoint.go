package scim

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/patch"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
)

// serveUsers serves /Users and /Users/{id}.
func (s *Service) serveUsers(w http.ResponseWriter, r *http.Request, c client, id string) error {
	if id == "" {
		if err := allow(w, r, http.MethodGet, http.MethodPost); err != nil {
			return err
		}
		if r.Method == http.MethodPost {
			return s.postUser(w, r, c)
		}
		return s.writeList(w, r, s.users(c.provider.UID), fromAddress(r))
	}
	if err := allow(w, r, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete); err != nil {
		return err
	}
	p, err := projectionOf(r.URL.Query())
	if err != nil {
		return err
	}
	match := matcher(r.Header.Values("If-Match"))
	var u scimdb.User
	switch r.Method {
	case http.MethodGet:
		u, err = s.store.User(r.Context(), c.provider.UID, id)
		if err == nil && matcher(r.Header.Values("If-None-Match")).has(u.Version) {
			w.Header().Set("ETag", etagOf(u.Version))
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	case http.MethodDelete:
		if err = s.deleteUser(r.Context(), c, id, match); err == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	default:
		u, err = s.writeUser(r, c, id, match)
	}
	if err != nil {
		return err
	}
	return s.answer(w, http.StatusOK, c, u, p)
}

// writeUser serves PUT and PATCH of a user.
func (s *Service) writeUser(r *http.Request, c client, id string, match matcher) (u scimdb.User, _ error) {
	o, err := readBody(r)
	if err != nil {
		return u, err
	}
	if r.Method == http.MethodPut {
		return s.replaceUser(r.Context(), c, id, match, o)
	}
	operations, err := patch.Parse(o)
	if err != nil {
		return u, err
	}
	return s.patchUser(r.Context(), c, id, match, operations)
}

func (s *Service) postUser(w http.ResponseWriter, r *http.Request, c client) error {
	p, err := projectionOf(r.URL.Query())
	if err != nil {
		return err
	}
	o, err := readBody(r)
	if err != nil {
		return err
	}
	u, err := s.createUser(r.Context(), c, o)
	if err != nil {
		return err
	}
	w.Header().Set("Location", s.Endpoint(c.provider.UID)+"/Users/"+u.ID)
	return s.answer(w, http.StatusCreated, c, u, p)
}

func (s *Service) answer(
	w http.ResponseWriter, status int, c client, u scimdb.User, p document.Projection,
) error {
	w.Header().Set("ETag", etagOf(u.Version))
	return write(w, status, p.Apply(s.render(c.provider.UID, u)))
}

// A matcher has the values of the header If-Match or If-None-Match.
type matcher []string

// has reports whether the header lists a version.
func (m matcher) has(version int64) bool {
	for _, value := range m {
		for tag := range strings.SplitSeq(value, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
			if tag == "*" || "W/"+tag == etagOf(version) {
				return true
			}
		}
	}
	return false
}

// check returns an error with status 412 if the header If-Match excludes a version.
func (m matcher) check(version int64) error {
	if len(m) == 0 || m.has(version) {
		return nil
	}
	return &document.Error{Status: http.StatusPreconditionFailed, Detail: "The resource has changed since it was read."}
}

// search serves a query that is sent with POST.
func (s *Service) search(w http.ResponseWriter, r *http.Request, c collection) error {
	if err := allow(w, r, http.MethodPost); err != nil {
		return err
	}
	o, err := readBody(r)
	if err != nil {
		return err
	}
	return s.writeList(w, r, c, values{
		text: func(name string) string {
			_, v, _ := document.Get(o, name)
			if n, ok := v.(json.Number); ok {
				return n.String()
			}
			text, _ := v.(string)
			return text
		},
		names: func(name string) []string {
			_, v, _ := document.Get(o, name)
			list, ok := v.([]any)
			if !ok && v != nil {
				list = []any{v}
			}
			var names []string
			for _, v := range list {
				text, _ := v.(string)
				names = append(names, text)
			}
			return splitNames(names)
		},
	})
}

// fromAddress returns the parameters in the address of a request.
func fromAddress(r *http.Request) values {
	q := r.URL.Query()
	return values{text: q.Get, names: func(name string) []string { return splitNames(q[name]) }}
}

// values are the parameters of a query, from an address or a body.
type values struct {
	text  func(name string) string
	names func(name string) []string
}

func splitNames(texts []string) (names []string) {
	for _, text := range texts {
		names = append(names, strings.Split(text, ",")...)
	}
	return names
}

func projectionOf(q url.Values) (document.Projection, error) {
	return document.NewProjection(splitNames(q["attributes"]), splitNames(q["excludedAttributes"]))
}

// writeList writes the page that the parameters select.
func (s *Service) writeList(w http.ResponseWriter, r *http.Request, c collection, v values) error {
	p, err := document.NewProjection(v.names("attributes"), v.names("excludedAttributes"))
	if err != nil {
		return err
	}
	q, err := readQuery(v)
	if err != nil {
		return err
	}
	if c.check != nil {
		if err := c.check(q); err != nil {
			return err
		}
	}
	page, total, err := c.list(r.Context(), q)
	if err == nil && c.complete != nil && !p.Excludes(membersAttribute) {
		page, err = c.complete(r.Context(), page)
	}
	if err != nil {
		return err
	}
	for i := range page {
		page[i] = p.Apply(page[i])
	}
	return write(w, http.StatusOK, listOf(page, total, q.start))
}

func readQuery(v values) (q query, err error) {
	if q.start, err = number(v, "startIndex", 1); err != nil {
		return q, err
	}
	if q.count, err = number(v, "count", defaultCount); err != nil {
		return q, err
	}
	q.start, q.count = max(q.start, 1), min(max(q.count, 0), document.MaxResults)
	if text := v.text("filter"); text != "" {
		if q.filter, err = filter.Parse(text); err != nil {
			return q, err
		}
	}
	if text := v.text("sortBy"); text != "" {
		path, err := filter.ParsePath(text)
		if err != nil {
			return q, err
		}
		q.sortBy, q.descending = &path, strings.EqualFold(v.text("sortOrder"), "descending")
	}
	return q, nil
}

// maxNumber is the greatest startIndex; a directory has fewer users.
const maxNumber = 1 << 30

func number(v values, name string, otherwise int) (int, error) {
	text := v.text(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, document.Bad(document.InvalidValue, "The parameter %s must be a number.", name)
	}
	return min(n, maxNumber), nil
}
