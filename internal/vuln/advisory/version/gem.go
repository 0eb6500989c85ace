package version

import "strings"

// Tags of the segments of a gem's version. RubyGems compares versions as if infinitely many zeros followed. So zeros
// sort before the end of a version if text follows the zeros, and after the end if a number follows.
const (
	gemText byte = iota + 1
	gemZerosThenText
	gemEnd
	gemZerosThenNumber
)

// readGem parses runs of digits and letters with any separators. Text starts a pre-release, and so does a hyphen.
func readGem(k key, s string) (key, error) {
	if !digit(s[0]) {
		return nil, errShape("a number first")
	}
	s = strings.ReplaceAll(s, "-", ".pre.")
	zeros, numbers := 0, true // numbers is true until the first text
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
			if numbers { // zeros before the first text are ignored
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
