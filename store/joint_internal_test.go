package store

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDepartures follows who leaves with whom: those who are fewer than the
// ones under way wait for these, but not for long.
func TestDepartures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &departures{t: t, ends: map[*tx]chan struct{}{}}
		d.joint.send = d.send
		a := d.come(1)
		d.want(1)
		b := d.come(1) // as many as are under way
		d.want(1, 1)
		d.come(3) // there is no third commit
		d.want(1, 1)
		d.end(a)
		d.want(1, 1, 3)
		c := d.come(1)
		d.end(b) // it could leave, but is fewer than three
		d.want(1, 1, 3)
		time.Sleep(jointPatience)
		d.want(1, 1, 3, 1)
		d.end(c)
		e := d.come(1)
		d.want(1, 1, 3, 1)
		time.Sleep(jointPatience)
		d.want(1, 1, 3, 1, 1)
		d.end(e)
		d.come(2)
		d.want(1, 1, 3, 1, 1)
		d.end(d.sent[2][0])
		d.want(1, 1, 3, 1, 1, 2) // the one under way has ended
		d.end(d.sent[5][0])
		if d.joint.running != 0 || d.joint.leaving != 0 {
			t.Errorf("%d commits with %d transactions are left", d.joint.running, d.joint.leaving)
		}
		time.Sleep(jointPatience)
		d.want(1, 1, 3, 1, 1, 2)
	})
}

// departures is a joint whose commits end when they are told to.
type departures struct {
	t     *testing.T
	joint joint
	sent  [][]*tx
	ends  map[*tx]chan struct{} // by the first of a commit
}

func (d *departures) send(_ context.Context, ts ...*tx) error {
	end := make(chan struct{})
	d.joint.mu.Lock()
	d.sent, d.ends[ts[0]] = append(d.sent, ts), end
	d.joint.mu.Unlock()
	<-end
	return nil
}

// come adds n transactions, and returns the first.
func (d *departures) come(n int) (first *tx) {
	for range n {
		t := &tx{rest: []deferred{{}}}
		if first == nil {
			first = t
		}
		go func() {
			if err := d.joint.commit(d.t.Context(), t); err != nil && d.t.Context().Err() == nil {
				d.t.Error(err)
			}
		}()
	}
	synctest.Wait()
	return first
}

func (d *departures) end(first *tx) {
	close(d.ends[first])
	synctest.Wait()
}

// want checks how many have left together.
func (d *departures) want(sizes ...int) {
	d.t.Helper()
	synctest.Wait()
	d.joint.mu.Lock()
	defer d.joint.mu.Unlock()
	var got []int
	for _, ts := range d.sent {
		got = append(got, len(ts))
	}
	if !slices.Equal(got, sizes) {
		d.t.Fatalf("left: %v, want %v", got, sizes)
	}
}
