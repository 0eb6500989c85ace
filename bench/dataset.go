package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/resource"
)

const (
	folders     = 100           // directly under the organization; each holds 1 % of the groups
	grantsEach  = 10            // bindings of an identity
	epoch       = 1700000000000 // when the first group was made, in milliseconds
	description = "a group that was made to be counted, listed and timed"
	issuer      = "https://issuer.test"
)

// A forest is an organization with its folders and the groups in them. It is the
// same at every call: random, but from a fixed seed.
type forest struct {
	org    resource.UID
	groups int // in all folders together
}

func segment(r *rand.Rand) string { return fmt.Sprintf("/%016x", r.Uint64()) }

// all yields every group below the organization, parents first. Names are
// random, and creation times follow the tree: each folder was filled in one go,
// which is where an index in the order of time helps least.
func (f forest) all() iter.Seq[resource.UID] {
	return func(yield func(resource.UID) bool) {
		r := rand.New(rand.NewPCG(1, uint64(f.groups)))
		for range folders {
			folder := f.org + resource.UID(segment(r))
			if !yield(folder) {
				return
			}
			for range f.groups / folders {
				if !yield(folder + resource.UID(segment(r))) {
					return
				}
			}
		}
	}
}

// folders returns the groups directly under the organization.
func (f forest) folders() []resource.UID {
	var all []resource.UID
	for uid := range f.all() {
		if uid.Parent() == f.org {
			all = append(all, uid)
		}
	}
	return all
}

// A table is rows to load.
type table struct {
	name    string
	columns []string
	rows    iter.Seq[[]any]
}

var placeColumns = []string{"seg", "uid", "parent", "a1", "a2", "a3"}

// number is the last segment of a uid as the store keeps it.
func number(uid resource.UID) int64 { return uid.Segment() ^ math.MinInt64 }

// place returns the columns that every resource starts with.
func place(uid resource.UID) []any {
	values := []any{number(uid), string(uid), number(uid.Parent())}
	for d := 1; d <= 3; d++ {
		if d < uid.Depth() {
			values = append(values, number(uid.Ancestor(d)))
		} else {
			values = append(values, nil)
		}
	}
	return values
}

func (f forest) groupTable() table {
	columns := append(placeColumns[:6:6], "name", "description", "verified", "kind", "create_ms", "update_ms")
	return table{"groups", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(2, uint64(f.groups)))
		at := int64(epoch)
		for uid := range f.all() {
			at++
			name := fmt.Sprintf("g-%012x", r.Uint64()>>16)
			if !yield(append(place(uid), name, description, false, int64(resource.OrgDev), at, at)) {
				return
			}
		}
	}}
}

// identity returns the i-th identity of the organization.
func (f forest) identity(i int) resource.UID {
	r := rand.New(rand.NewPCG(3, uint64(i)))
	return f.org + resource.UID(segment(r))
}

func (f forest) identityTable(n int) table {
	columns := append(placeColumns[:6:6], "name", "description", "email", "email_unverified", "company", "relationship",
		"detail", "metadata", "issuer", "subject", "last_seen_ms", "create_ms", "update_ms")
	return table{"identities", columns, func(yield func([]any) bool) {
		for i := range n {
			subject, at := fmt.Sprintf("workload-%d", i), int64(epoch+i)
			match := resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: subject}}
			detail, _ := json.Marshal(match) // strings cannot fail
			if !yield(append(place(f.identity(i)), subject, "", "", "", "", int64(match.Type()),
				string(detail), "", issuer, subject, at, at, at)) {
				return
			}
		}
	}}
}

// bindingTable gives n identities grantsEach roles, each on a group of its own
// of all there are.
func (f forest) bindingTable(n int) table {
	columns := append(placeColumns[:6:6], "identity", "role", "create_ms")
	return table{"role_bindings", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(4, uint64(n)))
		var groups []resource.UID
		for uid := range f.all() {
			groups = append(groups, uid)
		}
		roles := authz.ManagedRoles()
		for i := range n {
			identity, first := f.identity(i), r.IntN(len(groups))
			for k := range grantsEach {
				group := groups[(first+k*(len(groups)/grantsEach))%len(groups)]
				uid := group + resource.UID(segment(r))
				role := number(roles[r.IntN(len(roles))].UID)
				if !yield(append(place(uid), string(identity), role, int64(epoch+i))) {
					return
				}
			}
		}
	}}
}

// tallied passes on the rows of t, and counts them for every group above.
func (t table) tallied(into tally) table {
	rows := t.rows
	t.rows = func(yield func([]any) bool) {
		for row := range rows {
			into.add(t.name, resource.UID(row[1].(string)))
			if !yield(row) {
				return
			}
		}
	}
	return t
}

// A tally is what the counters have to say: by kind and group, how many are
// below and how many directly.
type tally map[tallyKey]*[2]int64

type tallyKey struct {
	kind  string
	group int64
}

func (c tally) add(kind string, uid resource.UID) {
	for g := uid.Parent(); g != ""; g = g.Parent() {
		k := tallyKey{kind, number(g)}
		n := c[k]
		if n == nil {
			n = new([2]int64)
			c[k] = n
		}
		n[0]++
		if g == uid.Parent() {
			n[1]++
		}
	}
}
