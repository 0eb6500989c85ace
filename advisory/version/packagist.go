package version

import "strings"

// Tags of the parts of a Composer version, in their order.
const (
	packagistBranch byte = iota + 1 // any other text: a branch
	packagistDev
	packagistAlpha
	packagistBeta
	packagistRC
	packagistEnd
	packagistNumber
	packagistPatch
)

// packagistAny stands for x and * in the version of a branch, as Composer has it.
const packagistAny = "9999999"

// packagistNumbers is how many numbers Composer gives every version.
const packagistNumbers = 4

// readPackagist reads a version as Composer does: 1.0 is 1.0.0.0, and stability
// counts. Text is known by its beginning, as PHP's version_compare knows it.
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

// readPackagistNumbers reads the numbers a version starts with and adds zeros to
// them, or none if there are no numbers: then it is a branch.
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
