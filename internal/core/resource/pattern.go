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

// These limits bound the cost of matching a pattern, which is its size times the length of the
// value. Every exchange pays this cost, and anybody who may create an identity chooses the
// pattern. The limits allow every list of values that fits in 1024 bytes.
const (
	// maxProgram bounds one pattern, in instructions.
	maxProgram = 1200

	// maxPrograms bounds the sum of the sizes of the patterns in one identity.
	maxPrograms = 2 * maxProgram

	// maxIssuerProgram and maxMatchedIssuer bound the work for a token whose signature is
	// not verified yet. Up to their product, package regexp uses its backtracker.
	maxIssuerProgram = 500
	maxMatchedIssuer = 256

	// MaxMatched is the greatest length, in bytes, of a value that is matched. Subjects of known
	// issuers have a few hundred bytes.
	MaxMatched = 1024

	// wideSize is the size that a Unicode class, or a range beyond ASCII, counts for,
	// because parsing one is as expensive as parsing many instructions.
	wideSize = 50

	// classRanges is the number of characters in a class that count as one more instruction.
	classRanges = 64
)

// errTooLarge is returned if a pattern is too large to be compiled.
var errTooLarge = errors.New("the pattern is too large")

// Anchored compiles a pattern so that it must match a whole value. It returns an error for a text that is a
// valid pattern only between our anchors, such as "a)|(?:b", and for a pattern whose program would be larger
// than maxProgram.
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

// PatternsTooLarge reports whether a pattern in the relationship, or the sum of its patterns,
// exceeds the limits. Such a relationship was stored before there were limits, and matches
// nothing.
func (r Relationship) PatternsTooLarge() bool {
	switch c := r.ClaimMatch; {
	case c != nil:
		return larger(maxIssuerProgram, maxIssuerProgram, c.IssuerPattern) ||
			larger(maxProgram, maxPrograms, c.patterns()...)
	case r.AWS != nil:
		return larger(maxProgram, maxPrograms, r.AWS.ARNPattern, r.AWS.UserIDPattern)
	}
	return false
}

func (c ClaimMatch) patterns() []string {
	return slices.AppendSeq([]string{c.IssuerPattern, c.SubjectPattern, c.AudiencePattern},
		maps.Values(c.ClaimPatterns))
}

// larger reports whether one of the patterns is larger than each, or their sum is larger than
// total. Invalid patterns count as size 0.
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

// patternSize estimates the size of a pattern's program, in instructions. The result is not smaller than the
// true size, except for the anchors. It returns errTooLarge if the pattern is too expensive to parse.
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

// wideParts counts the Unicode classes and the ranges beyond ASCII in a pattern. They are
// expensive to parse, because if case is ignored, each of their characters is folded.
func wideParts(pattern string) int {
	n := strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`) + strings.Count(pattern, `-\`)
	for i := range len(pattern) - 1 {
		if pattern[i] == '-' && pattern[i+1] >= utf8.RuneSelf {
			n++
		}
	}
	return n
}

// treeSize returns the number of instructions of a parsed pattern.
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
