package advisorydb

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// Limits of the search for similar names.
const (
	maxVariants    = 1500   // maximum number of misspellings of one name
	maxSimilarKeys = 10_000 // maximum number of keys that are looked up
	maxSimilarRead = 50     // maximum number of advisories that are read
	maxMisspelled  = 40     // maximum length of a name that can be misspelled, in bytes
)

// SimilarNames returns up to n names of advisories in reach, and of vulnerabilities that they fix. They differ from
// name in one character, in two swapped characters, in upper and lower case, or in their separators. The closest come
// first. If reach contains many advisories, it tries only the most likely misspellings.
func (s *Store) SimilarNames(ctx context.Context, r store.Reach, name string, n int) (similar []string, _ error) {
	sc := store.Visible(false, r, resource.UIDFilter{})
	variants := misspellings(name)
	if sc.Empty() || len(variants) == 0 {
		return nil, nil
	}
	parts, err := s.partitions(ctx, sc)
	if err != nil {
		return nil, err
	}
	generations, err := s.generations(ctx, sc)
	if err != nil {
		return nil, err
	}
	perName := 1
	for _, g := range generations {
		perName += len(g.keys(alias, name))
	}
	variants = variants[:min(len(variants), max(1, maxSimilarKeys/perName))]
	keys, err := s.keysWithNames(ctx, groupsOf(parts), generations, variants)
	if err != nil {
		return nil, err
	}
	found, err := s.AdvisoriesByKey(ctx, keys[:min(len(keys), maxSimilarRead)])
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, a := range found {
		for _, name := range vuln.JoinRelations(a.OwnNames(), a.Fixes) {
			names[name] = true
		}
	}
	for _, v := range variants {
		if names[v] && len(similar) < n {
			similar = append(similar, v)
		}
	}
	return similar, nil
}

// misspellings returns the names for which a person may have typed name, the most likely first and name excluded.
func misspellings(name string) (variants []string) {
	if name == "" || len(name) > maxMisspelled || strings.ContainsFunc(name, func(r rune) bool { return r > '~' }) {
		return nil
	}
	seen := map[string]bool{name: true}
	add := func(v string) {
		if v != "" && !seen[v] && len(variants) < maxVariants {
			seen[v] = true
			variants = append(variants, v)
		}
	}
	upper := strings.ToUpper(name)
	add(upper)
	if prefix, rest, ok := strings.Cut(name, "-"); ok { // GHSA-xxxx has a prefix in upper case, and a rest in lower case
		add(strings.ToUpper(prefix) + "-" + strings.ToLower(rest))
	}
	words := strings.FieldsFunc(upper, func(r rune) bool { return strings.ContainsRune(" -_:./", r) })
	add(strings.Join(words, "-"))
	if len(words) > 0 && strings.HasPrefix(words[0], "CVE") && words[0] != "CVE" { // CVE2026-1000
		add(strings.Join(append([]string{"CVE", words[0][3:]}, words[1:]...), "-"))
	}
	if len(words) > 1 && len(words[0]) == 4 && strings.Trim(words[0], "0123456789") == "" { // 2026-1000
		add("CVE-" + strings.Join(words, "-"))
	}
	for i := range len(name) - 1 {
		add(name[:i] + name[i+1:i+2] + name[i:i+1] + name[i+2:])
	}
	for i := range len(name) {
		add(name[:i] + name[i+1:])
	}
	for _, insert := range []int{0, 1} { // first other characters, then additional ones
		for i := range len(name) + insert {
			for _, c := range charactersLike(name, min(i, len(name)-1)) {
				add(name[:i] + string(c) + name[i+1-insert:])
			}
		}
	}
	return slices.Clip(variants)
}

// charactersLike returns the characters that may be at a position instead of the character of name: the digits for a
// digit, and for a letter or a separator nothing, unless the name mixes letters and digits as GHSA IDs do.
func charactersLike(name string, i int) string {
	const digits, letters = "0123456789", "23456789cfghjmpqrvwx"
	switch c := name[i]; {
	case strings.HasPrefix(name, "GHSA-") && i >= len("GHSA-") && c != '-':
		return letters
	case c >= '0' && c <= '9':
		return digits
	}
	return ""
}
