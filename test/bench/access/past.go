package access

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
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	pastEach   = 10               // number of ended bindings for each current one
	pastLength = 30 * 24 * 3600e3 // how long an ended binding existed, in milliseconds
	pastTurns  = 200
	// Rows in binding_history per binding after a year, if a tenth of the bindings changes each month.
	yearOfRows = 1 + 12*0.1
)

// The recorded history of the dataset begins at pastBegin, and its last binding was created at pastEnd, both in
// milliseconds.
const (
	pastBegin = int64(rig.Epoch)
	pastEnd   = pastBegin + (pastEach+1)*pastLength
)

// pastDataset returns a database with n current bindings, and with pastEach times as many ended bindings.
func pastDataset(ctx context.Context, m *rig.Measurement, n int) rig.Dataset {
	d := m.Load(ctx, fmt.Sprintf("past_%d", n), rig.Tree{
		Groups: max(n/100, rig.SmallRows),
	}, n/rig.GrantsEach, func(d rig.Dataset) []rig.Table {
		return []rig.Table{groupHistory(d.Tree), bindingHistory(d.Tree, n/rig.GrantsEach)}
	})
	db := m.Engine.Connect(d.URL, 1)
	defer db.Close()
	for _, text := range []string{
		`UPDATE access_history SET since_ms = $1`, `UPDATE role_history SET from_ms = $1`,
		`UPDATE group_history SET from_ms = $1`,
	} {
		rig.Must(db.ExecContext(ctx, text, pastBegin))
	}
	return d
}

func groupHistory(t rig.Tree) rig.Table {
	columns := []string{"seg", "uid", "parent", "name", "from_ms", "to_ms"}
	return rig.Table{Name: "group_history", Columns: columns, Rows: func(yield func([]any) bool) {
		for uid := range t.All() {
			if !yield([]any{
				rig.SegmentNumber(uid), string(uid), rig.SegmentNumber(uid.Parent()), "g", pastBegin, int64(math.MaxInt64),
			}) {
				return
			}
		}
	}}
}

// bindingHistory returns the bindings in BindingTable and, for each of them, pastEach earlier bindings on the same
// group.
func bindingHistory(t rig.Tree, n int) rig.Table {
	columns := []string{
		"seg", "uid", "grp", "org", "identity", "role", "create_ms", "start_ms", "expire_ms", "from_ms", "to_ms",
		"made_by", "ended_by",
	}
	return rig.Table{Name: "binding_history", Columns: columns, Rows: func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(7, uint64(n)))
		for row := range t.BindingTable(n).Rows {
			uid, parent, role := resource.UID(row[1].(string)), row[2], row[7]
			identity, since, org := row[6], pastBegin+r.Int64N(pastLength), rig.SegmentNumber(t.Org)
			for range pastEach {
				before := uid.Parent() + resource.UID(rig.RandomSegment(r))
				holder := string(t.Identity(r.IntN(n)))
				if !yield([]any{
					rig.SegmentNumber(before), string(before), parent, org, holder, role, since, int64(0), int64(0), since,
					since + pastLength, holder, holder,
				}) {
					return
				}
				since += pastLength
			}
			if !yield([]any{
				row[0], string(uid), parent, org, identity, role, since, int64(0), int64(0), since,
				int64(math.MaxInt64), identity, "",
			}) {
				return
			}
		}
	}}
}

// Past measures questions about past access with a small and a big dataset, and the size of the recorded history.
func Past(ctx context.Context, m *rig.Measurement) {
	small, big := pastDataset(ctx, m, m.Bench.Rows/10), pastDataset(ctx, m, m.Bench.Rows)
	before, after := askPast(ctx, m, small), askPast(ctx, m, big)
	m.Below("as of: check", after.check.Seconds(), 0.05, rig.Seconds)
	m.Below("as of: who-can, first page", after.who.Seconds(), 0.2, rig.Seconds)
	m.Below("as of: what somebody held", after.held.Seconds(), 0.2, rig.Seconds)
	m.Below("as of: difference of three days, in which a tenth changed", after.diff.Seconds(), 0, rig.Seconds)
	m.Note("As of: the times are the worst of %d, with %d bindings and %d rows of history. "+
		"With a tenth of both: check %s, "+
		"who-can %s, what somebody held %s, difference %s.", pastTurns, m.Bench.Rows, m.Bench.Rows*(pastEach+1),
		rig.FormatDuration(before.check),
		rig.FormatDuration(before.who), rig.FormatDuration(before.held), rig.FormatDuration(before.diff))
	historySize(ctx, m, big)
}

// pastTimes contains the longest duration of each kind of question.
type pastTimes struct{ check, who, held, diff time.Duration }

// askPast asks about random times, groups and identities, and returns the longest durations.
func askPast(ctx context.Context, m *rig.Measurement, d rig.Dataset) (worst pastTimes) {
	s, c, _ := load(ctx, d.URL)
	defer func() { rig.Check(s.Close()) }()
	db := grantlog.New(s)
	random := rand.New(rand.NewPCG(8, 8))
	folders := slices.Collect(slices.Values(d.Folders()))
	first := page.Request{Size: page.DefaultSize, Order: page.Order{Field: "uid"}}
	for turn := range pastTurns + 1 {
		identity := d.Identity(random.IntN(d.Identities))
		group := folders[random.IntN(len(folders))]
		if held := c.GrantsOf(identity); len(held) > 0 {
			group = held[random.IntN(len(held))].Group
		}
		asOf := store.FromMS(pastBegin + random.Int64N(pastEnd-pastBegin))
		took := pastTurn(ctx, m, db, c, grantlog.Query{At: asOf, Groups: append(group.Ancestors(), group)}, identity, d.Org,
			first, turn)
		if turn > 0 { // the first turn prepares statements and reads pages from the disk
			worst = pastTimes{
				max(worst.check, took.check), max(worst.who, took.who), max(worst.held, took.held), max(worst.diff, took.diff),
			}
		}
	}
	return worst
}

func pastTurn(
	ctx context.Context, m *rig.Measurement, db *grantlog.Store, c *authz.Checker, q grantlog.Query, identity,
	org resource.UID, first page.Request, turn int,
) (took pastTimes) {
	took.check = rig.Timed(ctx, 0, func(ctx context.Context, _ int) error {
		rig.Check(db.RequirePast(ctx, "as_of", q.At))
		rig.Must(c.HeldAt(ctx, identity, resource.GroupsList, q.Groups[len(q.Groups)-1], q.At))
		return nil
	})
	took.who = rig.Timed(ctx, 0, func(ctx context.Context, _ int) error {
		who := q
		roles, _, err := db.RolesHeldAt(ctx, who)
		for _, r := range roles {
			who.Roles = append(who.Roles, r.UID)
		}
		rig.Check(err)
		rig.Must(db.PastBindings(ctx, who, first))
		return nil
	})
	took.held = rig.Timed(ctx, 0, func(ctx context.Context, _ int) error {
		rig.Must(db.PastBindings(ctx, grantlog.Query{At: q.At, Identity: identity, Under: []resource.UID{org}}, first))
		return nil
	})
	if turn%20 > 0 {
		return took
	}
	took.diff = rig.Timed(ctx, 0, func(ctx context.Context, _ int) error {
		month := grantlog.DiffQuery{
			From: q.At, To: q.At.Add(pastLength / 10 * time.Millisecond), Under: q.Groups[min(1, len(q.Groups)-1):],
		}
		rig.Must(db.DiffGrants(ctx, month, page.Request{Size: page.DefaultSize, Order: page.Order{Field: "time"}}))
		return nil
	})
	return took
}

// historySize compares the size of the history that is recorded in a year with the size of the bindings, both with
// their indexes.
func historySize(ctx context.Context, m *rig.Measurement, d rig.Dataset) {
	db := m.Engine.Connect(d.URL, 1)
	defer db.Close()
	text := `SELECT sum(s.pgsize) FROM dbstat AS s JOIN sqlite_master AS m ON m.name = s.name WHERE m.tbl_name = $1`
	if store.IsPostgres(d.URL) {
		text = `SELECT pg_total_relation_size($1::regclass)`
	}
	size := map[string]float64{}
	for _, name := range []string{"role_bindings", "binding_history"} {
		var bytes int64
		rig.Check(db.QueryRowContext(ctx, text, name).Scan(&bytes))
		size[name] = float64(bytes)
	}
	year := size["binding_history"] / (pastEach + 1) * yearOfRows
	m.Below("as of: bytes of a year's history by those of bindings", year/size["role_bindings"], 1.5, rig.Times)
}
