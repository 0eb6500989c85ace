package version

import (
	"strings"
	"unicode/utf8"
)

// A key is the bytes of a Key under construction. Keys of an ecosystem sort as their versions do.
//
// Each part of a version starts with a tag: a byte for the kind of the part, in the order in which kinds sort,
// including the end. No part's encoding is a prefix of another's, so the first difference decides.
type key []byte

// number appends a decimal number of any size: its length and then its digits, so that 9 sorts before 10.
func (k key) number(digits string) key {
	digits = strings.TrimLeft(digits, "0")
	return append(append(k, byte(len(digits))), digits...) // MaxLength fits in a byte
}

// text appends s, which sorts by its bytes, and a prefix first.
func (k key) text(s string) key {
	return append(append(k, s...), 0) // s has no NUL, see plain
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

// run splits s after its longest prefix of bytes for which like is true.
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
