package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
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

// lists compares pages, with their totals, of the big dataset with those of the small one,
// in the store and over HTTP, and a page over HTTP with a handler that does the least.
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
	return listsOverHTTP(ctx, b, e, small, big, r)
}

func listsInStore(ctx context.Context, small, big dataset, r *report) (err error) {
	s, err := openForReading(ctx, small)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	l, err := openForReading(ctx, big)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.store.Close()) }()
	for _, f := range []func(context.Context, openDataset, openDataset, *report) error{scales, grants, skips} {
		if err := f(ctx, s, l, r); err != nil {
			return err
		}
	}
	return nil
}

// An openDataset is a dataset with its open store.
type openDataset struct {
	dataset
	store *store.DB
	under []resource.UID // the folders
}

func openForReading(ctx context.Context, d dataset) (openDataset, error) {
	s, err := store.Open(ctx, d.url)
	return openDataset{d, s, d.folders()}, err
}

// A request is one page to read.
type request struct {
	reach  store.Reach
	filter resource.Filter
	page   page.Request
}

// below returns a request of an owner for the first page by name of the groups below group.
func (s openDataset) below(group resource.UID, size int) request {
	return request{
		store.Reach{Under: []resource.UID{s.org}},
		resource.Filter{UIDs: resource.UIDFilter{DescendantsOf: group}},
		page.Request{Size: size, Order: page.Order{Field: "name"}},
	}
}

// with returns a request for the first page by name of all groups, of a caller with these
// grants.
func with(grants []resource.UID, size int) request {
	return request{
		store.Reach{Under: grants}, resource.Filter{}, page.Request{Size: size, Order: page.Order{Field: "name"}},
	}
}

func (q request) by(field string, desc bool) request {
	q.page.Order = page.Order{Field: field, Desc: desc}
	return q
}

func (s openDataset) read(ctx context.Context, q request) (page.Page[resource.Group], error) {
	return iamdb.New(s.store).Groups(ctx, q.reach, q.filter, q.page)
}

// spots is how many different requests a measurement makes, so that it does not always read
// the same pages of the disk.
const spots = 16

// midway returns requests like q that start after rows in the middle of the list.
func (s openDataset) midway(ctx context.Context, q request) ([]request, error) {
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

// named returns requests like q, each for one group by its name.
func (s openDataset) named(ctx context.Context, q request) ([]request, error) {
	all, err := s.midway(ctx, q.by("name", false))
	for i := range all {
		all[i].filter.Name = all[i].page.After.Key
		all[i].page.After = nil
	}
	return all, err
}

// turns returns an operation that sends one of the requests. Their pages must have size rows.
func (s openDataset) turns(all []request, size int) operation {
	return func(ctx context.Context, i int) error {
		q := all[i%len(all)]
		got, err := s.read(ctx, q)
		if err == nil && (len(got.Items) != size || got.Total < int64(size)) {
			err = fmt.Errorf("%d rows of %d, not %d", len(got.Items), got.Total, size)
		}
		return err
	}
}

// pageSize is the size of the pages. A folder of the small dataset has fewer groups, so pages
// of folders are smaller in both datasets.
const pageSize = page.DefaultSize

// A scale is a page that is read from both datasets.
type scale struct {
	what string
	size int
	most float64
	make requester
}

// A requester makes the requests for a dataset.
type requester func(context.Context, openDataset) ([]request, error)

// one returns a requester of one request.
func one(f func(openDataset) request) requester {
	return func(_ context.Context, s openDataset) ([]request, error) { return []request{f(s)}, nil }
}

// middle returns a requester of requests in the middle of a list.
func middle(f func(openDataset) request) requester {
	return func(ctx context.Context, s openDataset) ([]request, error) { return s.midway(ctx, f(s)) }
}

// exact returns a requester of requests for groups of a list by name.
func exact(f func(openDataset) request) requester {
	return func(ctx context.Context, s openDataset) ([]request, error) { return s.named(ctx, f(s)) }
}

// each returns a requester of a request for each of some folders.
func each(f func(openDataset, resource.UID) request) requester {
	return func(_ context.Context, s openDataset) ([]request, error) {
		var all []request
		for i := range spots {
			all = append(all, f(s, s.under[i*len(s.under)/spots]))
		}
		return all, nil
	}
}

func scaleCases() []scale {
	org := func(s openDataset) request { return s.below(s.org, pageSize) }
	orgBy := func(field string, desc bool) func(openDataset) request {
		return func(s openDataset) request { return org(s).by(field, desc) }
	}
	const few = smallRows / folders
	folder := func(s openDataset, uid resource.UID) request { return s.below(uid, few) }
	oneFolder := func(size int) func(openDataset) request {
		return func(s openDataset) request { return s.below(s.under[folders/2], size) }
	}
	return []scale{
		{"first page", pageSize, 2, one(org)},
		{"page in the middle", pageSize, 2, middle(org)},
		{"exact name", 1, 2, exact(org)},
		{"first page, folder of 1 %, 10 rows", few, 2, each(folder)},
		{"page in the middle, folder of 1 %, 2 rows", 2, 2, middle(oneFolder(2))},
		{"exact name, folder of 1 %", 1, 2, exact(oneFolder(few))},
		{"first page, name desc", pageSize, 0, one(orgBy("name", true))},
		{"first page, uid", pageSize, 0, one(orgBy("uid", false))},
		{"page in the middle, uid", pageSize, 0, middle(orgBy("uid", false))},
		{"first page, create_time", pageSize, 0, one(orgBy("create_time", false))},
		{"page in the middle, create_time desc", pageSize, 0, middle(orgBy("create_time", true))},
		{"first page, children of the organization", pageSize, 0, one(func(s openDataset) request {
			q := org(s)
			q.filter.UIDs = resource.UIDFilter{ChildrenOf: s.org}
			return q
		})},
		{"first page, children of a folder, 10 rows", few, 0, each(func(s openDataset, uid resource.UID) request {
			q := folder(s, uid)
			q.filter.UIDs = resource.UIDFilter{ChildrenOf: uid}
			return q
		})},
	}
}

// scales compares the big dataset with the small one.
func scales(ctx context.Context, small, big openDataset, r *report) error {
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
	// Compare 50 rows of a folder with 50 of the small organization.
	folder, err := each(func(s openDataset, uid resource.UID) request { return s.below(uid, pageSize) })(ctx, big)
	if err != nil {
		return err
	}
	first := []request{small.below(small.org, pageSize)}
	p, err := alternate(ctx, big.turns(folder, pageSize), small.turns(first, pageSize))
	r.slower("list: first page, folder of 1 % / the small organization", p, 2)
	return err
}

// grants compares callers with grants on several folders with one with a single grant.
func grants(ctx context.Context, _, big openDataset, r *report) error {
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

// some returns n groups in folders, sorted.
func (s openDataset) some(n int) []resource.UID {
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

// skips compares a page far into a list with the first page.
func skips(ctx context.Context, _, big openDataset, r *report) error {
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

// listsOverHTTP compares pages as a client gets them.
func listsOverHTTP(ctx context.Context, b *bench, e engine, small, big dataset, r *report) (err error) {
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
	p, err := alternate(ctx, getPage(l.token, l.listURL(big.org, pageSize)),
		getPage(s.token, s.listURL(small.org, pageSize)))
	if err != nil {
		return err
	}
	r.slower("list over HTTP: first page", p, 2)
	db, err := e.connect(small.url, clients)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(clients) // it only reads
	db.SetMaxIdleConns(clients)
	first, err := db.PrepareContext(ctx,
		`SELECT uid, name, description, create_ms, update_ms FROM groups ORDER BY uid LIMIT $1`)
	if err != nil {
		return err
	}
	count, err := db.PrepareContext(ctx, `SELECT count(*) FROM groups`)
	if err != nil {
		return err
	}
	address, stop, err := serveHTTP(ctx, bareList(first, count))
	if err != nil {
		return err
	}
	defer stop()
	ours := getPage(s.token, "http://"+s.addr+"/iam/v2beta1/groups")
	return compareRates(ctx, r, "list over HTTP: page of 50 of 1,000 groups with its total / bare handler", 0.6,
		ours, getPage("", address))
}

// getPage returns an operation that gets a page. It must have pageSize groups and a total.
func getPage(token, address string) operation {
	c := newClient(token)
	return func(ctx context.Context, _ int) error {
		_, body, err := c.do(ctx, http.MethodGet, address, "")
		if err == nil && (bytes.Count(body, []byte(`"uid":`)) != pageSize ||
			!bytes.Contains(body, []byte(`"totalCount":`))) {
			err = fmt.Errorf("GET %s: not a page of %d groups: %.300s", address, pageSize, body)
		}
		return err
	}
}

// bareList returns a handler that executes the two statements and writes the results as JSON.
func bareList(first, count *sql.Stmt) http.HandlerFunc {
	type group struct {
		UID         string    `json:"uid"`
		Name        string    `json:"name"`
		Description string    `json:"description"`
		CreateTime  time.Time `json:"createTime"`
		UpdateTime  time.Time `json:"updateTime"`
	}
	type response struct {
		Groups []group `json:"groups"`
		Total  int64   `json:"totalCount,string"`
	}
	read := func(ctx context.Context) (out response, _ error) {
		rows, err := first.QueryContext(ctx, pageSize)
		if err != nil {
			return out, err
		}
		defer rows.Close()
		for rows.Next() {
			var g group
			var created, updated int64
			if err := rows.Scan(&g.UID, &g.Name, &g.Description, &created, &updated); err != nil {
				return out, err
			}
			g.CreateTime, g.UpdateTime = time.UnixMilli(created).UTC(), time.UnixMilli(updated).UTC()
			out.Groups = append(out.Groups, g)
		}
		if err := rows.Err(); err != nil {
			return out, err
		}
		return out, count.QueryRowContext(ctx).Scan(&out.Total)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := read(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // fails only if the client is gone
	}
}

// listURL returns the address of the first page by name of the groups below group.
func (s *service) listURL(group resource.UID, size int) string {
	query := url.Values{"uidp.descendants_of": {string(group)}, "order_by": {"name"}, "page_size": {fmt.Sprint(size)}}
	return "http://" + s.addr + "/iam/v2beta1/groups?" + query.Encode()
}
