package rig

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// The shape of datasets.
const (
	Folders     = 100           // groups directly under the organization; each contains 1 % of the groups
	GrantsEach  = 10            // bindings of an identity
	Epoch       = 1700000000000 // the creation time of the first group, in milliseconds
	Description = "a group that was made to be counted, listed and timed"
	issuer      = "https://issuer.test"
)

// A Tree is an organization with folders and groups in them. Its UIDs are random numbers from a fixed seed, so they are
// the same at every call.
type Tree struct {
	Org    resource.UID
	Groups int  // in all folders together
	timed  bool // every second binding has an end
}

// RandomSegment returns a random segment of a UID, with its slash.
func RandomSegment(r *rand.Rand) string { return fmt.Sprintf("/%016x", r.Uint64()) }

// All yields every group below the organization, parents first. Names are random. Creation times have the same order;
// an index by time helps least with this order.
func (t Tree) All() iter.Seq[resource.UID] {
	return func(yield func(resource.UID) bool) {
		r := rand.New(rand.NewPCG(1, uint64(t.Groups)))
		for range Folders {
			folder := t.Org + resource.UID(RandomSegment(r))
			if !yield(folder) {
				return
			}
			for range t.Groups / Folders {
				if !yield(folder + resource.UID(RandomSegment(r))) {
					return
				}
			}
		}
	}
}

// Folders returns the groups directly under the organization.
func (t Tree) Folders() []resource.UID {
	var folders []resource.UID
	for uid := range t.All() {
		if uid.Parent() == t.Org {
			folders = append(folders, uid)
		}
	}
	return folders
}

// A Table contains the rows to load into a database table.
type Table struct {
	Name    string
	Columns []string
	Rows    iter.Seq[[]any]
}

// KeyColumns are the columns that every table of resources has.
var KeyColumns = []string{"seg", "uid", "parent", "a1", "a2", "a3"}

// SegmentNumber returns the last segment of a UID as the number that the store keeps.
func SegmentNumber(uid resource.UID) int64 { return uid.Segment() ^ math.MinInt64 }

// Keys returns the values of KeyColumns for a resource.
func Keys(uid resource.UID) []any {
	values := []any{SegmentNumber(uid), string(uid), SegmentNumber(uid.Parent())}
	for d := 1; d <= 3; d++ {
		if d < uid.Depth() {
			values = append(values, SegmentNumber(uid.Ancestor(d)))
		} else {
			values = append(values, nil)
		}
	}
	return values
}

func (t Tree) groupTable() Table {
	columns := append(KeyColumns[:6:6], "name", "description", "verified", "kind", "create_ms", "update_ms")
	return Table{"groups", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(2, uint64(t.Groups)))
		createMS := int64(Epoch)
		for uid := range t.All() {
			createMS++
			name := fmt.Sprintf("g-%012x", r.Uint64()>>16)
			if !yield(append(Keys(uid), name, Description, false, int64(resource.OrgDev), createMS, createMS)) {
				return
			}
		}
	}}
}

// Identity returns the i-th identity of the organization.
func (t Tree) Identity(i int) resource.UID {
	r := rand.New(rand.NewPCG(3, uint64(i)))
	return t.Org + resource.UID(RandomSegment(r))
}

func (t Tree) identityTable(n int) Table {
	columns := append(KeyColumns[:6:6], "name", "description", "email", "email_unverified", "company", "relationship",
		"detail", "metadata", "issuer", "subject", "last_seen_ms", "create_ms", "update_ms")
	return Table{"identities", columns, func(yield func([]any) bool) {
		for i := range n {
			subject, createMS := fmt.Sprintf("workload-%d", i), int64(Epoch+i)
			match := resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: subject}}
			detail, _ := json.Marshal(match) // cannot fail: strings
			if !yield(append(Keys(t.Identity(i)), subject, "", "", "", "", int64(match.Type()),
				string(detail), "", issuer, subject, createMS, createMS, createMS)) {
				return
			}
		}
	}}
}

// BindingTable returns the bindings of n identities. Each identity has GrantsEach roles, each on another group.
func (t Tree) BindingTable(n int) Table {
	const end = Epoch + 100*365*24*3600e3 // expiry of the timed bindings, in a century
	columns := append(KeyColumns[:6:6], "identity", "role", "create_ms", "expire_ms")
	return Table{"role_bindings", columns, func(yield func([]any) bool) {
		r := rand.New(rand.NewPCG(4, uint64(n)))
		var groups []resource.UID
		for uid := range t.All() {
			groups = append(groups, uid)
		}
		roles := authz.ManagedRoles()
		for i := range n {
			identity, first := t.Identity(i), r.IntN(len(groups))
			for k := range GrantsEach {
				group := groups[(first+k*(len(groups)/GrantsEach))%len(groups)]
				uid := group + resource.UID(RandomSegment(r))
				role := SegmentNumber(roles[r.IntN(len(roles))].UID)
				expire := int64(0)
				if t.timed && k%2 == 0 {
					expire = end
				}
				if !yield(append(Keys(uid), string(identity), role, int64(Epoch+i), expire)) {
					return
				}
			}
		}
	}}
}

// Counted returns t. When the rows of the result are read, they are added to the counters of every group above them.
func (t Table) Counted(sums Counters) Table {
	rows := t.Rows
	t.Rows = func(yield func([]any) bool) {
		for row := range rows {
			sums.add(t.Name, resource.UID(row[1].(string)))
			if !yield(row) {
				return
			}
		}
	}
	return t
}

// Counters are the counters of the store. For each kind and group they have the number of resources below the group,
// and the number of its children.
type Counters map[counterKey]*[2]int64

type counterKey struct {
	kind  string
	group int64
}

func (c Counters) add(kind string, uid resource.UID) {
	for g := uid.Parent(); g != ""; g = g.Parent() {
		k := counterKey{kind, SegmentNumber(g)}
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
