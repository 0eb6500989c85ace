package scim

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
)

const (
	defaultCount = 100    // resources on a page
	maxScan      = 10_000 // resources that a query without an index may read
	scanChunk    = 200    // resources that one statement reads
	maxSortKey   = 256    // bytes of a value that sorting considers
)

// A query selects resources of one type of a directory.
type query struct {
	filter     *filter.Filter // nil selects all
	start      int            // number of the first resource of the page, from 1
	count      int            // resources on the page
	sortBy     *filter.Path   // nil sorts by creation
	descending bool
}

// A collection has the resources of one type of a directory.
type collection struct {
	noun  string // for messages
	total func(ctx context.Context) (int, error)
	page  func(ctx context.Context, skip, n int) ([]document.Object, error)
	keys  []indexed
	byID  func(ctx context.Context, id string) ([]document.Object, error)

	// check refuses queries; nil refuses none. complete adds members; nil adds none.
	check    func(q query) error
	complete func(ctx context.Context, page []document.Object) ([]document.Object, error)
}

// An indexed attribute finds resources without reading all of them.
type indexed struct {
	attribute, sub string
	find           func(ctx context.Context, value string) ([]document.Object, error)
}

// list returns a page of resources, and the number of all resources that the query selects. A query by an indexed
// attribute, and a query without filter and order, cost what their page costs. Other queries read all resources, so
// list refuses them in large directories.
func (c collection) list(ctx context.Context, q query) (page []document.Object, total int, err error) {
	if q.filter == nil && q.sortBy == nil {
		if total, err = c.total(ctx); err != nil || q.count == 0 {
			return nil, total, err
		}
		page, err = c.page(ctx, q.start-1, q.count)
		return page, total, err
	}
	if found, ok, err := c.byKey(ctx, q.filter); ok || err != nil {
		found = slices.DeleteFunc(found, func(o document.Object) bool { return !q.filter.Matches(o) })
		return q.cut(found), len(found), err
	}
	return c.scan(ctx, q)
}

// cut returns the page of a query from all of its results.
func (q query) cut(results []document.Object) []document.Object {
	first := min(q.start-1, len(results))
	return results[first:min(first+q.count, len(results))]
}

// byKey returns the resources that a filter can select, if an index finds them.
func (c collection) byKey(ctx context.Context, f *filter.Filter) ([]document.Object, bool, error) {
	for _, part := range f.Required() {
		for _, key := range c.keys {
			value, ok := part.EqualTo(key.attribute, key.sub)
			if !ok {
				continue
			}
			if !input.Readable(value) {
				return nil, true, nil
			}
			found, err := key.find(ctx, value)
			return found, true, err
		}
	}
	return nil, false, nil
}

// A match is a resource that a query selects.
type match struct{ key, id string }

// scan reads all resources of a small directory, and returns those that a query selects.
func (c collection) scan(ctx context.Context, q query) ([]document.Object, int, error) {
	var matches []match
	for skip := 0; ; skip += scanChunk {
		if skip >= maxScan {
			return nil, 0, document.Bad(document.TooMany,
				"The directory has more than %d %s; filter by %s, without an order.", maxScan, c.noun, c.keyNames())
		}
		chunk, err := c.page(ctx, skip, scanChunk)
		if err != nil {
			return nil, 0, err
		}
		for _, o := range chunk {
			if q.filter == nil || q.filter.Matches(o) {
				matches = append(matches, match{q.sortKey(o), document.Text(o, "id")})
			}
		}
		if len(chunk) < scanChunk {
			break
		}
	}
	if q.sortBy != nil {
		slices.SortStableFunc(matches, func(a, b match) int {
			if q.descending {
				a, b = b, a
			}
			return strings.Compare(a.key, b.key)
		})
	}
	first := min(q.start-1, len(matches))
	var page []document.Object
	for _, m := range matches[first:min(first+q.count, len(matches))] {
		found, err := c.byID(ctx, m.id)
		if err != nil {
			return nil, 0, err
		}
		page = append(page, found...)
	}
	return page, len(matches), nil
}

func (c collection) keyNames() string {
	var names []string
	for _, key := range c.keys {
		names = append(names, strings.TrimSuffix(key.attribute+"."+key.sub, "."))
	}
	return strings.Join(names, ", ")
}

// users returns the users of a directory.
func (s *Service) users(provider resource.UID) collection {
	by := func(key scimdb.Key) func(context.Context, string) ([]document.Object, error) {
		return func(ctx context.Context, value string) ([]document.Object, error) {
			users, err := s.store.UsersBy(ctx, provider, key, value)
			return s.renderAll(provider, users), err
		}
	}
	return collection{
		noun: "users",
		total: func(ctx context.Context) (int, error) {
			d, err := s.store.Directory(ctx, provider)
			return int(d.Users), err
		},
		page: func(ctx context.Context, skip, n int) ([]document.Object, error) {
			users, err := s.store.Users(ctx, provider, skip, n)
			return s.renderAll(provider, users), err
		},
		keys: []indexed{
			{"userName", "", by(scimdb.ByUserName)}, {"externalId", "", by(scimdb.ByExternalID)}, {"id", "", by(scimdb.ByID)},
		},
		byID: by(scimdb.ByID),
	}
}

func (s *Service) renderAll(provider resource.UID, users []scimdb.User) []document.Object {
	resources := make([]document.Object, len(users))
	for i, u := range users {
		resources[i] = s.render(provider, u)
	}
	return resources
}

// sortKey returns the value by which a query sorts a resource.
func (q query) sortKey(o document.Object) string {
	if q.sortBy == nil {
		return ""
	}
	values := q.sortBy.Find(o)
	if len(values) == 0 {
		return ""
	}
	text, ok := values[0].(string)
	if !ok {
		text = document.Text(filter.AsObject(values[0]), "value")
	}
	if !document.IsCaseExact(q.sortBy.Attribute) {
		text = strings.ToLower(text)
	}
	return text[:min(len(text), maxSortKey)]
}
