package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	folders     = 100           // directly under the organization; each has 1 % of the groups
	grantsEach  = 10            // bindings of an identity
	epoch       = 1700000000000 // the creation time of the first group, in milliseconds
	description = "a group that was made to be counted, listed and timed"
	issuer      = "https://issuer.test"
)

// A tree is an organization with folders and groups in them. It is random, but from a fixed
// seed, so it is the same at every call.
type tree struct {
	org    resource.UID
	groups int  // in all folders together
	timed  bool // every second binding has an end
}

func segment(r *rand.Rand) string { return fmt.Sprintf("/%016x", r.Uint64()) }

// all yields every group below the organization, parents first. Names are random. Creation
// times are in this order, for which an index by time helps least.
func (t tree) all() iter.Seq[resource.UID] {
	return func(yield func(resource.UID) bool) {
		r := rand.New(rand.NewPCG(1, uint64(t.groups)))
		for range folders {
			folder := t.org + resource.UID(segment(r))
			if !yield(folder) {
				return
			}
			for range t.groups / folders {
				if !yield(folder + resource.UID(segment(r))) {
					return
				}
			}
		}
	}
}

// folders returns the groups directly under the organization.
func (t tree) folders() []resource.UID {
	var all []resource.UID
	for uid := range t.all() {
		if uid.Parent() == t.org {
			all = append(all, uid)
		}
	}
	return all
}

// A table has the rows to load into a table.
type table struct {
	name    string
	columns []string
	rows    iter.Seq[[]any]
}

var keyColumns = []string{"seg", "uid", "parent", "a1", "a2", "a3"}

// number returns the last segment of a UID as the store has it.
func number(uid resource.UID) int64 { return uid.Segment() ^ math.MinInt64 }

// keys returns the values of keyColumns, which every table of resources has.
func keys(uid resource.UID) []any {
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

func (t tree) groupTable() table {
	columns := append(keyColumns[:6:6], "name", "description", "verified", "kind", "create_ms", "update_ms")
	return table{"groups", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(2, uint64(t.groups)))
		at := int64(epoch)
		for uid := range t.all() {
			at++
			name := fmt.Sprintf("g-%012x", r.Uint64()>>16)
			if !yield(append(keys(uid), name, description, false, int64(resource.OrgDev), at, at)) {
				return
			}
		}
	}}
}

// identity returns the i-th identity of the organization.
func (t tree) identity(i int) resource.UID {
	r := rand.New(rand.NewPCG(3, uint64(i)))
	return t.org + resource.UID(segment(r))
}

func (t tree) identityTable(n int) table {
	columns := append(keyColumns[:6:6], "name", "description", "email", "email_unverified", "company", "relationship",
		"detail", "metadata", "issuer", "subject", "last_seen_ms", "create_ms", "update_ms")
	return table{"identities", columns, func(yield func([]any) bool) {
		for i := range n {
			subject, at := fmt.Sprintf("workload-%d", i), int64(epoch+i)
			match := resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: subject}}
			detail, _ := json.Marshal(match) // cannot fail: strings
			if !yield(append(keys(t.identity(i)), subject, "", "", "", "", int64(match.Type()),
				string(detail), "", issuer, subject, at, at, at)) {
				return
			}
		}
	}}
}

// bindingTable binds n identities to grantsEach roles, each on another group.
func (t tree) bindingTable(n int) table {
	const end = epoch + 100*365*24*3600e3 // of those that have one, in a century
	columns := append(keyColumns[:6:6], "identity", "role", "create_ms", "expire_ms")
	return table{"role_bindings", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(4, uint64(n)))
		var groups []resource.UID
		for uid := range t.all() {
			groups = append(groups, uid)
		}
		roles := authz.ManagedRoles()
		for i := range n {
			identity, first := t.identity(i), r.IntN(len(groups))
			for k := range grantsEach {
				group := groups[(first+k*(len(groups)/grantsEach))%len(groups)]
				uid := group + resource.UID(segment(r))
				role := number(roles[r.IntN(len(roles))].UID)
				expire := int64(0)
				if t.timed && k%2 == 0 {
					expire = end
				}
				if !yield(append(keys(uid), string(identity), role, int64(epoch+i), expire)) {
					return
				}
			}
		}
	}}
}

// counted returns t, and counts its rows for every group above them when they are read.
func (t table) counted(into counters) table {
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

// counters are the counters of the store: by kind and group, the number of resources below
// it and the number of its children.
type counters map[counterKey]*[2]int64

type counterKey struct {
	kind  string
	group int64
}

func (c counters) add(kind string, uid resource.UID) {
	for g := uid.Parent(); g != ""; g = g.Parent() {
		k := counterKey{kind, number(g)}
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
