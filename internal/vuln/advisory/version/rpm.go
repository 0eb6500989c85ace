package version

// Tags of the segments of an RPM version, in sort order.
const (
	rpmTilde byte = iota + 1
	rpmEnd
	rpmCaret
	rpmLetters
	rpmDigits
)

// readRPM parses [epoch:]version[-release]. A version without a release sorts before the same version with one.
func readRPM(k key, s string) (key, error) {
	epoch, version, release := splitEpoch(s)
	return readRPMPart(readRPMPart(readRPMPart(k, epoch), version), release), nil
}

// readRPMPart parses a version or a release as rpmvercmp does: it consists of runs of
// digits, runs of letters, tildes and carets, and other bytes are separators.
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
