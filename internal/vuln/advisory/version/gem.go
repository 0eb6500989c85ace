package version

import "strings"

// Tags of the segments of a gem's version. RubyGems compares versions as if infinitely many zeros followed, so
// zeros sort before the end if text follows them, and after it if a number does.
const (
	gemText byte = iota + 1
	gemZerosThenText
	gemEnd
	gemZerosThenNumber
)

// readGem parses runs of digits and letters with any separators. A hyphen starts
// a pre-release, as text does.
func readGem(k key, s string) (key, error) {
	if !digit(s[0]) {
		return nil, errShape("a number first")
	}
	s = strings.ReplaceAll(s, "-", ".pre.")
	zeros, numbers := 0, true // numbers: no text yet
	for s != "" {
		var part string
		switch c := s[0]; {
		case digit(c):
			if part, s = run(s, digit); strings.Trim(part, "0") == "" {
				zeros++
				continue
			}
			k = append(k, gemZerosThenNumber, byte(255-zeros)).number(part)
			zeros = 0
		case letter(c):
			part, s = run(s, letter)
			if numbers { // zeros before the first text do not count
				zeros, numbers = 0, false
			}
			if zeros > 0 {
				k = append(k, gemZerosThenText, byte(zeros))
			}
			k = append(k, gemText).text(part)
			zeros = 0
		default:
			s = s[1:]
		}
	}
	return append(k, gemEnd), nil
}
