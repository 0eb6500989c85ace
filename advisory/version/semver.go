package version

import "strings"

// Tags of the parts of a semantic version, in their order.
const (
	semverEnd byte = iota // of the numbers, or of the pre-release
	semverNumber
	semverText
	semverRelease // no pre-release: newer than all of them
)

// readSemver reads a semantic version as people write them: a leading v, fewer
// or more than three numbers and a pre-release without its hyphen are taken;
// missing numbers are 0. Build metadata does not count.
func readSemver(k key, s string) (key, error) {
	k, rest, err := readNumbers(k, strings.TrimLeft(s, "vV="))
	if err != nil {
		return nil, err
	}
	rest, _, _ = strings.Cut(rest, "+")
	return readPrerelease(k, rest, false), nil
}

// readPub reads a version of a Dart package: semantic, but build metadata
// counts, and having some is newer than having none.
func readPub(k key, s string) (key, error) {
	s, build, _ := strings.Cut(s, "+")
	k, err := readSemver(k, s)
	if err != nil || build == "" {
		return append(k, semverEnd), err
	}
	return readIdentifiers(k, build, false), nil
}

// readNumbers reads numbers with dots between, and returns what follows them.
// Trailing zeros do not count.
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

// readPrerelease reads what follows the numbers. Nothing sorts last.
func readPrerelease(k key, s string, fold bool) key {
	if s == "" {
		return append(k, semverRelease)
	}
	if s[0] == '-' || s[0] == '.' {
		s = s[1:]
	}
	return readIdentifiers(k, s, fold)
}

// readIdentifiers reads identifiers with dots between: numbers sort before text,
// and fewer before more.
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

// readNuGet reads a NuGet version: semantic, with up to four numbers, and
// without regard to case.
func readNuGet(k key, s string) (key, error) {
	k, rest, err := readNumbers(k, strings.TrimLeft(s, "vV="))
	if err != nil {
		return nil, err
	}
	rest, _, _ = strings.Cut(rest, "+")
	return readPrerelease(k, rest, true), nil
}

// readDotted reads numbers with dots or hyphens between, as R and Haskell
// packages have them: 1.0 is older than 1.0.0. Text after them, as a few
// packages have it, counts as older than none.
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
