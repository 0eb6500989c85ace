package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	pastEach   = 10               // bindings that are over for each that counts
	pastLength = 30 * 24 * 3600e3 // for which each of them counted, in milliseconds
	pastTurns  = 200
	yearOfRows = 1 + 12*0.1 // rows of history for each binding after a year in which a tenth changes each month
)

// pastBegin and pastEnd are when the history of the dataset begins, and when its last binding was made.
const (
	pastBegin = int64(epoch)
	pastEnd   = pastBegin + (pastEach+1)*pastLength
)

// pastDataset returns a database with n bindings and pastEach times as many that are over.
func (m *measurement) pastDataset(ctx context.Context, n int) dataset {
	d := m.load(ctx, fmt.Sprintf("past_%d", n), tree{groups: max(n/100, smallRows)}, n/grantsEach, func(d dataset) []table {
		return []table{d.groupHistory(), d.bindingHistory(n / grantsEach)}
	})
	db := m.engine.connect(d.url, 1)
	defer db.Close()
	for _, text := range []string{
		`UPDATE access_history SET since_ms = $1`, `UPDATE role_history SET from_ms = $1`,
		`UPDATE group_history SET from_ms = $1`,
	} {
		must(db.ExecContext(ctx, text, pastBegin))
	}
	return d
}

func (t tree) groupHistory() table {
	columns := []string{"seg", "uid", "parent", "name", "from_ms", "to_ms"}
	return table{"group_history", columns, func(yield func([]any) bool) {
		for uid := range t.all() {
			if !yield([]any{number(uid), string(uid), number(uid.Parent()), "g", pastBegin, int64(math.MaxInt64)}) {
				return
			}
		}
	}}
}

// bindingHistory has the bindings of bindingTable, and before each pastEach of others on the same group.
func (t tree) bindingHistory(n int) table {
	columns := []string{"seg", "uid", "grp", "org", "identity", "role", "create_ms", "start_ms", "expire_ms", "from_ms", "to_ms",
		"made_by", "ended_by"}
	return table{"binding_history", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(7, uint64(n)))
		for row := range t.bindingTable(n).rows {
			uid, parent, role := resource.UID(row[1].(string)), row[2], row[7]
			identity, at, org := row[6], pastBegin+r.Int64N(pastLength), number(t.org)
			for range pastEach {
				before := uid.Parent() + resource.UID(segment(r))
				other := string(t.identity(r.IntN(n)))
				if !yield([]any{number(before), string(before), parent, org, other, role, at, int64(0), int64(0), at, at + pastLength, other, other}) {
					return
				}
				at += pastLength
			}
			if !yield([]any{row[0], string(uid), parent, org, identity, role, at, int64(0), int64(0), at, int64(math.MaxInt64), identity, ""}) {
				return
			}
		}
	}}
}

// pastChecks measures questions about the past at two sizes, and how much room history takes.
func pastChecks(ctx context.Context, m *measurement) {
	small, big := m.pastDataset(ctx, m.bench.rows/10), m.pastDataset(ctx, m.bench.rows)
	before, after := m.askPast(ctx, small), m.askPast(ctx, big)
	m.under("as of: check", after.check.Seconds(), 0.05, seconds)
	m.under("as of: who-can, first page", after.who.Seconds(), 0.2, seconds)
	m.under("as of: what somebody held", after.held.Seconds(), 0.2, seconds)
	m.under("as of: difference of three days, in which a tenth changed", after.diff.Seconds(), 0, seconds)
	m.note("As of: the times are the worst of %d, with %d bindings and %d rows of history. With a tenth of both: check %s, "+
		"who-can %s, what somebody held %s, difference %s.", pastTurns, m.bench.rows, m.bench.rows*(pastEach+1), brief(before.check),
		brief(before.who), brief(before.held), brief(before.diff))
	m.historySize(ctx, big)
}

// pastTimes are the worst times of questions.
type pastTimes struct{ check, who, held, diff time.Duration }

// askPast asks about random times, groups and identities.
func (m *measurement) askPast(ctx context.Context, d dataset) (worst pastTimes) {
	s, c, _ := load(ctx, d.url)
	defer func() { check(s.Close()) }()
	db := grantlog.New(s)
	random := rand.New(rand.NewPCG(8, 8))
	folders := slices.Collect(slices.Values(d.folders()))
	first := page.Request{Size: page.DefaultSize, Order: page.Order{Field: "uid"}}
	for turn := range pastTurns + 1 {
		identity := d.identity(random.IntN(d.identities))
		group := folders[random.IntN(len(folders))]
		if held := c.GrantsOf(identity); len(held) > 0 {
			group = held[random.IntN(len(held))].Group
		}
		at := store.FromMS(pastBegin + random.Int64N(pastEnd-pastBegin))
		one := m.pastTurn(ctx, db, c, grantlog.Query{At: at, Groups: append(group.Ancestors(), group)}, identity, d.org, first, turn)
		if turn > 0 { // the first reads statements and pages
			worst = pastTimes{max(worst.check, one.check), max(worst.who, one.who), max(worst.held, one.held), max(worst.diff, one.diff)}
		}
	}
	return worst
}

func (m *measurement) pastTurn(
	ctx context.Context, db *grantlog.Store, c *authz.Checker, q grantlog.Query, identity, org resource.UID, first page.Request, turn int,
) (took pastTimes) {
	took.check = timed(ctx, 0, func(ctx context.Context, _ int) error {
		check(db.RequirePast(ctx, "as_of", q.At))
		must(c.HeldAt(ctx, identity, resource.GroupsList, q.Groups[len(q.Groups)-1], q.At))
		return nil
	})
	took.who = timed(ctx, 0, func(ctx context.Context, _ int) error {
		who := q
		roles, _, err := db.RolesHeldAt(ctx, who)
		for _, r := range roles {
			who.Roles = append(who.Roles, r.UID)
		}
		check(err)
		must(db.PastBindings(ctx, who, first))
		return nil
	})
	took.held = timed(ctx, 0, func(ctx context.Context, _ int) error {
		must(db.PastBindings(ctx, grantlog.Query{At: q.At, Identity: identity, Under: []resource.UID{org}}, first))
		return nil
	})
	if turn%20 > 0 {
		return took
	}
	took.diff = timed(ctx, 0, func(ctx context.Context, _ int) error {
		month := grantlog.DiffQuery{From: q.At, To: q.At.Add(pastLength / 10 * time.Millisecond), Under: q.Groups[min(1, len(q.Groups)-1):]}
		must(db.DiffGrants(ctx, month, page.Request{Size: page.DefaultSize, Order: page.Order{Field: "time"}}))
		return nil
	})
	return took
}

// historySize compares the bytes of the history of a year with those of the bindings, with their indexes.
func (m *measurement) historySize(ctx context.Context, d dataset) {
	db := m.engine.connect(d.url, 1)
	defer db.Close()
	text := `SELECT sum(s.pgsize) FROM dbstat AS s JOIN sqlite_master AS m ON m.name = s.name WHERE m.tbl_name = $1`
	if store.IsPostgres(d.url) {
		text = `SELECT pg_total_relation_size($1::regclass)`
	}
	size := map[string]float64{}
	for _, name := range []string{"role_bindings", "binding_history"} {
		var bytes int64
		check(db.QueryRowContext(ctx, text, name).Scan(&bytes))
		size[name] = float64(bytes)
	}
	year := size["binding_history"] / (pastEach + 1) * yearOfRows
	m.under("as of: bytes of a year's history by those of bindings", year/size["role_bindings"], 1.5, times)
}
