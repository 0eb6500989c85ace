package store

import (
	"context"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

const (
	roundLimit = 5 * time.Second // for the answer to a question
	roundSize  = 64              // groups one statement asks for, at most
)

// reads shares questions about single groups: those that come while one is being
// answered make up the next. What a question costs, a round trip or the
// driver's work, it costs once for all of them.
//
// A question is asked after everybody in it has come, so that whoever knows of a
// change reads the group as changed, whichever process changed it.
type reads struct {
	s     *Store
	texts []string // the statements for 1, 2, 4, … groups

	mu   sync.Mutex
	next *round // of those who wait for the one under way to end
	busy bool

	reached int64 // the changes up to this revision are forgotten; the running round's
}

// A round is one question, and its answer once done is closed.
type round struct {
	uids  []resource.UID
	found []*resource.Group // nil where there is none
	err   error
	done  chan struct{}
}

func newReads(s *Store) *reads {
	r := &reads{s: s}
	for n := 1; n <= roundSize; n *= 2 {
		var params []string
		for i := range n {
			params = append(params, s.engine.param(i+1))
		}
		r.texts = append(r.texts, `SELECT `+groups.columns+` FROM groups AS t WHERE t.seg IN (`+strings.Join(params, ", ")+`)`)
	}
	return r
}

// group returns a group, or fault.NotFound.
func (r *reads) group(ctx context.Context, uid resource.UID) (resource.Group, error) {
	w, i := r.join(uid)
	select {
	case <-w.done:
	case <-ctx.Done():
		return resource.Group{}, ctx.Err()
	}
	if w.err != nil {
		return resource.Group{}, w.err
	}
	if w.found[i] == nil {
		return resource.Group{}, fault.Missing("group", string(uid))
	}
	return *w.found[i], nil
}

// join adds uid to the next round, and starts it if none is under way. It
// returns where in the round the answer will be.
func (r *reads) join(uid resource.UID) (w *round, i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	w = r.next
	w.uids = append(w.uids, uid)
	if !r.busy {
		r.busy = true
		go r.run()
	}
	return w, len(w.uids) - 1
}

// run answers rounds until nobody waits.
func (r *reads) run() {
	for {
		w := r.gather()
		if w == nil {
			return
		}
		w.err = r.s.inOurTime(r.answer(w))
		close(w.done)
	}
}

// gather closes the next round. Before it does, it lets those come who are on
// their way: it waits for nobody, but yields for as long as the round grows.
func (r *reads) gather() (w *round) {
	for was, is := -1, 0; is > was; {
		runtime.Gosched()
		r.mu.Lock()
		if was = is; r.next != nil {
			is = len(r.next.uids)
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w, r.next = r.next, nil
	r.busy = w != nil
	return w
}

func (r *reads) answer(w *round) error {
	ctx, cancel := context.WithTimeout(context.Background(), roundLimit)
	defer cancel()
	mark := r.s.seen.mark()
	absent := w.recall(r.s.seen)
	if r.s.engine.shared {
		return r.confirm(ctx, w, absent)
	}
	rows, err := r.groupsOf(ctx, absent)
	if err == nil {
		r.s.seen.put(rows, mark)
		w.fill(rows)
	}
	return err
}

// recall fills in what is remembered, and returns what is not.
func (w *round) recall(c *seen) (absent []resource.UID) {
	w.found = make([]*resource.Group, len(w.uids))
	for i, uid := range w.uids {
		if w.found[i], _ = c.groups.Get(uid); w.found[i] == nil {
			absent = append(absent, uid)
		}
	}
	return absent
}

// fill adds what was read.
func (w *round) fill(rows map[resource.UID]*resource.Group) {
	for i, uid := range w.uids {
		if w.found[i] == nil {
			w.found[i] = rows[uid]
		}
	}
}

// confirm reads what is absent from a database that other processes write to,
// and asks it in the same round trip whether what was remembered still stands.
// What does not is read as well.
func (r *reads) confirm(ctx context.Context, w *round, absent []resource.UID) error {
	revision, rows, err := r.revisionAnd(ctx, absent)
	if err != nil {
		return err
	}
	if revision != r.reached {
		changed, all, err := r.s.groupChanges(ctx, r.reached, revision)
		if err != nil {
			return err
		}
		again := w.drop(r.s.seen, changed, all)
		r.reached = revision
		if len(again) > 0 {
			if _, rows, err = r.revisionAnd(ctx, append(absent, again...)); err != nil {
				return err
			}
		}
	}
	r.s.seen.put(rows, r.s.seen.mark()) // read after the revision: later changes are still to be heard of
	w.fill(rows)
	return nil
}

// drop forgets the groups that have changed, or all of them, and returns those
// of the round that had been remembered.
func (w *round) drop(c *seen, changed map[resource.UID]bool, all bool) (again []resource.UID) {
	if all {
		c.forgetAll()
	}
	for uid := range changed {
		c.forget(uid)
	}
	for i, uid := range w.uids {
		if w.found[i] != nil && (all || changed[uid]) {
			w.found[i] = nil
			again = append(again, uid)
		}
	}
	return again
}

// tellRegrouped records the groups that a transaction has changed, for processes
// that remember them.
func (t *tx) tellRegrouped(ctx context.Context) error {
	if !t.s.engine.shared || len(t.regrouped) == 0 {
		return nil
	}
	n := int64(len(t.regrouped))
	var revision int64
	if err := t.row(ctx, `UPDATE revision SET rev = rev + $1 WHERE id = 2 RETURNING rev`, []any{n}, &revision); err != nil {
		return err
	}
	for i, uid := range t.regrouped {
		if err := t.later(ctx, `INSERT INTO group_changes (rev, grp) VALUES ($1, $2)`, revision-n+1+int64(i), string(uid)); err != nil {
			return err
		}
	}
	if revision%changesPruned < n {
		return t.later(ctx, `DELETE FROM group_changes WHERE rev <= $1`, revision-changesKept)
	}
	return nil
}

// groupChanges returns the groups that were changed after a revision and up to
// another, or that all may have been: the record does not go back for ever, and
// a database that was restored has gone back itself.
func (s *Store) groupChanges(ctx context.Context, since, until int64) (changed map[resource.UID]bool, all bool, err error) {
	changed = map[resource.UID]bool{}
	var n int64
	err = s.rows(ctx, `SELECT grp FROM group_changes WHERE rev > $1 AND rev <= $2`, []any{since, until}, func(row scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		n++
		changed[uid] = true
		return false, err
	})
	return changed, n != until-since, err
}

// groupsOf reads groups, as far as they are there.
func (r *reads) groupsOf(ctx context.Context, uids []resource.UID) (map[resource.UID]*resource.Group, error) {
	found := make(map[resource.UID]*resource.Group, len(uids))
	for some := range slices.Chunk(uids, roundSize) {
		text, args := r.groupsBySegment(some)
		if err := r.s.rows(ctx, text, args, collect(found)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// revisionAnd reads groups of PostgreSQL, and before them, in the same round
// trip, the revision of groups. A connection may have died since it was used:
// to read can be tried again.
func (r *reads) revisionAnd(ctx context.Context, uids []resource.UID) (revision int64, found map[resource.UID]*resource.Group, err error) {
	const tries = 3
	for range tries {
		if revision, found, err = r.ask(ctx, uids); r.s.engine.failure(err) != outage {
			break
		}
	}
	return revision, found, err
}

func (r *reads) ask(ctx context.Context, uids []resource.UID) (revision int64, found map[resource.UID]*resource.Group, _ error) {
	on, err := r.s.read.Conn(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer on.Close()
	batch := &pgx.Batch{}
	batch.Queue(`SELECT rev FROM revision WHERE id = 2`).QueryRow(func(row pgx.Row) error { return row.Scan(&revision) })
	found = make(map[resource.UID]*resource.Group, len(uids))
	for some := range slices.Chunk(uids, roundSize) {
		text, args := r.groupsBySegment(some)
		batch.Queue(text, args...).Query(func(rows pgx.Rows) error {
			for each := collect(found); rows.Next(); {
				if _, err := each(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	err = on.Raw(func(c any) error { return c.(*stdlib.Conn).Conn().SendBatch(ctx, batch).Close() })
	return revision, found, err
}

// groupsBySegment is the statement that reads groups by their key, the shortest
// of their indexes. There are few texts of it: the last group is asked for
// several times.
func (r *reads) groupsBySegment(uids []resource.UID) (text string, args []any) {
	size := bits.Len(uint(len(uids) - 1))
	for i := range 1 << size {
		args = append(args, segment(uids[min(i, len(uids)-1)]))
	}
	return r.texts[size], args
}

// collect puts groups where their UIDs are looked for.
func collect(found map[resource.UID]*resource.Group) func(scanner) (bool, error) {
	return func(row scanner) (bool, error) {
		g, err := groups.scan(row)
		found[g.UID] = &g
		return false, err
	}
}
