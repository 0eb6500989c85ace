package version

import "strings"

// Tags of the parts of a semantic version, in sort order.
const (
	semverEnd byte = iota // end of the numbers or of the pre-release
	semverNumber
	semverText
	semverRelease // the version has no pre-release, so it is newer than all its pre-releases
)

// readSemver parses a semantic version, and accepts a leading v, fewer or more than three numbers, and a
// pre-release without a hyphen. Missing numbers are 0, and build metadata is ignored.
func readSemver(k key, s string) (key, error) { return readSemantic(k, s, false) }

// readSemantic parses a version like readSemver. If fold is true, the case of a pre-release does not matter.
func readSemantic(k key, s string, fold bool) (key, error) {
	k, rest, err := readNumbers(k, strings.TrimLeft(s, "vV="))
	if err != nil {
		return nil, err
	}
	rest, _, _ = strings.Cut(rest, "+")
	if rest == "" {
		return append(k, semverRelease), nil
	}
	if rest[0] == '-' || rest[0] == '.' {
		rest = rest[1:]
	}
	return readIdentifiers(k, rest, fold), nil
}

// readPub parses a version of a Dart package: a semantic version in which build metadata is compared. A version with
// build metadata is newer than the same version without build metadata.
func readPub(k key, s string) (key, error) {
	s, build, _ := strings.Cut(s, "+")
	k, err := readSemver(k, s)
	if err != nil || build == "" {
		return append(k, semverEnd), err
	}
	return readIdentifiers(k, build, false), nil
}

// readNumbers parses numbers separated by dots, and returns the rest of the version. Trailing zeros do not count.
func readNumbers(k key, s string) (key, string, error) {
	n, rest := run(s, digit)
	if n == "" {
		return nil, "", errShape("a number first")
	}
	zeros := 0
	for {
		if strings.Trim(n, "0") == "" {
			zeros++
		} else {
			for ; zeros > 0; zeros-- {
				k = append(k, semverNumber).number("0")
			}
			k = append(k, semverNumber).number(n)
		}
		if len(rest) < 2 || rest[0] != '.' || !digit(rest[1]) {
			return append(k, semverEnd), rest, nil
		}
		n, rest = run(rest[1:], digit)
	}
}

// readIdentifiers parses identifiers separated by dots. Numbers sort before text. If one list is the beginning of
// another, the shorter list sorts first.
func readIdentifiers(k key, s string, fold bool) key {
	for id := range strings.SplitSeq(s, ".") {
		switch {
		case numeric(id):
			k = append(k, semverNumber).number(id)
		case fold:
			k = append(k, semverText).lower(id)
		default:
			k = append(k, semverText).text(id)
		}
	}
	return append(k, semverEnd)
}

// readNuGet parses a NuGet version: a semantic version with up to four numbers, which ignores case.
func readNuGet(k key, s string) (key, error) { return readSemantic(k, s, true) }

// readDotted parses numbers separated by dots or hyphens, as in versions of R and Haskell packages. 1.0 is older than
// 1.0.0. A version with text after the numbers is older than the same version without the text.
func readDotted(k key, s string) (key, error) {
	if !digit(s[0]) {
		return nil, errShape("a number first")
	}
	for s != "" {
		var n string
		if n, s = run(s, digit); n == "" {
			return append(k, semverEnd).text(s), nil
		}
		k = append(k, semverText).number(n)
		if len(s) > 1 && (s[0] == '.' || s[0] == '-') {
			s = s[1:]
		}
	}
	return append(k, semverNumber), nil
}
