package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// BytesCounter is the name of the counters for stored bytes, below a group or in a repo.
// A blob or a manifest counts once for each repo that has it, so the usage of a tenant
// never depends on another tenant. Uploads that have not become blobs count too.
const BytesCounter = "stored_bytes"

// Counters contains the counter that measures each metric that a budget can limit.
var Counters = map[resource.Metric]string{
	resource.StoredBytes: BytesCounter, resource.BudgetRepos: "repos", resource.BudgetIdentities: "identities",
	resource.BudgetAdvisories: "advisories", resource.Webhooks: "subscriptions",
	resource.BudgetGroups: "groups", resource.BudgetBindings: "role_bindings",
}

// limited is the inverse of Counters: the metric for each counter.
var limited = func() map[string]resource.Metric {
	metrics := map[string]resource.Metric{}
	for m, kind := range Counters {
		metrics[kind] = m
	}
	return metrics
}()

// BudgetHooks are functions that the packages above the store provide. Each may be nil.
type BudgetHooks struct {
	// Visible reports whether the caller may know the usage of a group. If not, the
	// error that refuses a request does not contain the usage.
	Visible func(ctx context.Context, group resource.UID) bool

	// Refused is called for every refusal.
	Refused func(resource.Metric)
}

// Budgets is the set of all budgets at one time, and of the organizations that pay for others. It is never changed.
// Groups are identified by their number: see Segment.
type Budgets struct {
	version int64
	groups  map[int64]resource.Budget
	limited map[resource.Metric]bool
	payers  map[int64]resource.UID // payer of each organization that does not pay for itself
	paid    map[int64][]int64      // organizations that an organization pays for, without itself
}

// payer returns the organization that pays for the organization of uid.
func (b *Budgets) payer(uid resource.UID) resource.UID {
	root := uid.Root()
	if payer, ok := b.payers[Segment(root)]; ok {
		return payer
	}
	return root
}

// Above returns the budgets that limit a metric for the resource uid: the budgets of the groups above it and, if it is
// a group, its own. The budget of the organization comes first, or the budget of the organization that pays for it.
func (b *Budgets) Above(uid resource.UID, m resource.Metric) (budgets []resource.Budget) {
	if len(b.groups) == 0 {
		return nil
	}
	groups := append(uid.Ancestors(), uid)
	if payer := b.payer(uid); payer != uid.Root() {
		groups = slices.Insert(groups, 0, payer)
	}
	for _, g := range groups {
		budget, ok := b.groups[Segment(g)]
		if _, limits := budget.Limits[m]; ok && limits && budget.UID == g {
			budgets = append(budgets, budget)
		}
	}
	return budgets
}

// Limit reports whether any budget limits a metric.
func (b *Budgets) Limit(m resource.Metric) bool { return b.limited[m] }

// All returns all budgets, sorted by uid.
func (b *Budgets) All() []resource.Budget {
	return slices.SortedFunc(maps.Values(b.groups), func(x, y resource.Budget) int { return cmp.Compare(x.UID, y.UID) })
}

// A budgetCache holds all budgets, because every write needs the budgets above it. Like
// the cache of repos, it is valid until the revision changes. Most new revisions do not
// change a budget, so the cache keeps the last budgets with their version.
type budgetCache struct {
	current atomic.Pointer[Budgets] // nil if the budgets may be outdated

	mu      sync.Mutex
	last    *Budgets
	cleared uint64 // number of calls of clear so far
}

func (c *budgetCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared++
	c.current.Store(nil)
}

// forget also drops the last budgets. After a change of the database's history, the
// same version may have other budgets.
func (c *budgetCache) forget() {
	c.clear()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = nil
}

func (c *budgetCache) state() (last *Budgets, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.cleared
}

// put stores budgets that were read, unless the cache was cleared since the read began.
func (c *budgetCache) put(b *Budgets, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cleared == c.cleared {
		c.last = b
		c.current.Store(b)
	}
}

// cachedBudgets returns all budgets if they are in memory and up to date, and nil otherwise.
func (s *DB) cachedBudgets() *Budgets {
	if !s.Current() { // checked before the cache is read, because the lease may end in between
		return nil
	}
	return s.budgets.current.Load()
}

// Budgets returns all budgets. It reads the database only if a budget may have changed.
func (s *DB) Budgets(ctx context.Context) (*Budgets, error) {
	if b := s.cachedBudgets(); b != nil {
		return b, nil
	}
	ctx = OutsideTransaction(ctx)
	last, cleared := s.budgets.state()
	b := last
	var version int64
	if err := s.Row(ctx, `SELECT rev FROM revision WHERE id = $1`, []any{RevisionBudgets}, &version); err != nil {
		return nil, fmt.Errorf("read the version of budgets: %w", err)
	}
	if last == nil || last.version != version {
		var err error // one statement reads everything, so that the version belongs to the budgets
		if b, err = readBudgets(ctx, s.Rows, `SELECT rev, '', 0, '' FROM revision WHERE id = $1
			UNION ALL SELECT 0, detail, 0, '' FROM budgets
			UNION ALL SELECT 0, '', seg, payer_uid FROM payers WHERE seg <> payer`, RevisionBudgets); err != nil {
			return nil, fmt.Errorf("read budgets: %w", err)
		}
	}
	s.budgets.put(b, cleared)
	return b, nil
}

// Tenant returns the key under which the work for the organization of uid is limited: the organization that pays for
// it. So nobody gets a greater share of the server by creating organizations. If uid is a person, the key is uid.
//
// If the payers cannot be read, the key is the organization itself, because a limit protects the server and gives
// nobody access.
func (s *DB) Tenant(ctx context.Context, uid resource.UID) resource.Tenant {
	b, err := s.Budgets(ctx)
	if err != nil {
		return resource.Tenant(uid.Root())
	}
	return resource.Tenant(b.payer(uid))
}

// readBudgets runs a query that selects versions, budgets as JSON, and the numbers of organizations with their payers.
// Each row has one of these. The other columns are 0 or "".
func readBudgets(ctx context.Context, read Reader, text string, args ...any) (*Budgets, error) {
	b := &Budgets{
		groups: map[int64]resource.Budget{}, limited: map[resource.Metric]bool{},
		payers: map[int64]resource.UID{}, paid: map[int64][]int64{},
	}
	return b, read(ctx, text, args, func(row Scanner) (bool, error) {
		var version, org int64
		var detail string
		var payer resource.UID
		if err := row.Scan(&version, &detail, &org, &payer); err != nil {
			return false, err
		}
		b.version += version
		if payer != "" {
			b.payers[org] = payer
			b.paid[Segment(payer)] = append(b.paid[Segment(payer)], org)
		}
		if detail == "" {
			return false, nil
		}
		var budget resource.Budget
		err := json.Unmarshal([]byte(detail), &budget)
		b.groups[Segment(budget.UID)] = budget
		for m := range budget.Limits {
			b.limited[m] = true
		}
		return false, err
	})
}

// BudgetsChanged makes every replica read the budgets again.
func (t *Tx) BudgetsChanged(ctx context.Context) error {
	return t.TableChanged(ctx, RevisionBudgets)
}

// keepBudgets returns fault.FailedPrecondition if the transaction adds more to a counter than a budget leaves. It runs
// last in the transaction. So its locks are held briefly, and a transaction that holds them waits for no other lock.
func (t *Tx) keepBudgets(ctx context.Context) error {
	added, organizations := t.limitedIncrements()
	if len(added) == 0 {
		return nil
	}
	budgets, err := t.budgetsOf(ctx, added)
	if err != nil || len(budgets.groups) == 0 && len(t.DB.DefaultLimits) == 0 {
		return err
	}
	for key, n := range maps.Clone(added) {
		if payer, ok := budgets.payers[key.group]; ok {
			shared := counterKey{key.kind, Segment(payer)}
			added[shared] += n
			organizations[shared] = payer
			delete(organizations, key)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(added), compareKeys) {
		m := limited[key.kind]
		b := budgets.groups[key.group]
		if limit, ok := b.Limits[m]; ok {
			if _, err := t.keepBudget(ctx, key, added[key], b, limit, budgets.paid[key.group]); err != nil {
				return err
			}
			continue
		}
		limit, ok := t.DB.DefaultLimits[m]
		if org := organizations[key]; ok && org != "" {
			if err := t.keepDefault(ctx, key, added[key], org, limit, budgets.paid[key.group]); err != nil {
				return err
			}
		}
	}
	return nil
}

// limitedIncrements returns the amounts that the transaction adds to counters that a budget can limit, and the
// organizations among the groups of these counters.
func (t *Tx) limitedIncrements() (added map[counterKey]int64, organizations map[counterKey]resource.UID) {
	added, organizations = map[counterKey]int64{}, map[counterKey]resource.UID{}
	for _, c := range t.increments {
		if limited[c.key.kind] == "" {
			continue
		}
		added[c.key] += c.n
		if c.organization != "" {
			organizations[c.key] = c.organization
		}
	}
	maps.DeleteFunc(added, func(_ counterKey, n int64) bool { return n <= 0 })
	return added, organizations
}

func compareKeys(a, b counterKey) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), cmp.Compare(a.group, b.group))
}

// budgetsOf returns the budgets of the groups whose counters a transaction adds to. It
// uses the cache, or the connection of the transaction if the cache may be outdated.
func (t *Tx) budgetsOf(ctx context.Context, added map[counterKey]int64) (*Budgets, error) {
	if b := t.DB.cachedBudgets(); b != nil {
		return b, nil
	}
	q := Query{Engine: t.DB.Engine}
	var groups []int64
	for key := range added {
		groups = append(groups, key.group)
	}
	slices.Sort(groups)
	text := `WITH added AS (SELECT s.v FROM ` + t.DB.Engine.Unnest(&q, slices.Compact(groups)) + ` AS s),
		checked AS (SELECT v FROM added UNION SELECT p.payer FROM added AS s JOIN payers AS p ON p.seg = s.v)
		SELECT 0, b.detail, 0, '' FROM checked AS c JOIN budgets AS b ON b.seg = c.v
		UNION ALL SELECT 0, '', p.seg, p.payer_uid FROM checked AS c JOIN payers AS p ON p.payer = c.v
			WHERE p.seg <> p.payer`
	return readBudgets(ctx, t.Rows, text, q.Args...)
}

// These constants decide how near to its limit a budget is checked exactly. On
// PostgreSQL, concurrent transactions do not see each other's additions. A transaction
// does not wait for others if assumedWriters transactions of its size would still leave
// 1/reserve of the budget. Otherwise it waits until it is the only one between this
// check and its commit. So a budget can be exceeded only if others add more than that
// reserve between the check and the commit of one transaction, which takes milliseconds.
const (
	assumedWriters = 64
	reserve        = 8
)

// keepBudget returns an error if adding n to a counter exceeds the limit of the budget b. Otherwise it returns the
// amount that is left. paid are the organizations that the group of the budget pays for.
func (t *Tx) keepBudget(
	ctx context.Context, key counterKey, n int64, b resource.Budget, limit int64, paid []int64,
) (left int64, err error) {
	used, err := t.counted(ctx, key, paid)
	if err != nil {
		return 0, err
	}
	if !t.DB.Engine.Postgres {
		used -= n // the counter already includes n
	} else if used+assumedWriters*n > limit-limit/reserve {
		if _, err := t.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, $2))`, key.kind, key.group); err != nil {
			return 0, err
		}
		if used, err = t.counted(ctx, key, paid); err != nil {
			return 0, err
		}
	}
	if used+n <= limit {
		return limit - used - n, nil
	}
	return 0, t.DB.OverBudget(ctx, b, limited[key.kind], used, n)
}

// counted returns the value of a counter, plus the values for the organizations that the group pays for.
func (t *Tx) counted(ctx context.Context, key counterKey, paid []int64) (n int64, err error) {
	q := Query{Engine: t.DB.Engine}
	groups := t.DB.Engine.Unnest(&q, append([]int64{key.group}, paid...))
	err = t.Row(ctx, `SELECT CAST(coalesce(sum(c.n), 0) AS BIGINT) FROM `+groups+` AS s
		CROSS JOIN counters AS c WHERE c.grp = s.v AND c.kind = `+q.Arg(key.kind), q.Args, &n)
	return n, err
}

// OverBudget returns the error for a request that needs n more than a budget leaves.
func (s *DB) OverBudget(ctx context.Context, b resource.Budget, m resource.Metric, used, n int64) *fault.Error {
	return fault.OverQuota(s.Quota(ctx, b, m, used, fmt.Sprintf(", and this request needs %d more", n)))
}

// Quota records that a budget refused a request, and returns a description of the budget. The description contains the
// usage, and the people who can raise the budget, only if the caller may know them.
func (s *DB) Quota(ctx context.Context, b resource.Budget, m resource.Metric, used int64, needs string) fault.Quota {
	if s.BudgetHooks.Refused != nil {
		s.BudgetHooks.Refused(m)
	}
	q := fault.Quota{Metric: string(m)}
	if s.BudgetHooks.Visible == nil || !s.BudgetHooks.Visible(ctx, b.UID) {
		q.Description = "a budget of " + m.Unit() +
			" that applies here is used up; ask an administrator of a group above for details"
		return q
	}
	who := "people who may update the group above it, " + string(b.UID.Parent()) + ","
	if b.UID.IsRoot() {
		who = "the operator of the installation"
	}
	q.Subject, q.Used, q.Limit, q.Known = "group:"+string(b.UID), used, b.Limits[m], true
	q.Description = fmt.Sprintf("the group %s has used %d of its budget of %d %s%s; %s can raise it",
		b.UID, used, b.Limits[m], m.Unit(), needs, who)
	return q
}

// Usage returns the usage of a group for each metric that has a counter.
func (s *DB) Usage(ctx context.Context, group resource.UID) (map[resource.Metric]int64, error) {
	usage, err := s.UsageOf(ctx, []resource.UID{group})
	return usage[group], err
}

// UsageOf is Usage for several groups, by group. The usage of an organization includes the organizations that it pays
// for.
func (s *DB) UsageOf(ctx context.Context, groups []resource.UID) (map[resource.UID]map[resource.Metric]int64, error) {
	budgets, err := s.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	q := Query{Engine: s.Engine}
	var segments []int64
	usage, users := map[resource.UID]map[resource.Metric]int64{}, map[int64][]resource.UID{}
	for _, g := range groups {
		usage[g] = map[resource.Metric]int64{}
		for _, segment := range append([]int64{Segment(g)}, budgets.paid[Segment(g)]...) {
			if users[segment] == nil {
				segments = append(segments, segment)
			}
			users[segment] = append(users[segment], g)
		}
	}
	kinds := make([]string, 0, len(limited))
	for _, kind := range slices.Sorted(maps.Keys(limited)) {
		kinds = append(kinds, q.Arg(kind))
	}
	text := `SELECT c.grp, c.kind, CAST(sum(c.n) AS BIGINT) FROM ` + s.Engine.Unnest(&q, segments) + ` AS s
		CROSS JOIN counters AS c WHERE c.grp = s.v AND c.kind IN (` + strings.Join(kinds, `, `) + `) GROUP BY c.grp, c.kind`
	return usage, s.Rows(ctx, text, q.Args, func(row Scanner) (bool, error) {
		var group, n int64
		var kind string
		err := row.Scan(&group, &kind, &n)
		for _, g := range users[group] {
			usage[g][limited[kind]] += n
		}
		return false, err
	})
}

// Headroom is the amount of a metric that the budgets of a group leave at one moment.
// Nothing is reserved. A nil Headroom has no limit.
type Headroom struct {
	db     *DB
	budget resource.Budget
	metric resource.Metric
	used   int64
	left   int64
}

// Headroom returns the amount that the tightest budget leaves in a group, so that a client
// does not send bytes that cannot be stored. It costs nothing if there is no budget.
func (s *DB) Headroom(ctx context.Context, group resource.UID, m resource.Metric) (*Headroom, error) {
	budgets, err := s.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	var room *Headroom
	for _, b := range budgets.Above(group, m) {
		used, err := s.Usage(ctx, b.UID)
		if err != nil {
			return nil, err
		}
		if left := b.Limits[m] - used[m]; room == nil || left < room.left {
			room = &Headroom{s, b, m, used[m], left}
		}
	}
	return room, nil
}

// Require returns fault.FailedPrecondition if there is no room for n more.
func (r *Headroom) Require(ctx context.Context, n int64) error {
	if r == nil || n <= r.left {
		return nil
	}
	return r.db.OverBudget(ctx, r.budget, r.metric, r.used, n)
}
