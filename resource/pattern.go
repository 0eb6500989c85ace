package resource

import (
	"errors"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// A pattern costs its size times the length of what it is matched with, on every
// exchange, and whoever may create an identity chooses it. These limits bound
// that product. They leave room for every list of values that fits 1024 bytes.
const (
	// maxProgram bounds one pattern, in instructions.
	maxProgram = 1200

	// maxPrograms bounds the patterns of one identity together.
	maxPrograms = 2 * maxProgram

	// maxIssuerProgram and maxMatchedIssuer bound what is done for a token whose
	// signature has not been checked. Their product is what package regexp
	// matches with its fastest general method.
	maxIssuerProgram = 500
	maxMatchedIssuer = 256

	// maxMatched bounds the values that are compared with a pattern. Subjects of
	// known issuers have a few hundred bytes.
	maxMatched = 1024

	// wideSize is what a Unicode class or a range of other than ASCII counts for.
	// To parse one costs as much as to parse many instructions.
	wideSize = 50

	// classRanges is how many characters of a class count for one instruction
	// more.
	classRanges = 64
)

// errTooLarge is why a pattern is not compiled.
var errTooLarge = errors.New("the pattern is too large")

// Anchored compiles a pattern so that it must match a whole value. What is a
// pattern only between our anchors is none: "a)|(?:b" would get out of them. It
// fails for a pattern whose program would be larger than maxProgram, without
// compiling it.
func Anchored(pattern string) (*regexp.Regexp, error) {
	re, _, err := compile(pattern)
	return re, err
}

// compile returns an anchored pattern and the size of its program.
func compile(pattern string) (*regexp.Regexp, int, error) {
	size, err := patternSize(pattern)
	if err != nil {
		return nil, 0, err
	}
	if size > maxProgram {
		return nil, 0, errTooLarge
	}
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	return re, size, err
}

// PatternsTooLarge tells whether a pattern of the relationship, or all of them
// together, are larger than what is matched with. Such a relationship was stored
// before there was a limit; nobody is taken for its identity.
func (r Relationship) PatternsTooLarge() bool {
	switch c := r.ClaimMatch; {
	case c != nil:
		return larger(maxIssuerProgram, maxIssuerProgram, c.IssuerPattern) || larger(maxProgram, maxPrograms, c.patterns()...)
	case r.AWS != nil:
		return larger(maxProgram, maxPrograms, r.AWS.ARNPattern, r.AWS.UserIDPattern)
	}
	return false
}

func (c ClaimMatch) patterns() []string {
	return slices.AppendSeq([]string{c.IssuerPattern, c.SubjectPattern, c.AudiencePattern}, maps.Values(c.ClaimPatterns))
}

// larger tells whether one of the patterns is larger than each, or all of them
// are together larger than total. What is no pattern has no size.
func larger(each, total int, patterns ...string) bool {
	sum := 0
	for _, pattern := range patterns {
		size, err := patternSize(pattern)
		if errors.Is(err, errTooLarge) || size > each {
			return true
		}
		sum += size
	}
	return sum > total
}

// patternSize returns the size of the program of a pattern, in instructions. The
// result is an estimate that is not below the true size by more than the few
// instructions of the anchors. It returns errTooLarge if the pattern is too
// expensive even to parse.
func patternSize(pattern string) (int, error) {
	if pattern == "" {
		return 0, nil
	}
	wide := wideSize * wideParts(pattern)
	if len(pattern) > maxPattern || wide > maxProgram {
		return 0, errTooLarge
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return wide + treeSize(tree), nil
}

// wideParts counts what is expensive to parse: Unicode classes, and ranges that
// end beyond ASCII, of which each character is folded if case is ignored.
func wideParts(pattern string) int {
	n := strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`) + strings.Count(pattern, `-\`)
	for i := range len(pattern) - 1 {
		if pattern[i] == '-' && pattern[i+1] >= utf8.RuneSelf {
			n++
		}
	}
	return n
}

// treeSize returns how many instructions a parsed pattern is compiled to.
func treeSize(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n += treeSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		return 1 + len(re.Rune)/classRanges
	case syntax.OpCapture, syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		return n + 2
	case syntax.OpAlternate:
		return n + 2*len(re.Sub)
	case syntax.OpRepeat:
		if re.Max < 0 {
			return (n+1)*max(re.Min, 1) + 2
		}
		return (n+1)*max(re.Max, 1) + 1
	case syntax.OpConcat:
		return n
	}
	return 1
}
