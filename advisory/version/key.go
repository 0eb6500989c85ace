package version

import (
	"strings"
	"unicode/utf8"
)

// A key is the text under construction that sorts as its version does: byte by
// byte, with nothing to know about the version's ecosystem.
//
// Each part of a version starts with a tag, a byte that says what kind of part
// it is and how that kind sorts among the others, the end included. No part's
// encoding is the beginning of another's, so the first difference decides.
type key []byte

// number appends digits, a decimal number of any size: its length, then its
// digits, so that 9 sorts before 10.
func (k key) number(digits string) key {
	digits = strings.TrimLeft(digits, "0")
	return append(append(k, byte(len(digits))), digits...) // MaxLength fits in a byte
}

// text appends s, which sorts by its bytes, a prefix first.
func (k key) text(s string) key {
	return append(append(k, s...), 0) // check refuses NUL
}

// lower appends s as text without regard to the case of ASCII letters.
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

// run splits s after its longest prefix of bytes that are like that.
func run(s string, like func(byte) bool) (prefix, rest string) {
	for i := range len(s) {
		if !like(s[i]) {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// numeric tells whether s is one or more digits.
func numeric(s string) bool {
	_, rest := run(s, digit)
	return s != "" && rest == ""
}

// plain tells whether s can be part of a version at all: text a person could
// have typed on one line.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return utf8.ValidString(s)
}
