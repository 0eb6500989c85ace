package finding

import (
	"cmp"
	"slices"
)

// Fold merges findings that are in any version of the same package and share a name. It keeps the finding that ended
// last. It leaves out findings that are open.
func Fold(ended, open []Finding) (kept []Finding) {
	type name struct{ ecosystem, pkg, id string }
	const isOpen = -1
	seen := map[name]int{} // index in kept, or isOpen
	keys := func(v Finding) (keys []name) {
		for _, id := range append([]string{v.ID}, v.Aliases...) {
			keys = append(keys, name{v.Package.Ecosystem, v.Package.Name, id})
		}
		return keys
	}
	for _, v := range open {
		for _, key := range keys(v) {
			seen[key] = isOpen
		}
	}
	slices.SortStableFunc(ended, func(a, b Finding) int {
		return cmp.Or(b.CloseTime.Compare(a.CloseTime), cmp.Compare(a.Key(), b.Key()))
	})
	for _, v := range ended {
		into := len(kept)
		for _, key := range keys(v) {
			if pos, ok := seen[key]; ok {
				into = min(into, pos)
			}
		}
		for _, key := range keys(v) {
			seen[key] = into
		}
		switch {
		case into == isOpen:
		case into == len(kept):
			kept = append(kept, v)
		case v.FirstSeen.Before(kept[into].FirstSeen):
			kept[into].FirstSeen, kept[into].OpenedBy = v.FirstSeen, v.OpenedBy
		}
	}
	return kept
}
