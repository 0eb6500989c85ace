package version

import "strings"

// Tags of the segments of an RPM version, in their order.
const (
	rpmTilde byte = iota + 1
	rpmEnd
	rpmCaret
	rpmLetters
	rpmDigits
)

// readRPM reads [epoch:]version[-release]. A version without a release sorts
// before the same with one.
func readRPM(k key, s string) (key, error) {
	epoch, rest, ok := strings.Cut(s, ":")
	if !ok {
		epoch, rest = "0", s
	}
	version, release := rest, ""
	if i := strings.LastIndexByte(rest, '-'); i >= 0 {
		version, release = rest[:i], rest[i+1:]
	}
	return readRPMPart(readRPMPart(readRPMPart(k, epoch), version), release), nil
}

// readRPMPart reads a version or a release as rpmvercmp does: runs of digits
// and of letters count, tildes and carets do, and the rest only separates.
func readRPMPart(k key, s string) key {
	for s != "" {
		var part string
		switch c := s[0]; {
		case c == '~':
			k, s = append(k, rpmTilde), s[1:]
		case c == '^':
			k, s = append(k, rpmCaret), s[1:]
		case digit(c):
			part, s = run(s, digit)
			k = append(k, rpmDigits).number(part)
		case letter(c):
			part, s = run(s, letter)
			k = append(k, rpmLetters).text(part)
		default:
			s = s[1:]
		}
	}
	return append(k, rpmEnd)
}
