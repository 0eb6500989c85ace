package version

import (
	"cmp"
	"slices"
	"strings"
)

// Tags of the tokens of a Maven version, in sort order. Numbers after a dot and numbers after a hyphen sort
// differently. For qualifiers the separator does not matter.
const (
	mavenBefore byte = iota + 1 // a qualifier that is older than the release; its index in mavenQualifiers follows
	mavenEnd
	mavenRelease // a qualifier that means the release, if numbers follow it
	mavenSP
	mavenText
	mavenHyphenNumber
	mavenDotNumber
)

var mavenQualifiers = []string{"alpha", "beta", "milestone", "rc", "snapshot"}

// mavenLetters are the abbreviations of qualifiers. They are abbreviations only if a number follows immediately.
var mavenLetters = map[string]string{"a": "alpha", "b": "beta", "m": "milestone"}

// A mavenToken is a number or a qualifier, and whether it follows a hyphen (or no separator) or a dot.
type mavenToken struct {
	text   string
	hyphen bool
}

func (t mavenToken) number() bool { return digit(t.text[0]) }

// null reports whether t is ignored at the end of a version, because it means zero or the release.
func (t mavenToken) null() bool {
	switch t.text {
	case "final", "ga", "release":
		return true
	}
	return strings.Trim(t.text, "0") == ""
}

// readMaven parses a version and orders it as Maven's documentation says, as of version 3.9. Tokens for which null
// reports true are also ignored before a qualifier.
func readMaven(k key, s string) (key, error) {
	tokens := make([]mavenToken, 0, 8)
	trim := func() {
		for len(tokens) > 0 && tokens[len(tokens)-1].null() {
			tokens = tokens[:len(tokens)-1]
		}
	}
	for t := range mavenTokens(strings.ToLower(s)) {
		if t.hyphen || !t.number() {
			trim()
		}
		tokens = append(tokens, t)
	}
	trim()
	for _, t := range tokens {
		k = appendMaven(k, t)
	}
	return append(k, mavenEnd), nil
}

func appendMaven(k key, t mavenToken) key {
	before := slices.Index(mavenQualifiers, t.text)
	switch {
	case before >= 0:
		return append(k, mavenBefore, byte(before))
	case t.number() && t.hyphen:
		return append(k, mavenHyphenNumber).number(t.text)
	case t.number():
		return append(k, mavenDotNumber).number(t.text)
	case t.null():
		return append(k, mavenRelease)
	case t.text == "sp":
		return append(k, mavenSP)
	}
	return append(k, mavenText).text(t.text)
}

// mavenTokens splits a version at dots, at hyphens, and between digits and other bytes. An empty token is 0.
func mavenTokens(s string) func(yield func(mavenToken) bool) {
	return func(yield func(mavenToken) bool) {
		hyphen := false
		for {
			text, rest := mavenRun(s)
			followed := rest != "" && digit(rest[0])
			if !yield(mavenToken{mavenName(text, followed), hyphen}) || rest == "" {
				return
			}
			switch rest[0] {
			case '.':
				hyphen, s = false, rest[1:]
			case '-':
				hyphen, s = true, rest[1:]
			default:
				hyphen, s = true, rest
			}
		}
	}
}

// mavenRun splits s after its prefix of digits, or of bytes that are neither digits nor separators.
func mavenRun(s string) (text, rest string) {
	if s != "" && digit(s[0]) {
		return run(s, digit)
	}
	return run(s, func(c byte) bool { return !digit(c) && c != '.' && c != '-' })
}

// mavenName returns the full name of a token's text. followed reports whether a number follows immediately.
func mavenName(text string, followed bool) string {
	switch {
	case text == "":
		return "0"
	case text == "cr":
		return "rc"
	case followed:
		return cmp.Or(mavenLetters[text], text)
	}
	return text
}
