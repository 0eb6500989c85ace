package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

// lists compares pages of the big dataset with the same pages of the small one.
// A page comes from the store, with its total; one kind also over HTTP.
func lists(ctx context.Context, b *bench, e engine, r *report) error {
	small, err := b.groups(ctx, e, smallRows)
	if err != nil {
		return err
	}
	big, err := b.groups(ctx, e, b.rows)
	if err != nil {
		return err
	}
	if err := listsInStore(ctx, small, big, r); err != nil {
		return err
	}
	return listsOverHTTP(ctx, b, small, big, r)
}

func listsInStore(ctx context.Context, small, big dataset, r *report) (err error) {
	s, err := openShelf(ctx, small)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	l, err := openShelf(ctx, big)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.store.Close()) }()
	for _, f := range []func(context.Context, shelf, shelf, *report) error{scales, grants, skips} {
		if err := f(ctx, s, l, r); err != nil {
			return err
		}
	}
	return nil
}

// A shelf is a dataset that is open for reading.
type shelf struct {
	dataset
	store *store.DB
	under []resource.UID // the folders
}

func openShelf(ctx context.Context, d dataset) (shelf, error) {
	s, err := store.Open(ctx, d.url)
	return shelf{d, s, d.folders()}, err
}

// A request is one page to read.
type request struct {
	reach  store.Reach
	filter resource.Filter
	page   page.Request
}

// below is a request for the first page by name of all below a group that an
// owner of the organization sends.
func (s shelf) below(group resource.UID, size int) request {
	return request{
		store.Reach{Under: []resource.UID{s.org}},
		resource.Filter{Place: resource.PlaceFilter{DescendantsOf: group}},
		page.Request{Size: size, Order: page.Order{Field: "name"}},
	}
}

// with is a request for the first page by name of a caller who was granted these
// groups, and asks for all there is.
func with(grants []resource.UID, size int) request {
	return request{store.Reach{Under: grants}, resource.Filter{}, page.Request{Size: size, Order: page.Order{Field: "name"}}}
}

func (q request) by(field string, desc bool) request {
	q.page.Order = page.Order{Field: field, Desc: desc}
	return q
}

func (s shelf) read(ctx context.Context, q request) (page.Page[resource.Group], error) {
	return iamdb.New(s.store).Groups(ctx, q.reach, q.filter, q.page)
}

// spots is how many places a measurement takes turns at, so that it does not
// read the same few pages of the disk again and again.
const spots = 16

// midway returns requests like q that start after a row in the middle half.
func (s shelf) midway(ctx context.Context, q request) ([]request, error) {
	first, err := s.read(ctx, q)
	if err != nil {
		return nil, err
	}
	var all []request
	for i := range spots {
		at := q
		at.page.Size = 1
		at.page.Skip = int(first.Total)/4 + i*int(first.Total)/(2*spots)
		got, err := s.read(ctx, at)
		if err != nil {
			return nil, err
		}
		if got.Last == nil {
			return nil, fmt.Errorf("nothing follows row %d of %d", at.page.Skip, first.Total)
		}
		next := q
		next.page.After = got.Last
		all = append(all, next)
	}
	return all, nil
}

// named returns requests like q for one group by its name each.
func (s shelf) named(ctx context.Context, q request) ([]request, error) {
	all, err := s.midway(ctx, q.by("name", false))
	for i := range all {
		all[i].filter.Name = all[i].page.After.Key
		all[i].page.After = nil
	}
	return all, err
}

// turns reads one of all at each turn. Each has to have size rows.
func (s shelf) turns(all []request, size int) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		q := all[i%len(all)]
		got, err := s.read(ctx, q)
		if err == nil && (len(got.Items) != size || got.Total < int64(size)) {
			err = fmt.Errorf("%d rows of %d, not %d", len(got.Items), got.Total, size)
		}
		return err
	}
}

// pageSize is what the targets are set for. A folder of the small dataset has
// fewer groups than that: there, both datasets read as many as it has.
const pageSize = page.DefaultSize

// A scale is a page to read from both datasets.
type scale struct {
	what string
	size int
	most float64
	make func(context.Context, shelf) ([]request, error)
}

// one is a request that does not depend on what is in the dataset.
func one(f func(shelf) request) func(context.Context, shelf) ([]request, error) {
	return func(_ context.Context, s shelf) ([]request, error) { return []request{f(s)}, nil }
}

// each is a request for each of some folders.
func each(f func(shelf, resource.UID) request) func(context.Context, shelf) ([]request, error) {
	return func(_ context.Context, s shelf) ([]request, error) {
		var all []request
		for i := range spots {
			all = append(all, f(s, s.under[i*len(s.under)/spots]))
		}
		return all, nil
	}
}

func scaleCases() []scale {
	org := func(s shelf) request { return s.below(s.org, pageSize) }
	const few = smallRows / folders
	folder := func(s shelf, uid resource.UID) request { return s.below(uid, few) }
	return []scale{
		{"first page", pageSize, 2, one(org)},
		{"page in the middle", pageSize, 2, func(ctx context.Context, s shelf) ([]request, error) { return s.midway(ctx, org(s)) }},
		{"exact name", 1, 2, func(ctx context.Context, s shelf) ([]request, error) { return s.named(ctx, org(s)) }},
		{"first page, folder of 1 %, 10 rows", few, 2, each(folder)},
		{"page in the middle, folder of 1 %, 2 rows", 2, 2, func(ctx context.Context, s shelf) ([]request, error) {
			return s.midway(ctx, s.below(s.under[folders/2], 2))
		}},
		{"exact name, folder of 1 %", 1, 2, func(ctx context.Context, s shelf) ([]request, error) {
			return s.named(ctx, s.below(s.under[folders/2], few))
		}},
		{"first page, name desc", pageSize, 0, one(func(s shelf) request { return org(s).by("name", true) })},
		{"first page, uid", pageSize, 0, one(func(s shelf) request { return org(s).by("uid", false) })},
		{"page in the middle, uid", pageSize, 0, func(ctx context.Context, s shelf) ([]request, error) { return s.midway(ctx, org(s).by("uid", false)) }},
		{"first page, create_time", pageSize, 0, one(func(s shelf) request { return org(s).by("create_time", false) })},
		{"page in the middle, create_time desc", pageSize, 0, func(ctx context.Context, s shelf) ([]request, error) {
			return s.midway(ctx, org(s).by("create_time", true))
		}},
		{"first page, children of the organization", pageSize, 0, one(func(s shelf) request {
			q := org(s)
			q.filter.Place = resource.PlaceFilter{ChildrenOf: s.org}
			return q
		})},
		{"first page, children of a folder, 10 rows", few, 0, each(func(s shelf, uid resource.UID) request {
			q := folder(s, uid)
			q.filter.Place = resource.PlaceFilter{ChildrenOf: uid}
			return q
		})},
	}
}

// scales compares the big dataset with the small one.
func scales(ctx context.Context, small, big shelf, r *report) error {
	for _, c := range scaleCases() {
		s, err := c.make(ctx, small)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		l, err := c.make(ctx, big)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		p, err := alternate(ctx, big.turns(l, c.size), small.turns(s, c.size))
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		r.slower("list: "+c.what, p, c.most)
	}
	// Fifty rows of a folder, against as many of the small organization.
	folder, err := each(func(s shelf, uid resource.UID) request { return s.below(uid, pageSize) })(ctx, big)
	if err != nil {
		return err
	}
	p, err := alternate(ctx, big.turns(folder, pageSize), small.turns([]request{small.below(small.org, pageSize)}, pageSize))
	r.slower("list: first page, folder of 1 % / the small organization", p, 2)
	return err
}

// grants compares callers who were granted several folders with one who was
// granted one.
func grants(ctx context.Context, _, big shelf, r *report) error {
	single, ten := with(big.under[3:4], pageSize), with(every(big.under, 10), pageSize)
	for _, field := range []string{"name", "create_time", "uid"} {
		most := 0.0
		if field == "name" {
			most = 5
		}
		single, ten := single.by(field, false), ten.by(field, false)
		p, err := alternate(ctx, big.turns([]request{ten}, pageSize), big.turns([]request{single}, pageSize))
		if err != nil {
			return err
		}
		r.slower("list: ten grants / one, first page, "+field, p, most)
	}
	a, err := big.midway(ctx, ten)
	if err != nil {
		return err
	}
	b, err := big.midway(ctx, single)
	if err != nil {
		return err
	}
	p, err := alternate(ctx, big.turns(a, pageSize), big.turns(b, pageSize))
	if err != nil {
		return err
	}
	r.slower("list: ten grants / one, page in the middle, name", p, 5)
	many := with(big.some(1000), pageSize)
	p, err = alternate(ctx, big.turns([]request{many}, pageSize), big.turns([]request{single}, pageSize))
	r.slower("list: 1000 grants / one, first page, name", p, 0)
	return err
}

// every returns n of all, sorted.
func every(all []resource.UID, n int) []resource.UID {
	var some []resource.UID
	for i := range n {
		some = append(some, all[i*len(all)/n])
	}
	slices.Sort(some)
	return some
}

// some returns n groups of folders, sorted.
func (s shelf) some(n int) []resource.UID {
	step, i := s.dataset.groups/n, 0
	var all []resource.UID
	for uid := range s.all() {
		if uid.Parent() == s.org {
			continue
		}
		if i++; i%max(step, 1) == 0 {
			all = append(all, uid)
		}
	}
	slices.Sort(all)
	return all
}

// skips compares a page far into a list with its first.
func skips(ctx context.Context, _, big shelf, r *report) error {
	far := min(100_000, big.dataset.groups/2)
	none := big.below(big.org, pageSize)
	ten := with(every(big.under, 10), pageSize)
	for _, c := range []struct {
		what string
		q    request
		far  int
		most time.Duration
	}{
		{"", none, far, 50 * time.Millisecond},
		{", create_time", none.by("create_time", false), far, 0},
		{", ten grants", ten, big.dataset.groups / 20, 0},
	} {
		skip := c.q
		skip.page.Skip = c.far
		p, err := alternate(ctx, big.turns([]request{skip}, pageSize), big.turns([]request{c.q}, pageSize))
		if err != nil {
			return err
		}
		r.longer(fmt.Sprintf("list: skip=%d / skip=0%s", c.far, c.what), p, c.most)
	}
	return nil
}

// listsOverHTTP compares first pages as a client sees them.
func listsOverHTTP(ctx context.Context, b *bench, small, big dataset, r *report) (err error) {
	s, err := b.serve(ctx, small.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	l, err := b.serve(ctx, big.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	p, err := alternate(ctx, l.firstPage(big.org), s.firstPage(small.org))
	r.slower("list over HTTP: first page", p, 2)
	return err
}

func (s *service) firstPage(org resource.UID) func(context.Context, int) error {
	c, address := newClient(s.token), s.listURL(org, pageSize)
	return func(ctx context.Context, _ int) error {
		_, _, err := c.do(ctx, http.MethodGet, address, "")
		return err
	}
}

// listURL is the address of the first page by name of what is below a group.
func (s *service) listURL(group resource.UID, size int) string {
	query := url.Values{"uidp.descendants_of": {string(group)}, "order_by": {"name"}, "page_size": {fmt.Sprint(size)}}
	return "http://" + s.addr + "/iam/v2beta1/groups?" + query.Encode()
}
