package store

import (
	"context"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

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
// change reads the group as changed.
type reads struct {
	s     *Store
	texts []string // the statements for 1, 2, 4, … groups

	mu   sync.Mutex
	next *round // of those who wait for the one under way to end
	busy bool
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
	rows, err := r.groupsOf(ctx, w.uids)
	if err != nil {
		return err
	}
	r.s.seen.put(rows, mark)
	for _, uid := range w.uids {
		w.found = append(w.found, rows[uid])
	}
	return nil
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
