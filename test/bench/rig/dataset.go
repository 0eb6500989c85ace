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

// These constants describe the shape of the datasets.
const (
	Folders     = 100           // number of groups directly under the organization; each contains 1 % of the groups
	GrantsEach  = 10            // number of bindings for each identity
	Epoch       = 1700000000000 // creation time of the first group, in milliseconds
	Description = "a group that was made to be counted, listed and timed"
	issuer      = "https://issuer.test"
)

// A Tree is an organization with folders, and with groups in the folders. The UIDs are random numbers from a fixed
// seed, so that they are the same in every run.
type Tree struct {
	Org    resource.UID
	Groups int  // number of groups in all folders together
	timed  bool // whether every second binding has an expiry
}

// RandomSegment returns a random segment of a UID, with a slash before it.
func RandomSegment(r *rand.Rand) string { return fmt.Sprintf("/%016x", r.Uint64()) }

// All yields every group below the organization, parents before their children. The UIDs are random. The creation
// times increase in this order, for which an index by time helps least.
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

// KeyColumns are the columns that every table with resources has.
var KeyColumns = []string{"seg", "uid", "parent", "a1", "a2", "a3"}

// SegmentNumber returns the last segment of a UID as the number that the store saves.
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

// Identity returns the UID of the i-th identity in the organization.
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
			detail, _ := json.Marshal(match) // Marshal cannot fail for strings
			if !yield(append(Keys(t.Identity(i)), subject, "", "", "", "", int64(match.Type()),
				string(detail), "", issuer, subject, createMS, createMS, createMS)) {
				return
			}
		}
	}}
}

// BindingTable returns the bindings for n identities. Each identity has GrantsEach bindings, each on another group.
func (t Tree) BindingTable(n int) Table {
	const end = Epoch + 100*365*24*3600e3 // expiry of the timed bindings, a century after Epoch
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

// Counted returns a copy of t that counts. When a row of the copy is read, the row is added to the counters of every
// group above it.
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

// Counters are the counters that the store maintains. For each kind and group they contain the number of resources
// below the group, and the number of the group's direct children.
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
