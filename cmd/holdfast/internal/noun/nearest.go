package noun

import "strings"

// Nearest returns the word that typed was probably meant to be: a word that starts with
// typed, or else the word that needs the fewest changes, if they are few. It returns ""
// if no word is similar.
func Nearest(typed string, words []string) string {
	best, least := "", 1+max(1, len(typed)/3)
	for _, w := range words {
		d := changes(strings.ToLower(typed), w)
		if strings.HasPrefix(w, typed) && len(typed) > 2 {
			d = 1
		}
		if d < least || d == least && best != "" && len(w) < len(best) {
			best, least = w, d
		}
	}
	return best
}

// changes returns the number of letters to add, remove, replace or swap to get from a to
// b.
func changes(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
