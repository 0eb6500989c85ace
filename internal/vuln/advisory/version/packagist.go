package version

import "strings"

// Tags of the parts of a Composer version, in sort order.
const (
	packagistBranch byte = iota + 1 // a branch: any text that is not a stability
	packagistDev
	packagistAlpha
	packagistBeta
	packagistRC
	packagistEnd
	packagistNumber
	packagistPatch
)

// packagistAny is the number that Composer uses for x and * in the version of a branch.
const packagistAny = "9999999"

// packagistNumbers is the number of numbers in a version that Composer has normalized.
const packagistNumbers = 4

// readPackagist parses a version as Composer does: 1.0 is 1.0.0.0, followed by the
// stability. A stability is recognized by its prefix, as in PHP's version_compare.
func readPackagist(k key, s string) (key, error) {
	s = strings.TrimLeft(s, "vV")
	s, _, _ = strings.Cut(s, "+")
	k, s = readPackagistNumbers(k, s)
	for s != "" {
		var part string
		switch c := s[0]; {
		case digit(c):
			part, s = run(s, digit)
			k = append(k, packagistNumber).number(part)
		case letter(c):
			part, s = run(s, letter)
			k = append(k, packagistStability(strings.ToLower(part)))
		default:
			s = s[1:]
		}
	}
	return append(k, packagistEnd), nil
}

// readPackagistNumbers parses the numbers at the start of a version and pads them with
// zeros. A version without numbers is a branch and is not padded.
func readPackagistNumbers(k key, s string) (key, string) {
	for n := 0; ; n++ {
		part, rest := run(s, digit)
		if wild := s != "" && (s[0] == '*' || lower(s[0]) == 'x'); wild && n > 0 {
			part, rest = packagistAny, s[1:]
		}
		if part == "" {
			for ; 0 < n && n < packagistNumbers; n++ {
				k = append(k, packagistNumber).number("0")
			}
			return k, s
		}
		k, s = append(k, packagistNumber).number(part), strings.TrimPrefix(rest, ".")
	}
}

func packagistStability(name string) byte {
	switch {
	case strings.HasPrefix(name, "dev"):
		return packagistDev
	case name[0] == 'a':
		return packagistAlpha
	case name[0] == 'b':
		return packagistBeta
	case strings.HasPrefix(name, "rc"), name == "c":
		return packagistRC
	case name[0] == 'p':
		return packagistPatch
	}
	return packagistBranch
}
