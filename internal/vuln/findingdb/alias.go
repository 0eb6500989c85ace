package findingdb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// AliasSets are the vulnerabilities that advisories describe. A vulnerability is a set of names, with a number. Two
// names belong to one vulnerability if an advisory uses both for the same vulnerability. Only advisories of one group
// can share a vulnerability: otherwise an author in a folder could suppress events about advisories of the
// organization, by writing an advisory with all their names.
type AliasSets struct {
	before, after map[int64][]int64 // vulnerabilities of an advisory before and after a change, by the advisory's key
	into          map[int64]int64   // for a merged vulnerability, the one that it is now a part of
	names         map[string]int64  // vulnerability of a new name, by the name's key
	text          map[string]string // text of a new name, by the name's key
	merged        []int64           // vulnerabilities that were merged into others
	unchanged     map[int64]bool    // stored advisories whose names and fixes stay the same, by the advisory's key
}

func newAliasSets() AliasSets {
	return AliasSets{before: map[int64][]int64{}, after: map[int64][]int64{}, into: map[int64]int64{},
		names: map[string]int64{}, text: map[string]string{}, unchanged: map[int64]bool{}}
}

// SetsOf returns the vulnerabilities that an advisory describes after the change, in order.
func (a AliasSets) SetsOf(advisory int64) []int64 { return a.current(a.after[advisory]) }

// SetsBefore returns the vulnerabilities that an advisory described before the change, in order. A vulnerability that
// was merged is returned as the one that it is now a part of.
func (a AliasSets) SetsBefore(advisory int64) []int64 { return a.current(a.before[advisory]) }

// Has reports whether an advisory of the change describes a vulnerability after the change. For other advisories it
// reports true.
func (a AliasSets) Has(advisory, set int64) bool {
	sets, ok := a.after[advisory]
	return !ok || slices.Contains(a.current(sets), set)
}

// current returns the current numbers of vulnerabilities, each once and in order.
func (a AliasSets) current(sets []int64) (numbers []int64) {
	for _, set := range sets {
		numbers = append(numbers, a.find(set))
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// moved returns the advisories that describe other vulnerabilities after the change than before, in order.
func (a AliasSets) moved() (advisories []int64) {
	for key := range a.after {
		if !slices.Equal(a.SetsBefore(key), a.SetsOf(key)) {
			advisories = append(advisories, key)
		}
	}
	slices.Sort(advisories)
	return advisories
}

// NewNames returns the names that the change adds to a vulnerability, in order.
func (a AliasSets) NewNames(set int64) (names []string) {
	for id, into := range a.names {
		if a.find(into) == set {
			names = append(names, a.text[id])
		}
	}
	slices.Sort(names)
	return names
}

// Parts returns the stored vulnerabilities that are now part of this one, and the vulnerability itself.
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

// join merges two vulnerabilities and returns the result.
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

// numberOf returns the number of a new vulnerability. It depends on the vulnerability's first name, by the name's key.
func numberOf(id string) int64 {
	sum := sha256.Sum256([]byte(id))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1)
}

// joinAliases sets c.Sets to the vulnerabilities that advisories describe before and after the change: the advisories
// in called, and those with closed matches. It also sets c.Moved.
func (t Tx) joinAliases(ctx context.Context, called map[int64]NamedAdvisory, c *Change) error {
	c.Sets = newAliasSets()
	c.Advisories = maps.Clone(called)
	keys := slices.Collect(maps.Keys(called))
	for _, m := range c.Closed {
		keys = append(keys, m.Advisory)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	stored, err := t.named(ctx, keys)
	if err != nil {
		return err
	}
	if c.Sets.before, err = t.vulnerabilitiesOf(ctx, keys); err != nil {
		return err
	}
	for key, a := range stored {
		if v, ok := called[key]; ok {
			if sets := c.Sets.before[key]; len(sets) > 0 && a.equal(v) {
				c.Sets.after[key], c.Sets.unchanged[key] = sets, true
			}
			continue
		}
		c.Advisories[key] = a
		if sets, ok := c.Sets.before[key]; ok {
			c.Sets.after[key] = sets
		}
	}
	if err := t.addNames(ctx, c.Advisories, &c.Sets); err != nil {
		return err
	}
	for key := range stored { // the previous version stored the advisory, but not its vulnerabilities
		if len(c.Sets.before[key]) == 0 {
			c.Sets.before[key] = c.Sets.after[key]
		}
	}
	for key := range called { // a new advisory has no matches that could move
		if _, ok := stored[key]; !ok {
			c.Sets.before[key] = c.Sets.after[key]
		}
	}
	c.Moved, err = t.hitsBy(ctx, c.Sets.moved())
	if c.Incomplete = len(c.Moved) > maxMoved; c.Incomplete {
		c.Moved = c.Moved[:maxMoved]
	}
	return err
}

// maxMoved is the maximum number of matches that are read of advisories that describe other vulnerabilities than
// before. There are no events about further matches.
const maxMoved = 100_000

func (t Tx) hitsBy(ctx context.Context, advisories []int64) ([]Hit, error) {
	if len(advisories) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: t.DB.Engine}
	text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN matches AS m WHERE m.advisory = s.v LIMIT %s`, hitColumns,
		t.DB.Engine.Unnest(&q, advisories), q.Arg(maxMoved+1))
	return store.ReadAll(ctx, t.Rows, scanHit, text, q.Args...)
}

// vulnerabilitiesOf returns the stored vulnerabilities of advisories, by the advisory's key.
func (t Tx) vulnerabilitiesOf(ctx context.Context, keys []int64) (map[int64][]int64, error) {
	q := store.Query{Engine: t.DB.Engine}
	sets := map[int64][]int64{}
	return sets, t.Rows(ctx, fmt.Sprintf(`SELECT a.advisory, a.vulnerability FROM %s AS s
		CROSS JOIN advisory_vulnerabilities AS a WHERE a.advisory = s.v`, t.DB.Engine.Unnest(&q, keys)), q.Args,
		func(row store.Scanner) (bool, error) {
			var key, set int64
			err := row.Scan(&key, &set)
			sets[key] = append(sets[key], set)
			return false, err
		})
}

// addNames computes the vulnerabilities of those advisories whose vulnerabilities after the change are not known yet.
func (t Tx) addNames(ctx context.Context, advisories map[int64]NamedAdvisory, sets *AliasSets) error {
	fresh := map[int64][][]string{} // keys of the names of each vulnerability, by the advisory's key
	var ask []string
	for key, a := range advisories {
		if _, ok := sets.after[key]; ok {
			continue
		}
		fresh[key] = nil
		for _, names := range a.Vulnerabilities() {
			var ids []string
			for _, name := range names {
				id := nameKey(a.UID.Parent(), name)
				ids = append(ids, id)
				sets.text[id] = name
			}
			fresh[key], ask = append(fresh[key], ids), append(ask, ids...)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	slices.Sort(ask)
	q := store.Query{Engine: t.DB.Engine}
	known, err := store.ReadMap[string, int64](ctx, t.Rows, fmt.Sprintf(`SELECT n.key, n.vulnerability FROM %s AS s
		CROSS JOIN vulnerability_names AS n WHERE n.key = s.v`, t.DB.Engine.Unnest(&q, slices.Compact(ask))), q.Args...)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(fresh)) {
		sets.after[key] = []int64{}
		for _, ids := range fresh[key] {
			sets.after[key] = append(sets.after[key], sets.add(ids, known))
		}
	}
	return nil
}

// add returns the vulnerability that has all of these names, by the names' keys. known contains the vulnerabilities of
// the names that are already stored.
func (a *AliasSets) add(names []string, known map[string]int64) (set int64) {
	ok := false
	for _, id := range names {
		existing, has := known[id]
		if !has {
			existing, has = a.names[id]
		}
		switch {
		case has && ok:
			set = a.join(set, existing)
		case has:
			set, ok = a.find(existing), true
		}
	}
	if !ok {
		set = numberOf(names[0])
	}
	for _, id := range names {
		if _, has := known[id]; !has {
			a.names[id] = set
		}
	}
	return set
}

// named returns the stored names of advisories.
func (t Tx) named(ctx context.Context, keys []int64) (map[int64]NamedAdvisory, error) {
	q := store.Query{Engine: t.DB.Engine}
	return readNamed(ctx, t.Rows, fmt.Sprintf(`SELECT a.advisory, a.uid, a.names, a.fixes FROM %s AS s
		CROSS JOIN matched_advisories AS a WHERE a.advisory = s.v`, t.DB.Engine.Unnest(&q, keys)), q.Args...)
}

// equal reports whether two advisories have the same UID, ID, other names and fixes, in any order.
func (a NamedAdvisory) equal(b NamedAdvisory) bool {
	matches := func(x, y []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
	}
	return a.UID == b.UID && a.Names[0] == b.Names[0] && matches(a.Names, b.Names) && matches(a.Fixes, b.Fixes)
}

// readNamed reads advisories with the columns advisory, uid, names and fixes, by key.
func readNamed(ctx context.Context, rows store.Reader, text string, args ...any) (map[int64]NamedAdvisory, error) {
	byKey := map[int64]NamedAdvisory{}
	return byKey, rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		var key int64
		var uid resource.UID
		var names, fixes []byte
		if err := row.Scan(&key, &uid, &names, &fixes); err != nil {
			return false, err
		}
		a, err := decodeNamed(uid, names, fixes)
		byKey[key] = a
		return false, err
	})
}

// decodeNamed decodes the columns names and fixes of an advisory.
func decodeNamed(uid resource.UID, names, fixes []byte) (a NamedAdvisory, err error) {
	a.UID = uid
	if err := json.Unmarshal(names, &a.Names); err != nil {
		return a, err
	}
	var fixed []string
	if len(fixes) > 0 {
		if err := json.Unmarshal(fixes, &fixed); err != nil {
			return a, err
		}
	}
	id := a.Names[0]
	aliases, fixed := vuln.SplitRelations(id, a.Names[1:], fixed)
	a.Names, a.Fixes = append([]string{id}, aliases...), fixed
	return a, nil
}

// saveAliases stores the names of advisories and their vulnerabilities. It writes nothing about an unchanged advisory:
// mergeSets replaces the numbers of merged vulnerabilities.
func (t Tx) saveAliases(ctx context.Context, called map[int64]NamedAdvisory, a AliasSets) error {
	var rows, names, described [][]any
	for _, key := range slices.Sorted(maps.Keys(called)) {
		v := called[key]
		if a.unchanged[key] {
			continue
		}
		text, err := json.Marshal(vuln.JoinRelations(v.Names, v.Fixes))
		if err != nil {
			return err
		}
		fixes, err := json.Marshal(append([]string{}, v.Fixes...))
		if err != nil {
			return err
		}
		rows = append(rows, []any{key, string(v.UID), string(text), string(fixes), key})
	}
	if err := t.InsertRows(ctx, `INSERT INTO matched_advisories (advisory, uid, names, fixes, alias_set)`, rows,
		` ON CONFLICT (advisory) DO UPDATE SET uid = excluded.uid, names = excluded.names, fixes = excluded.fixes`,
	); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(a.after)) {
		if a.unchanged[key] {
			continue
		}
		for _, set := range a.SetsOf(key) {
			described = append(described, []any{set, key})
		}
		for _, set := range a.before[key] {
			if slices.Contains(a.SetsOf(key), a.find(set)) {
				continue
			}
			if err := t.Later(ctx, `DELETE FROM advisory_vulnerabilities WHERE vulnerability = $1 AND advisory = $2`,
				set, key); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.names)) {
		names = append(names, []any{id, a.text[id], a.find(a.names[id])})
	}
	if err := t.InsertRows(ctx, `INSERT INTO vulnerability_names (key, name, vulnerability)`, names, ``); err != nil {
		return err
	}
	if err := t.InsertRows(ctx, `INSERT INTO advisory_vulnerabilities (vulnerability, advisory)`, described,
		` ON CONFLICT (vulnerability, advisory) DO NOTHING`); err != nil {
		return err
	}
	return t.mergeSets(ctx, a)
}

// mergeSets changes the stored numbers of vulnerabilities that were merged into others.
func (t Tx) mergeSets(ctx context.Context, a AliasSets) error {
	for _, old := range a.merged {
		if err := t.Later(ctx, `UPDATE vulnerability_names SET vulnerability = $2 WHERE vulnerability = $1`, old,
			a.find(old)); err != nil {
			return err
		}
		if err := t.Later(ctx, `INSERT INTO advisory_vulnerabilities (vulnerability, advisory)
			SELECT CAST($2 AS BIGINT), advisory FROM advisory_vulnerabilities WHERE vulnerability = $1
			ON CONFLICT (vulnerability, advisory) DO NOTHING`, old, a.find(old)); err != nil {
			return err
		}
		if err := t.Later(ctx, `DELETE FROM advisory_vulnerabilities WHERE vulnerability = $1`, old); err != nil {
			return err
		}
	}
	return nil
}

// ConvertAdvisories computes the vulnerabilities of at most n advisories that were stored before vulnerabilities were
// separate from advisories. It returns these advisories, or none if all are converted.
func (t Tx) ConvertAdvisories(ctx context.Context, n int) (map[int64]NamedAdvisory, error) {
	stored, err := readNamed(ctx, t.Rows,
		`SELECT advisory, uid, names, fixes FROM matched_advisories WHERE fixes = '' ORDER BY advisory LIMIT $1`, n)
	if err != nil || len(stored) == 0 {
		return nil, err
	}
	var c Change
	if err := t.joinAliases(ctx, stored, &c); err != nil {
		return nil, err
	}
	clear(c.Sets.unchanged) // because the column fixes must be written
	return stored, t.saveAliases(ctx, stored, c.Sets)
}
