package version

import "strings"

// Tags of the bytes and numbers of a Debian version.
const (
	debTilde byte = iota + 1
	debEnd        // of a run of other bytes than digits: a number follows, if only an implied 0
	debLetter
	debOther
)

// readDeb reads [epoch:]upstream[-revision] as dpkg does: runs of other bytes
// and numbers take turns; ~ sorts before the end, letters before the rest.
func readDeb(k key, s string) (key, error) {
	epoch, rest, ok := strings.Cut(s, ":")
	if !ok {
		epoch, rest = "0", s
	}
	if !numeric(epoch) {
		return nil, errShape("a number before the colon")
	}
	if rest == "" {
		return nil, errShape("a version after the epoch")
	}
	upstream, revision := rest, ""
	if i := strings.LastIndexByte(rest, '-'); i >= 0 {
		upstream, revision = rest[:i], rest[i+1:]
	}
	return readDebPart(readDebPart(k.number(epoch), upstream), revision), nil
}

// readDebPart reads an upstream version or a revision. What it has is followed
// by zeros without end, as dpkg compares them: those at the end do not count.
func readDebPart(k key, s string) key {
	significant := len(k) // up to where something else than an implied 0 stands
	for s != "" {
		var other, n string
		other, s = run(s, func(c byte) bool { return !digit(c) })
		for i := range len(other) {
			k = appendDebByte(k, other[i])
		}
		k = append(k, debEnd)
		n, s = run(s, digit)
		k = k.number(n)
		if other != "" || strings.Trim(n, "0") != "" {
			significant = len(k)
		}
	}
	return append(k[:significant], debEnd, 0, debEnd)
}

func appendDebByte(k key, c byte) key {
	switch {
	case c == '~':
		return append(k, debTilde)
	case letter(c):
		return append(k, debLetter, c)
	}
	return append(k, debOther, c)
}
