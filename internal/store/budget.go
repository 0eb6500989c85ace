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

// BytesCounter is the kind of counter of the bytes that are stored below a group or in
// a repo: every blob and every manifest once for each repo that has it, whether or
// not other repos have it, too, and uploads that have not become blobs. So what one
// tenant does never changes what another one uses.
const BytesCounter = "stored_bytes"

// Counters are the kinds of counters that budgets limit, by metric.
var Counters = map[resource.Metric]string{
	resource.StoredBytes: BytesCounter, resource.BudgetRepos: "repos", resource.BudgetIdentities: "identities",
	resource.BudgetAdvisories: "advisories", resource.Webhooks: "subscriptions",
}

// limited are the metrics by their kind of counter.
var limited = func() map[string]resource.Metric {
	all := map[string]resource.Metric{}
	for m, kind := range Counters {
		all[kind] = m
	}
	return all
}()

// BudgetHooks are what the store has to know of those who use it. All may be nil.
type BudgetHooks struct {
	// Visible reports whether the caller may know what a group uses. If not, a
	// refusal does not tell.
	Visible func(ctx context.Context, group resource.UID) bool

	// Refused is called for every refusal.
	Refused func(resource.Metric)
}

// Budgets are all budgets at one time. They are never changed.
type Budgets struct {
	version int64
	groups  map[int64]resource.Budget // by the segment of the group
}

// Above returns the budgets that limit a metric and hold for what has this uid: those
// of the groups above it and, if it is a group, its own; the organization's first.
func (b *Budgets) Above(uid resource.UID, m resource.Metric) (all []resource.Budget) {
	if len(b.groups) == 0 {
		return nil
	}
	for _, g := range append(uid.Ancestors(), uid) {
		budget, ok := b.groups[Segment(g)]
		if _, limits := budget.Limits[m]; ok && limits && budget.UID == g {
			all = append(all, budget)
		}
	}
	return all
}

// All returns all budgets by their uids.
func (b *Budgets) All() []resource.Budget {
	return slices.SortedFunc(maps.Values(b.groups), func(x, y resource.Budget) int { return cmp.Compare(x.UID, y.UID) })
}

// A budgetCache holds all budgets, because every write has to know those above it.
// Like the cache of repos it may be used only until the revision moves. Most moves
// do not change a budget, and so it keeps what it had, with its version.
type budgetCache struct {
	current atomic.Pointer[Budgets] // nil if they may be outdated

	mu      sync.Mutex
	last    *Budgets
	cleared uint64 // how often
}

func (c *budgetCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared++
	c.current.Store(nil)
}

// forget also drops what it had: in another history of the database the same version may be of other budgets.
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

// put takes budgets that were read, unless the cache was cleared since.
func (c *budgetCache) put(b *Budgets, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cleared == c.cleared {
		c.last = b
		c.current.Store(b)
	}
}

// cachedBudgets returns all budgets if they are in memory and current.
func (s *DB) cachedBudgets() *Budgets {
	if !s.Current() { // before the cache is asked: afterwards it may be outdated
		return nil
	}
	return s.budgets.current.Load()
}

// Budgets returns all budgets, from memory unless one may have changed.
func (s *DB) Budgets(ctx context.Context) (*Budgets, error) {
	if b := s.cachedBudgets(); b != nil {
		return b, nil
	}
	ctx = OutsideSimulation(ctx)
	last, cleared := s.budgets.state()
	b := last
	var version int64
	if err := s.Row(ctx, `SELECT rev FROM revision WHERE id = 3`, nil, &version); err != nil {
		return nil, fmt.Errorf("read the version of budgets: %w", err)
	}
	if last == nil || last.version != version {
		var err error // version and budgets in one statement, so that they belong together
		if b, err = readBudgets(ctx, s.Rows, `SELECT r.rev, coalesce(b.detail, '') FROM revision AS r
			LEFT JOIN budgets AS b ON b.uid <> '' WHERE r.id = 3`); err != nil {
			return nil, fmt.Errorf("read budgets: %w", err)
		}
	}
	s.budgets.put(b, cleared)
	return b, nil
}

// readBudgets reads rows of a version and a budget, or "".
func readBudgets(ctx context.Context, read Reader, text string, args ...any) (*Budgets, error) {
	b := &Budgets{groups: map[int64]resource.Budget{}}
	return b, read(ctx, text, args, func(row Scanner) (bool, error) {
		var detail string
		if err := row.Scan(&b.version, &detail); err != nil || detail == "" {
			return false, err
		}
		var budget resource.Budget
		err := json.Unmarshal([]byte(detail), &budget)
		b.groups[Segment(budget.UID)] = budget
		return false, err
	})
}

// BudgetsChanged has every replica read budgets again.
func (t *Tx) BudgetsChanged(ctx context.Context) error {
	t.changed(GrantChange{})
	return t.Later(ctx, `UPDATE revision SET rev = rev + 1 WHERE id = 3`)
}

// keepBudgets returns fault.FailedPrecondition if the transaction adds to a counter
// more than a budget leaves. It runs last, so that what it locks is locked briefly
// and by nobody who waits for another lock.
func (t *Tx) keepBudgets(ctx context.Context) error {
	added := map[counterKey]int64{}
	for _, c := range t.increments {
		if limited[c.key.kind] != "" {
			added[c.key] += c.n
		}
	}
	maps.DeleteFunc(added, func(_ counterKey, n int64) bool { return n <= 0 })
	if len(added) == 0 {
		return nil
	}
	all, err := t.budgetsOf(ctx, added)
	if err != nil || len(all.groups) == 0 {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(added), compareKeys) {
		m := limited[key.kind]
		b, ok := all.groups[key.group]
		limit, limits := b.Limits[m]
		if !ok || !limits {
			continue
		}
		if err := t.keepBudget(ctx, key, added[key], b, limit); err != nil {
			return err
		}
	}
	return nil
}

func compareKeys(a, b counterKey) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), cmp.Compare(a.group, b.group))
}

// budgetsOf returns the budgets of the groups whose counters a transaction adds to:
// from memory, or if that may be outdated, through the connection that it has.
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
	text := `SELECT 0, b.detail FROM ` + t.DB.Engine.Unnest(&q, slices.Compact(groups)) + ` AS s
		JOIN budgets AS b ON b.seg = s.v`
	return readBudgets(ctx, t.Rows, text, q.Args...)
}

// How near to its limit a budget is kept exactly. On PostgreSQL transactions that run
// at the same time do not see what the others add. If one like this, crowd times,
// would leave a part of the budget, it does not wait for others. Otherwise it waits
// until it is the only one between this check and its commit. So a budget can be
// exceeded only if others add more than that part between the check and the commit
// of one transaction, which is milliseconds.
const (
	crowd = 64
	part  = 8 // the eighth
)

// keepBudget checks what a transaction adds to one counter.
func (t *Tx) keepBudget(ctx context.Context, key counterKey, n int64, b resource.Budget, limit int64) error {
	used, err := t.counted(ctx, key)
	if err != nil {
		return err
	}
	if !t.DB.Engine.Postgres {
		used -= n // it is counted already
	} else if used+crowd*n > limit-limit/part {
		if _, err := t.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, $2))`, key.kind, key.group); err != nil {
			return err
		}
		if used, err = t.counted(ctx, key); err != nil {
			return err
		}
	}
	if used+n <= limit {
		return nil
	}
	return t.DB.OverBudget(ctx, b, limited[key.kind], used, n)
}

// counted returns what a counter has.
func (t *Tx) counted(ctx context.Context, key counterKey) (n int64, err error) {
	err = t.Row(ctx, `SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM counters WHERE kind = $1 AND grp = $2`,
		[]any{key.kind, key.group}, &n)
	return n, err
}

// OverBudget returns the error for a request that needs n more than a budget leaves.
func (s *DB) OverBudget(ctx context.Context, b resource.Budget, m resource.Metric, used, n int64) *fault.Error {
	return fault.OverQuota(s.Quota(ctx, b, m, used, fmt.Sprintf(", and this needs %d", n)))
}

// Quota counts a refusal, and describes the budget that is the reason for it. It tells
// what is used, and who can raise the budget, only to callers who may know it.
func (s *DB) Quota(ctx context.Context, b resource.Budget, m resource.Metric, used int64, needs string) fault.Quota {
	if s.BudgetHooks.Refused != nil {
		s.BudgetHooks.Refused(m)
	}
	q := fault.Quota{Metric: string(m)}
	if s.BudgetHooks.Visible == nil || !s.BudgetHooks.Visible(ctx, b.UID) {
		q.Description = "a budget of " + m.Unit() +
			" that holds here is used up; an administrator of a group above can tell more"
		return q
	}
	who := "whoever may update the group above it, " + string(b.UID.Parent()) + ","
	if b.UID.IsRoot() {
		who = "the operator of the installation"
	}
	q.Subject, q.Used, q.Limit, q.Known = "group:"+string(b.UID), used, b.Limits[m], true
	q.Description = fmt.Sprintf("the group %s has used %d of its budget of %d %s%s; %s can raise it",
		b.UID, used, b.Limits[m], m.Unit(), needs, who)
	return q
}

// Usage returns what a group uses of what has counters.
func (s *DB) Usage(ctx context.Context, group resource.UID) (map[resource.Metric]int64, error) {
	all, err := s.UsageOf(ctx, []resource.UID{group})
	return all[group], err
}

// UsageOf is Usage for several groups.
func (s *DB) UsageOf(ctx context.Context, groups []resource.UID) (map[resource.UID]map[resource.Metric]int64, error) {
	q := Query{Engine: s.Engine}
	segments, by := make([]int64, len(groups)), map[int64]resource.UID{}
	all := map[resource.UID]map[resource.Metric]int64{}
	for i, g := range groups {
		segments[i], by[Segment(g)] = Segment(g), g
		all[g] = map[resource.Metric]int64{}
	}
	kinds := make([]string, 0, len(limited))
	for _, kind := range slices.Sorted(maps.Keys(limited)) {
		kinds = append(kinds, q.Arg(kind))
	}
	text := `SELECT c.grp, c.kind, CAST(sum(c.n) AS BIGINT) FROM ` + s.Engine.Unnest(&q, segments) + ` AS s
		CROSS JOIN counters AS c WHERE c.grp = s.v AND c.kind IN (` + strings.Join(kinds, `, `) + `) GROUP BY c.grp, c.kind`
	err := s.Rows(ctx, text, q.Args, func(row Scanner) (bool, error) {
		var group, n int64
		var kind string
		err := row.Scan(&group, &kind, &n)
		all[by[group]][limited[kind]] = n
		return false, err
	})
	return all, err
}

// Room is what the budgets of a place leave of a metric, at one moment. Nothing is
// reserved. A nil Room has no limit.
type Headroom struct {
	db     *DB
	budget resource.Budget
	metric resource.Metric
	used   int64
	left   int64
}

// Room returns what the tightest budget leaves in a group, so that nobody sends bytes
// that cannot be stored. It costs nothing where there is no budget.
func (s *DB) Headroom(ctx context.Context, group resource.UID, m resource.Metric) (*Headroom, error) {
	all, err := s.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	var room *Headroom
	for _, b := range all.Above(group, m) {
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
