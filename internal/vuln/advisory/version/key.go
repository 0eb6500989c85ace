package version

import (
	"strings"
	"unicode/utf8"
)

// A key is the bytes of a Key under construction. Keys of an ecosystem sort as their versions do.
//
// Each part of a version starts with a tag: a byte for the kind of the part. The end of a version has a tag, too. Tags
// sort in the order of the kinds. The encoding of a part is never a prefix of another part's encoding, so the first
// difference decides.
type key []byte

// number appends a decimal number of any size: its length and then its digits, so that 9 sorts before 10.
func (k key) number(digits string) key {
	digits = strings.TrimLeft(digits, "0")
	return append(append(k, byte(len(digits))), digits...) // the length fits in a byte, because it is at most MaxLength
}

// text appends s. Texts sort by their bytes, and a text sorts before a longer text that begins with it.
func (k key) text(s string) key {
	return append(append(k, s...), 0) // the NUL marks the end, because plain ensures that s contains none
}

// lower appends s as text, with ASCII letters in lower case.
func (k key) lower(s string) key {
	for i := range len(s) {
		k = append(k, lower(s[i]))
	}
	return append(k, 0)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func digit(c byte) bool  { return '0' <= c && c <= '9' }
func letter(c byte) bool { return 'a' <= lower(c) && lower(c) <= 'z' }

// run splits s after its longest prefix whose bytes all satisfy like.
func run(s string, like func(byte) bool) (prefix, rest string) {
	for i := range len(s) {
		if !like(s[i]) {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// numeric reports whether s is one or more digits.
func numeric(s string) bool {
	_, rest := run(s, digit)
	return s != "" && rest == ""
}

// plain reports whether s is valid UTF-8 without control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
