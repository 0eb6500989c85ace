package password

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/ccojocar/zxcvbn-go/adjacency"
	"github.com/ccojocar/zxcvbn-go/data"
	"github.com/ccojocar/zxcvbn-go/entropy"
	"github.com/ccojocar/zxcvbn-go/match"
	"github.com/ccojocar/zxcvbn-go/scoring"
)

// strength estimates how hard a password is to guess for an attacker who knows these words about the person. The result
// is 0 to 4, as in zxcvbn.
//
// This package finds the words, dates and keyboard patterns in a password itself. The package of zxcvbn for this reads
// all its word lists when a process starts, which takes 0.05 s and 18 MB even in programs that check no password.
// zxcvbn computes the entropy of each part.
func strength(password string, known []string) int {
	password = oneByteEach(password)
	ranks := map[string]int{}
	for i, word := range known {
		ranks[strings.ToLower(oneByteEach(word))] = i + 1
	}
	parts := wordsIn(password, ranks)
	for _, spelling := range spellings(password) {
		parts = append(parts, wordsIn(spelling, commonWords())...)
	}
	for _, keyboard := range []string{"qwerty", "dvorak", "keypad", "macKeypad"} {
		parts = append(parts, keysIn(password, adjacency.GraphMap[keyboard])...)
	}
	parts = append(parts, repeatsIn(password)...)
	parts = append(parts, sequencesIn(password)...)
	parts = append(parts, datesIn(password)...)
	return scoring.MinimumEntropyMatchSequence(password, parts).Score
}

// oneByteEach replaces each character that is not ASCII by a question mark, because zxcvbn counts bytes and would count
// such a character several times.
func oneByteEach(text string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, text)
}

// commonWords returns common passwords, English words and names with their best rank in a list. The first call reads
// the lists.
var commonWords = sync.OnceValue(func() map[string]int {
	ranks := map[string]int{}
	for _, name := range []string{"Passwords", "English", "MaleNames", "FemaleNames", "Surnames"} {
		var file struct{ List []string }
		if err := json.Unmarshal(data.MustAsset("data/"+name+".json"), &file); err != nil {
			panic("the list of " + name + ": " + err.Error()) // impossible, because the lists are part of the program
		}
		for i, word := range file.List {
			word = strings.ToLower(word)
			if rank, ok := ranks[word]; !ok || i+1 < rank {
				ranks[word] = i + 1
			}
		}
	}
	return ranks
})

// wordsIn returns the words in a spelling of a password. ranks contains the words with their ranks.
func wordsIn(spelling string, ranks map[string]int) (found []match.Match) {
	lower := strings.ToLower(spelling)
	for i := range len(lower) {
		for j := i + 1; j <= len(lower); j++ {
			rank, ok := ranks[lower[i:j]]
			if !ok {
				continue
			}
			m := match.Match{Pattern: "dictionary", I: i, J: j - 1, Token: spelling[i:j]}
			m.Entropy = entropy.DictionaryEntropy(m, float64(rank))
			found = append(found, m)
		}
	}
	return found
}

// spellings returns the password itself, and spellings in which signs are replaced by the letters that they resemble. A
// sign that resembles several letters is replaced by the same letter throughout one spelling.
func spellings(password string) []string {
	variants := []string{password}
	for _, sign := range []struct{ sign, letters string }{
		{"4", "a"}, {"@", "a"}, {"8", "b"}, {"(", "c"}, {"{", "c"}, {"[", "c"}, {"<", "c"}, {"3", "e"}, {"6", "g"},
		{"9", "g"}, {"!", "i"}, {"0", "o"}, {"$", "s"}, {"5", "s"}, {"+", "t"}, {"%", "x"}, {"2", "z"},
		{"1", "il"}, {"|", "il"}, {"7", "lt"},
	} {
		if !strings.Contains(password, sign.sign) {
			continue
		}
		var next []string
		for _, text := range variants[min(1, len(variants)-1):] {
			for letter := range strings.SplitSeq(sign.letters, "") {
				next = append(next, strings.ReplaceAll(text, sign.sign, letter))
			}
		}
		variants = append(variants[:1], next...)
	}
	return variants
}

// keysIn returns the sequences of three or more neighboring keys of a keyboard.
func keysIn(password string, keyboard adjacency.Graph) (found []match.Match) {
	for i := 0; i < len(password)-1; {
		j, turns, shifted, last := i+1, 0, 0, -1
		for ; j < len(password); j++ {
			direction, shift := nextKey(keyboard.Graph[password[j-1:j]], password[j:j+1])
			if direction < 0 {
				break
			}
			if shift {
				shifted++
			}
			if direction != last {
				turns, last = turns+1, direction
			}
		}
		if j-i > 2 {
			m := match.Match{Pattern: "spatial", I: i, J: j - 1, Token: password[i:j], DictionaryName: keyboard.Name}
			m.Entropy = entropy.SpatialEntropy(m, turns, shifted)
			found = append(found, m)
		}
		i = j
	}
	return found
}

// nextKey returns the index of the neighbor of a key that types char, or -1, and whether char needs shift.
func nextKey(neighbors []string, char string) (direction int, shift bool) {
	for i, key := range neighbors {
		if position := strings.Index(key, char); position >= 0 {
			return i, position == 1
		}
	}
	return -1, false
}

// repeatsIn returns the parts that repeat a character three or more times.
func repeatsIn(password string) (found []match.Match) {
	for i, j := 0, 0; i < len(password); i = j {
		for j = i + 1; j < len(password) && strings.EqualFold(password[i:i+1], password[j:j+1]); j++ {
		}
		if j-i > 2 {
			m := match.Match{Pattern: "repeat", I: i, J: j - 1, Token: password[i:j]}
			m.Entropy = entropy.RepeatEntropy(m)
			found = append(found, m)
		}
	}
	return found
}

// sequencesIn returns the parts of three or more letters or digits in ascending or descending order.
func sequencesIn(password string) (found []match.Match) {
	for _, order := range []string{"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"} {
		for _, step := range []int{1, -1} {
			for i, j := 0, 0; i < len(password); i = j {
				first := strings.IndexByte(order, password[i])
				for j = i + 1; j < len(password) && first >= 0; j++ {
					if strings.IndexByte(order, password[j]) != first+step*(j-i) {
						break
					}
				}
				if j-i > 2 {
					m := match.Match{Pattern: "sequence", I: i, J: j - 1, Token: password[i:j]}
					m.Entropy = entropy.SequenceEntropy(m, len(order), step > 0)
					found = append(found, m)
				}
			}
		}
	}
	return found
}

var (
	dayFirst  = regexp.MustCompile(`^(\d{1,2})([-/\\_. ]?)(\d{1,2})[-/\\_. ]?(\d{4}|\d{2})$`)
	yearFirst = regexp.MustCompile(`^(\d{4}|\d{2})([-/\\_. ]?)(\d{1,2})[-/\\_. ]?(\d{1,2})$`)
	onlyYear  = regexp.MustCompile(`^(19|20)\d\d$`)
)

// datesIn returns the parts that are years, or dates with or without separators.
func datesIn(password string) (found []match.Match) {
	const shortest, longest = 4, 10
	for i := range len(password) {
		for j := i + shortest; j <= min(i+longest, len(password)); j++ {
			m := match.Match{Pattern: "date", I: i, J: j - 1, Token: password[i:j]}
			date := match.DateMatch{}
			switch {
			case onlyYear.MatchString(m.Token):
				m.Entropy = math.Log2(200)
			case isDate(dayFirst.FindStringSubmatch(m.Token), 1, 4, &date),
				isDate(yearFirst.FindStringSubmatch(m.Token), 4, 1, &date):
				m.Entropy = entropy.DateEntropy(date)
			default:
				continue
			}
			found = append(found, m)
		}
	}
	return found
}

// isDate reports whether the groups of a match are a date, and writes its year and separator to date. dayAt and yearAt
// are the indexes of the groups for day and year. Day and month may be exchanged.
func isDate(groups []string, dayAt, yearAt int, date *match.DateMatch) bool {
	if groups == nil {
		return false
	}
	day, _ := strconv.Atoi(groups[dayAt]) // the groups consist of digits, so Atoi does not fail
	month, _ := strconv.Atoi(groups[3])
	year, _ := strconv.Atoi(groups[yearAt])
	date.Year, date.Separator = int64(year), groups[2]
	recent := year < 100 || year >= 1900 && year < 2100
	return recent && min(day, month) >= 1 && min(day, month) <= 12 && max(day, month) <= 31
}
