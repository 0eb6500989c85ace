package version

import "strings"

// Bytes that precede the parts of a Debian version in a key, in their sort order.
const (
	debTilde byte = iota + 1
	debEnd        // end of a run of non-digits; a number follows, which is 0 if the version contains none
	debLetter
	debOther
)

// readDeb parses [epoch:]upstream[-revision] as dpkg does: runs of non-digits and numbers alternate, ~ sorts before the
// end of the text, and letters sort before other bytes.
func readDeb(k key, s string) (key, error) {
	epoch, upstream, revision := splitEpoch(s)
	if !numeric(epoch) {
		return nil, errShape("a number before the colon")
	}
	if s == epoch+":" {
		return nil, errShape("a version after the epoch")
	}
	return readDebPart(readDebPart(k.number(epoch), upstream), revision), nil
}

// splitEpoch splits [epoch:]version[-release]. The epoch is 0 if there is none.
func splitEpoch(s string) (epoch, version, release string) {
	epoch, version, ok := strings.Cut(s, ":")
	if !ok {
		epoch, version = "0", s
	}
	if i := strings.LastIndexByte(version, '-'); i >= 0 {
		return epoch, version[:i], version[i+1:]
	}
	return epoch, version, ""
}

// readDebPart parses an upstream version or a revision. dpkg compares them as if they
// were followed by infinitely many zeros, so trailing zeros do not count.
func readDebPart(k key, s string) key {
	significant := len(k) // length of k without the implied zeros at the end
	for s != "" {
		var text, n string
		text, s = run(s, func(c byte) bool { return !digit(c) })
		for i := range len(text) {
			k = appendDebByte(k, text[i])
		}
		k = append(k, debEnd)
		n, s = run(s, digit)
		k = k.number(n)
		if text != "" || strings.Trim(n, "0") != "" {
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
