// Package groups measures how fast groups are listed, read and created over the API. It also measures the cost of
// event subscriptions and of older versions of the API.
package groups

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

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// Lists compares pages in the big dataset with pages in the small dataset, including their totals, in the store and
// over HTTP. It also compares a page over HTTP with a handler that does as little as possible.
func Lists(ctx context.Context, m *rig.Measurement) {
	small, big := m.Groups(ctx, rig.SmallRows), m.Groups(ctx, m.Bench.Rows)
	s, l := openForReading(ctx, small), openForReading(ctx, big)
	compareScales(ctx, m, s, l)
	compareGrants(ctx, m, l)
	compareSkips(ctx, m, l)
	rig.Check(errors.Join(s.store.Close(), l.store.Close()))
	listsOverHTTP(ctx, m, small, big)
}

// An openDataset is a dataset with its open store.
type openDataset struct {
	rig.Dataset
	store *store.DB
	under []resource.UID // the folders of the organization
}

func openForReading(ctx context.Context, d rig.Dataset) openDataset {
	return openDataset{d, rig.Must(store.Open(ctx, d.URL)), d.Folders()}
}

// A request describes one page to read.
type request struct {
	reach  store.Reach
	filter resource.Filter
	page   page.Request
}

var byName = page.Order{Field: "name"}

// below returns a request for the first page, by name, of the groups below group. The caller is an owner.
func (s openDataset) below(group resource.UID, size int) request {
	return request{
		store.Reach{Under: []resource.UID{s.Org}},
		resource.Filter{UIDs: resource.UIDFilter{DescendantsOf: group}},
		page.Request{Size: size, Order: byName},
	}
}

// with returns a request for the first page, by name, of all groups. The caller has these grants.
func with(grants []resource.UID) request {
	return request{store.Reach{Under: grants}, resource.Filter{}, page.Request{Size: pageSize, Order: byName}}
}

func (s openDataset) read(ctx context.Context, q request) (page.Page[resource.Group], error) {
	return iamdb.New(s.store).Groups(ctx, q.reach, q.filter, q.page)
}

// spots is the number of different requests in a measurement. There are several, so that the database does not always
// read the same pages from the disk.
const spots = 16

// midway returns requests like q whose pages start in the middle of the list.
func (s openDataset) midway(ctx context.Context, q request) (requests []request) {
	total := int(rig.Must(s.read(ctx, q)).Total)
	for i := range spots {
		row := q
		row.page.Size = 1
		row.page.Skip = total/4 + i*total/(2*spots)
		next := q
		next.page.After = rig.Must(s.read(ctx, row)).Last
		if next.page.After == nil {
			rig.Check(fmt.Errorf("no row follows row %d of %d", row.page.Skip, total))
		}
		requests = append(requests, next)
	}
	return requests
}

// named returns requests like q. Each request finds one group by its name.
func (s openDataset) named(ctx context.Context, q request) []request {
	requests := s.midway(ctx, q)
	for i := range requests {
		requests[i].filter.Name = requests[i].page.After.Key
		requests[i].page.After = nil
	}
	return requests
}

// turns returns an operation that sends one of the requests in turn. It fails if the page does not have size rows.
func (s openDataset) turns(requests []request, size int) rig.Operation {
	return func(ctx context.Context, i int) error {
		q := requests[i%len(requests)]
		got, err := s.read(ctx, q)
		if err == nil && (len(got.Items) != size || got.Total < int64(size)) {
			err = fmt.Errorf("the page has %d rows of %d, want %d", len(got.Items), got.Total, size)
		}
		return err
	}
}

// pageSize is the number of groups in a page. A folder in the small dataset has fewer groups, so the pages of folders
// are smaller in both datasets.
const pageSize = page.DefaultSize

// A scale is a kind of page that is read from both datasets.
type scale struct {
	what string
	size int
	make requester
}

// A requester returns the requests to send for a dataset.
type requester func(context.Context, openDataset) []request

// one returns a requester that makes a single request.
func one(f func(openDataset) request) requester {
	return func(_ context.Context, s openDataset) []request { return []request{f(s)} }
}

// middle returns a requester that makes requests for pages in the middle of a list.
func middle(f func(openDataset) request) requester {
	return func(ctx context.Context, s openDataset) []request { return s.midway(ctx, f(s)) }
}

// exact returns a requester that makes requests for single groups by name.
func exact(f func(openDataset) request) requester {
	return func(ctx context.Context, s openDataset) []request { return s.named(ctx, f(s)) }
}

// each returns a requester that makes one request for each of several folders. Their number is spots.
func each(f func(openDataset, resource.UID) request) requester {
	return func(_ context.Context, s openDataset) (requests []request) {
		for _, folder := range every(s.under, spots) {
			requests = append(requests, f(s, folder))
		}
		return requests
	}
}

func scaleCases() []scale {
	const few = rig.SmallRows / rig.Folders
	org := func(s openDataset) request { return s.below(s.Org, pageSize) }
	folder := func(s openDataset, uid resource.UID) request { return s.below(uid, few) }
	oneFolder := func(size int) func(openDataset) request {
		return func(s openDataset) request { return s.below(s.under[rig.Folders/2], size) }
	}
	return []scale{
		{"first page", pageSize, one(org)},
		{"page in the middle", pageSize, middle(org)},
		{"exact name", 1, exact(org)},
		{"first page, folder of 1 %, 10 rows", few, each(folder)},
		{"page in the middle, folder of 1 %, 2 rows", 2, middle(oneFolder(2))},
		{"exact name, folder of 1 %", 1, exact(oneFolder(few))},
	}
}

// compareScales compares requests to the big dataset with the same requests to the small dataset.
func compareScales(ctx context.Context, m *rig.Measurement, small, big openDataset) {
	for _, c := range scaleCases() {
		p := rig.Alternate(ctx, big.turns(c.make(ctx, big), c.size), small.turns(c.make(ctx, small), c.size))
		m.Slower("list: "+c.what, p, 2)
	}
	// Compare 50 rows in a folder of the big dataset with 50 rows in the small organization.
	folder := each(func(s openDataset, uid resource.UID) request { return s.below(uid, pageSize) })(ctx, big)
	first := []request{small.below(small.Org, pageSize)}
	m.Slower("list: first page, folder of 1 % / the small organization",
		rig.Alternate(ctx, big.turns(folder, pageSize), small.turns(first, pageSize)), 2)
}

// compare measures the requests in a and in b alternately.
func (s openDataset) compare(ctx context.Context, a, b []request) rig.Pair {
	return rig.Alternate(ctx, s.turns(a, pageSize), s.turns(b, pageSize))
}

// compareGrants compares a caller who has grants on ten folders with a caller who has a single grant.
func compareGrants(ctx context.Context, m *rig.Measurement, big openDataset) {
	single, ten := with(big.under[3:4]), with(every(big.under, 10))
	m.Slower("list: ten grants / one, first page, name", big.compare(ctx, []request{ten}, []request{single}), 5)
	m.Slower("list: ten grants / one, page in the middle, name",
		big.compare(ctx, big.midway(ctx, ten), big.midway(ctx, single)), 5)
}

// every returns n of the uids, taken at equal distances and sorted.
func every(uids []resource.UID, n int) (picked []resource.UID) {
	for i := range n {
		picked = append(picked, uids[i*len(uids)/n])
	}
	slices.Sort(picked)
	return picked
}

// compareSkips compares a page far into a list with the first page.
func compareSkips(ctx context.Context, m *rig.Measurement, big openDataset) {
	first := big.below(big.Org, pageSize)
	far := first
	far.page.Skip = min(100_000, big.Dataset.Groups/2)
	m.Longer(fmt.Sprintf("list: skip=%d / skip=0", far.page.Skip),
		big.compare(ctx, []request{far}, []request{first}), 50*time.Millisecond)
}

// listsOverHTTP compares pages that a client gets over HTTP.
func listsOverHTTP(ctx context.Context, m *rig.Measurement, small, big rig.Dataset) {
	s, l := m.Serve(ctx, small.URL), m.Serve(ctx, big.URL)
	m.Slower("list over HTTP: first page",
		rig.Alternate(ctx, getPage(l.Client, firstPage(big.Org)), getPage(s.Client, firstPage(small.Org))), 2)
	db := m.Engine.Connect(small.URL, rig.Clients)
	defer db.Close()
	db.SetMaxOpenConns(rig.Clients) // the connections only read, so there can be several with SQLite, too
	db.SetMaxIdleConns(rig.Clients)
	address := m.ServeHandler(ctx, bareList(
		rig.Must(db.PrepareContext(ctx,
			`SELECT uid, name, description, create_ms, update_ms FROM groups ORDER BY uid LIMIT $1`)),
		rig.Must(db.PrepareContext(ctx, `SELECT count(*) FROM groups`))))
	m.CompareRates(ctx, "list over HTTP: page of 50 of 1,000 groups with its total / bare handler", 0.6,
		getPage(s.Client, "/iam/v2beta1/groups"), getPage(rig.NewClient(address, ""), "/"))
}

// getPage returns an operation that gets a page. The page must have pageSize groups and a total.
func getPage(c *rig.Client, path string) rig.Operation {
	return func(ctx context.Context, _ int) error {
		body, err := c.Get(ctx, path)
		if err == nil && (bytes.Count(body, []byte(`"uid":`)) != pageSize ||
			!bytes.Contains(body, []byte(`"totalCount":`))) {
			err = fmt.Errorf("GET %s: the response is not a page of %d groups: %.300s", path, pageSize, body)
		}
		return err
	}
}

// bareList returns a handler that executes the two statements and writes their results as JSON.
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
		_ = json.NewEncoder(w).Encode(out) // Encode fails only if the client is gone
	}
}

// firstPage returns the API path for the first page, by name, of the groups below group.
func firstPage(group resource.UID) string {
	query := url.Values{"uidp.descendants_of": {string(group)}, "order_by": {"name"}, "page_size": {fmt.Sprint(pageSize)}}
	return "/iam/v2beta1/groups?" + query.Encode()
}
