package findingdb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// AliasSets group advisories that share names. Only advisories of one group can share a
// set: otherwise an author in a folder could suppress events about advisories of the
// organization, by writing an advisory with all their names.
type AliasSets struct {
	setOf  map[int64]int64   // alias set of an advisory, by the advisory's key
	into   map[int64]int64   // for a merged set, the set that it is now a part of
	names  map[string]int64  // alias set of a new name, by the name's key
	text   map[string]string // text of a new name, by the name's key
	merged []int64           // sets that were merged into others
}

func newAliasSets() AliasSets {
	return AliasSets{setOf: map[int64]int64{}, into: map[int64]int64{}, names: map[string]int64{},
		text: map[string]string{}}
}

// SetOf returns the set of an advisory.
func (a AliasSets) SetOf(advisory int64) int64 { return a.find(a.setOf[advisory]) }

// Parts returns the stored sets that are now part of this set, and the set itself.
func (a AliasSets) Parts(set int64) []int64 {
	ids := []int64{set}
	for _, m := range a.merged {
		if a.find(m) == set {
			ids = append(ids, m)
		}
	}
	return ids
}

func (a AliasSets) find(set int64) int64 {
	for {
		next, ok := a.into[set]
		if !ok {
			return set
		}
		set = next
	}
}

// join merges two sets and returns the result.
func (a *AliasSets) join(x, y int64) int64 {
	x, y = a.find(x), a.find(y)
	if x == y {
		return x
	}
	x, y = min(x, y), max(x, y)
	a.into[y] = x
	a.merged = append(a.merged, y)
	return x
}

// nameKey returns the key of a name in a group. It is a digest, because names may be
// long.
func nameKey(group resource.UID, name string) string {
	sum := sha256.Sum256([]byte(string(group) + "\x00" + name))
	return base64.RawURLEncoding.EncodeToString(sum[:20])
}

// joinAliases sets c.Sets to the alias sets of the advisories in called and in the change.
func (t Tx) joinAliases(ctx context.Context, called map[int64]NamedAdvisory, c *Change) error {
	c.Sets = newAliasSets()
	c.Advisories = maps.Clone(called)
	keys := slices.Collect(maps.Keys(called))
	for _, m := range c.Closed {
		keys = append(keys, m.Advisory)
	}
	slices.Sort(keys)
	stored, err := t.named(ctx, slices.Compact(keys), c.Sets.setOf)
	if err != nil {
		return err
	}
	for key, a := range stored {
		if _, ok := called[key]; !ok {
			c.Advisories[key] = a
		}
	}
	fresh := map[int64][]string{} // keys of names that an advisory did not have before, by the advisory's key
	for key, a := range called {
		for _, name := range a.Names {
			if !slices.Contains(stored[key].Names, name) {
				id := nameKey(a.UID.Parent(), name)
				fresh[key] = append(fresh[key], id)
				c.Sets.text[id] = name
			}
		}
	}
	return t.addNames(ctx, fresh, &c.Sets)
}

// addNames adds new names to the alias sets of advisories. fresh contains the keys of the names, by the advisory's key.
func (t Tx) addNames(ctx context.Context, fresh map[int64][]string, sets *AliasSets) error {
	var ask []string
	for _, ids := range fresh {
		ask = append(ask, ids...)
	}
	if len(ask) == 0 {
		return nil
	}
	q := store.Query{Engine: t.DB.Engine}
	known, err := store.ReadMap[string, int64](ctx, t.Rows, fmt.Sprintf(`SELECT n.key, n.alias_set FROM %s AS s
		CROSS JOIN alias_names AS n WHERE n.key = s.v`, t.DB.Engine.Unnest(&q, ask)), q.Args...)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(fresh)) {
		sets.add(key, fresh[key], known)
	}
	return nil
}

// add adds new names to the alias set of an advisory. known contains the alias sets of the names that are already
// stored.
func (a *AliasSets) add(advisory int64, names []string, known map[string]int64) {
	set, ok := a.setOf[advisory]
	for _, id := range names {
		existing, has := known[id]
		if !has {
			existing, has = a.names[id]
		}
		switch {
		case has && ok:
			set = a.join(set, existing)
		case has:
			set, ok = existing, true
		}
	}
	if !ok {
		set = advisory
	}
	a.setOf[advisory] = set
	for _, id := range names {
		if _, has := known[id]; !has {
			a.names[id] = set
		}
	}
}

// named returns the stored names of advisories, and adds the alias sets of these advisories to setOf.
func (t Tx) named(ctx context.Context, keys []int64, setOf map[int64]int64) (map[int64]NamedAdvisory, error) {
	q := store.Query{Engine: t.DB.Engine}
	byKey := map[int64]NamedAdvisory{}
	return byKey, t.Rows(ctx, fmt.Sprintf(`SELECT a.advisory, a.uid, a.names, a.alias_set FROM %s AS s
		CROSS JOIN matched_advisories AS a WHERE a.advisory = s.v`, t.DB.Engine.Unnest(&q, keys)), q.Args,
		func(row store.Scanner) (bool, error) {
			var key, set int64
			var a NamedAdvisory
			var names []byte
			if err := row.Scan(&key, &a.UID, &names, &set); err != nil {
				return false, err
			}
			err := json.Unmarshal(names, &a.Names)
			byKey[key], setOf[key] = a, set
			return false, err
		})
}

// saveAliases stores the names of advisories and their sets.
func (t Tx) saveAliases(ctx context.Context, called map[int64]NamedAdvisory, a AliasSets) error {
	var rows, names [][]any
	for _, key := range slices.Sorted(maps.Keys(called)) {
		text, err := json.Marshal(called[key].Names)
		if err != nil {
			return err
		}
		rows = append(rows, []any{key, string(called[key].UID), string(text), a.SetOf(key)})
	}
	if err := t.InsertRows(ctx, `INSERT INTO matched_advisories (advisory, uid, names, alias_set)`, rows,
		` ON CONFLICT (advisory) DO UPDATE SET uid = excluded.uid, names = excluded.names`); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(a.names)) {
		names = append(names, []any{id, a.text[id], a.find(a.names[id])})
	}
	if err := t.InsertRows(ctx, `INSERT INTO alias_names (key, name, alias_set)`, names, ``); err != nil {
		return err
	}
	for _, old := range a.merged {
		for _, table := range []string{"matched_advisories", "alias_names"} {
			if err := t.Later(ctx, `UPDATE `+table+` SET alias_set = $2 WHERE alias_set = $1`, old, a.find(old)); err != nil {
				return err
			}
		}
	}
	return nil
}
