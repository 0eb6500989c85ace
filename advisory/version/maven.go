package version

import (
	"slices"
	"strings"
)

// Tags of the tokens of a Maven version, in their order. Qualifiers sort alike
// after a dot and after a hyphen, numbers do not.
const (
	mavenBefore byte = iota + 1 // a qualifier older than the release, and its index
	mavenEnd
	mavenRelease // a qualifier that means the release, with numbers after it
	mavenSP
	mavenText
	mavenHyphenNumber
	mavenDotNumber
)

var mavenQualifiers = []string{"alpha", "beta", "milestone", "rc", "snapshot"}

// A mavenToken is a number or a qualifier, and how it is set apart from the one
// before it: by a hyphen (or by nothing), or by a dot.
type mavenToken struct {
	text   string
	hyphen bool
}

func (t mavenToken) number() bool { return digit(t.text[0]) }

// null tells whether t means nothing where a version ends.
func (t mavenToken) null() bool {
	switch t.text {
	case "final", "ga", "release":
		return true
	}
	return strings.Trim(t.text, "0") == ""
}

// readMaven reads a version by Maven's published order, including what it does
// since 3.9: what means nothing is left out also before a qualifier.
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

// mavenTokens splits at dots, at hyphens, and between digits and others. An empty
// token is 0.
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

// mavenRun splits s after the digits, or the other bytes but separators, that it
// starts with.
func mavenRun(s string) (text, rest string) {
	if s != "" && digit(s[0]) {
		return run(s, digit)
	}
	return run(s, func(c byte) bool { return !digit(c) && c != '.' && c != '-' })
}

// mavenName is what a token is known as: a, b and m are short for something if
// a number follows at once.
func mavenName(text string, followed bool) string {
	switch {
	case text == "":
		return "0"
	case text == "cr":
		return "rc"
	case followed && text == "a":
		return "alpha"
	case followed && text == "b":
		return "beta"
	case followed && text == "m":
		return "milestone"
	}
	return text
}
