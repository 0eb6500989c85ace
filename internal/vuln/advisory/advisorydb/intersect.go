package advisorydb

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// maxLookedUp is the maximum number of matches that are looked up and sorted by update time. For more matches it is
// cheaper to walk the group in the order of updates, because many of its advisories match.
const maxLookedUp = 4096

// intersect reads a page of advisories for filters without an index range. It reads the segments that match each
// filter, and intersects these sets.
func (l *advisoryList) intersect(ctx context.Context, sc store.Scope) (entries []entry, total int64, _ error) {
	segs, err := l.matches(ctx, sc)
	if err != nil {
		return nil, 0, err
	}
	if !filtersPartitions(l.f) && len(l.groups) == 1 && len(sc.Rows) == 0 {
		if l.by == byUpdate && len(segs) > maxLookedUp {
			entries, err = l.walkUpdates(ctx, segs)
			return entries, int64(len(segs)), err
		}
		if l.by != byUpdate {
			return l.pageOfGroup(segs), int64(len(segs)), nil
		}
	}
	if entries, err = l.lookUp(ctx, segs); err != nil {
		return nil, 0, err
	}
	total = int64(len(entries))
	return l.pageOf(entries), total, nil
}

// pageOfGroup returns the entries of the page, and the first entry after the page, from the sorted segments of one
// group.
func (l *advisoryList) pageOfGroup(segs []int64) (entries []entry) {
	from, to := 0, len(segs)
	if c := l.p.After; c != nil {
		i, found := slices.BinarySearch(segs, store.Segment(resource.UID(c.UID)))
		if l.p.Order.Desc {
			to = i
		} else if from = i; found {
			from++
		}
	}
	n := min(l.p.Size+1, to-from-l.p.Skip)
	for i := range max(n, 0) {
		index := from + l.p.Skip + i
		if l.p.Order.Desc {
			index = to - 1 - l.p.Skip - i
		}
		entries = append(entries, entry{seg: segs[index], group: l.groups[0]})
	}
	return entries
}

// pageOf sorts entries, and returns the entries of the page and the first entry after the page.
func (l *advisoryList) pageOf(entries []entry) []entry {
	slices.SortFunc(entries, l.compare)
	if c := l.p.After; c != nil {
		last := entry{seg: store.Segment(resource.UID(c.UID)), updated: c.Number, group: resource.UID(c.UID).Parent()}
		i, found := slices.BinarySearchFunc(entries, last, l.compare)
		if found {
			i++
		}
		entries = entries[i:]
	}
	entries = entries[min(l.p.Skip, len(entries)):]
	return entries[:min(l.p.Size+1, len(entries))]
}

// matches returns the sorted segments of the advisories that pass all filters except the filters on partitions, which
// lookUp applies.
func (l *advisoryList) matches(ctx context.Context, sc store.Scope) ([]int64, error) {
	var sets [][]int64
	if len(sc.Rows) > 0 {
		var segs []int64
		for _, uid := range sc.Rows {
			segs = append(segs, store.Segment(uid))
		}
		sets = append(sets, segs)
	}
	if len(l.f.IDs) > 0 {
		segs, err := l.withIDs(ctx)
		if err != nil {
			return nil, err
		}
		sets = append(sets, segs)
	}
	for _, v := range l.keyedFilters() {
		segs, err := l.withValue(ctx, v)
		if err != nil {
			return nil, err
		}
		sets = append(sets, segs)
	}
	if l.f.Query != "" {
		segs, err := l.s.search(ctx, l.groups, l.f.Query)
		if err != nil {
			return nil, err
		}
		sets = append(sets, segs)
	}
	return intersection(sets), nil
}

// intersection returns the sorted elements that all sets contain. It sorts and overwrites the sets.
func intersection(sets [][]int64) []int64 {
	slices.SortFunc(sets, func(a, b []int64) int { return len(a) - len(b) })
	for _, s := range sets {
		slices.Sort(s)
	}
	out := slices.Compact(sets[0])
	for _, s := range sets[1:] {
		out = slices.DeleteFunc(out, func(seg int64) bool { _, in := slices.BinarySearch(s, seg); return !in })
	}
	return out
}

// withIDs returns the segments of the advisories whose ID is one of the filter's IDs.
func (l *advisoryList) withIDs(ctx context.Context) (found []int64, _ error) {
	for _, g := range l.groups {
		text, args := withIDs(l.s.Engine, `t.seg`, g, l.f.IDs)
		segs, err := store.ReadColumn[int64](ctx, l.s.Rows, text, args...)
		if err != nil {
			return nil, err
		}
		found = append(found, segs...)
	}
	return found, nil
}

// withValue returns the segments of the advisories that have one of the values of the keyed filter v.
func (l *advisoryList) withValue(ctx context.Context, v keyedFilter) ([]int64, error) {
	var keys []int64
	for _, g := range l.generations {
		for _, s := range v.values {
			keys = append(keys, g.keys(v.field, s)...)
		}
	}
	table := "advisory_names"
	if v.field >= alias {
		table = "advisory_aliases"
	}
	q := store.Query{Engine: l.s.Engine}
	text := fmt.Sprintf(`SELECT t.seg FROM %s AS s CROSS JOIN %s AS t WHERE t.key = s.v`,
		l.s.Engine.Unnest(&q, keys), table)
	return store.ReadColumn[int64](ctx, l.s.Rows, text, q.Args...)
}

// lookUp returns the entries for the segments of advisories whose partition passes the filter.
func (l *advisoryList) lookUp(ctx context.Context, segs []int64) (entries []entry, _ error) {
	groups := map[int64]resource.UID{} // groups of the partitions that pass the filter, by the partition's id
	for _, part := range l.partitions {
		if part.matches(l.f) {
			groups[part.id] = part.group
		}
	}
	for chunk := range slices.Chunk(segs, 4096) {
		q := store.Query{Engine: l.s.Engine}
		text := fmt.Sprintf(`SELECT t.seg, t.update_ms, t.partition_id
			FROM %s AS s CROSS JOIN advisories AS t WHERE t.seg = s.v`, l.s.Engine.Unnest(&q, chunk))
		err := l.s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var e entry
			var id int64
			err := row.Scan(&e.seg, &e.updated, &id)
			if g, ok := groups[id]; ok {
				e.group = g
				entries = append(entries, e)
			}
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// walkUpdates reads the advisories of a group in the order of their updates, until it has found enough advisories whose
// segments are in segs to fill a page.
func (l *advisoryList) walkUpdates(ctx context.Context, segs []int64) (entries []entry, _ error) {
	walk := *l
	in := indexRanges{table: "advisories", column: "parent",
		ranges: []indexRange{{key: store.Segment(l.groups[0]), group: l.groups[0]}}}
	for len(entries) < l.wanted() {
		part, err := walk.merge(ctx, in, 2048)
		if err != nil {
			return nil, err
		}
		for _, e := range part {
			if _, in := slices.BinarySearch(segs, e.seg); in {
				entries = append(entries, e)
			}
		}
		if len(part) < 2048 {
			break
		}
		last := part[len(part)-1]
		walk.p.After = &page.Cursor{UID: last.uid(), Number: last.updated}
	}
	entries = entries[min(l.p.Skip, len(entries)):]
	return entries[:min(l.p.Size+1, len(entries))], nil
}
