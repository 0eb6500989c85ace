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
	defaultCount = 100    // users on a page
	maxScan      = 10_000 // users that a query without an index may read
	scanChunk    = 200    // users that one statement reads
	maxSortKey   = 256    // bytes of a value that sorting considers
)

// A query selects users of a directory.
type query struct {
	filter     *filter.Filter // nil selects all
	start      int            // number of the first user of the page, from 1
	count      int            // users on the page
	sortBy     *filter.Path   // nil sorts by creation
	descending bool
}

// list returns a page of users as resources, and the number of all users that the query selects. A query by id,
// userName or externalId, and a query without filter and order, cost what their page costs. Other queries read all
// users, so list refuses them in large directories.
func (s *Service) list(
	ctx context.Context, provider resource.UID, q query,
) (page []document.Object, total int, _ error) {
	if q.filter == nil && q.sortBy == nil {
		d, err := s.store.Directory(ctx, provider)
		if err != nil || q.count == 0 {
			return nil, int(d.Users), err
		}
		users, err := s.store.Users(ctx, provider, q.start-1, q.count)
		return s.renderAll(provider, users), int(d.Users), err
	}
	if users, ok, err := s.byKey(ctx, provider, q.filter); ok || err != nil {
		resources := s.renderAll(provider, users)
		resources = slices.DeleteFunc(resources, func(o document.Object) bool { return !q.filter.Matches(o) })
		return q.cut(resources), len(resources), err
	}
	return s.scan(ctx, provider, q)
}

func (s *Service) renderAll(provider resource.UID, users []scimdb.User) []document.Object {
	resources := make([]document.Object, len(users))
	for i, u := range users {
		resources[i] = s.render(provider, u)
	}
	return resources
}

// cut returns the page of a query from all of its results.
func (q query) cut(results []document.Object) []document.Object {
	first := min(q.start-1, len(results))
	return results[first:min(first+q.count, len(results))]
}

// byKey returns the users that a filter can select, if an index finds them.
func (s *Service) byKey(ctx context.Context, provider resource.UID, f *filter.Filter) ([]scimdb.User, bool, error) {
	for _, part := range f.Required() {
		for attribute, key := range map[string]scimdb.Key{
			"userName": scimdb.ByUserName, "externalId": scimdb.ByExternalID, "id": scimdb.ByID,
		} {
			value, ok := part.EqualTo(attribute)
			if !ok {
				continue
			}
			if !input.Readable(value) {
				return nil, true, nil
			}
			users, err := s.store.UsersBy(ctx, provider, key, value)
			return users, true, err
		}
	}
	return nil, false, nil
}

// A match is a user that a query selects.
type match struct{ key, id string }

// scan reads all users of a small directory, and returns those that a query selects.
func (s *Service) scan(ctx context.Context, provider resource.UID, q query) ([]document.Object, int, error) {
	var matches []match
	for skip := 0; ; skip += scanChunk {
		if skip >= maxScan {
			return nil, 0, document.Bad(document.TooMany,
				"The directory has more than %d users; filter by userName, externalId or id, without an order.", maxScan)
		}
		users, err := s.store.Users(ctx, provider, skip, scanChunk)
		if err != nil {
			return nil, 0, err
		}
		for _, u := range users {
			o := s.render(provider, u)
			if q.filter == nil || q.filter.Matches(o) {
				matches = append(matches, match{q.sortKey(o), u.ID})
			}
		}
		if len(users) < scanChunk {
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
		users, err := s.store.UsersBy(ctx, provider, scimdb.ByID, m.id)
		if err != nil {
			return nil, 0, err
		}
		page = append(page, s.renderAll(provider, users)...)
	}
	return page, len(matches), nil
}

// sortKey returns the value by which a query sorts a user.
func (q query) sortKey(o document.Object) string {
	if q.sortBy == nil {
		return ""
	}
	for _, v := range q.sortBy.Find(o) {
		text, ok := v.(string)
		if !ok {
			text = document.Text(filter.AsObject(v), "value")
		}
		if !document.IsCaseExact(q.sortBy.Attribute) {
			text = strings.ToLower(text)
		}
		return text[:min(len(text), maxSortKey)]
	}
	return ""
}
