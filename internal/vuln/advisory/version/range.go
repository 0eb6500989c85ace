package version

import (
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// A comparison is an operator and a version.
type comparison struct{ operator, version string }

// A Range is a list of alternatives. All comparisons of an alternative must
// hold. An empty range contains every version.
type Range [][]comparison

const (
	maxRange       = 1024 // maximum length of a range in bytes
	maxComparisons = 20   // maximum number of comparisons in a range
)

// operators are in the order in which the parser tries them.
var operators = []string{">=", "<=", "!=", ">", "<", "="}

// ParseRange parses a range of versions, such as ">=1.0 <1.2 || 2.0".
func ParseRange(ecosystem, text string) (r Range, _ error) {
	if len(text) > maxRange {
		return nil, fault.Field("range", "must have at most %d bytes", maxRange)
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	n := 0
	for part := range strings.SplitSeq(text, "||") {
		var alternative []comparison
		for _, word := range strings.FieldsFunc(joined(part), func(c rune) bool { return c == ',' || c == ' ' }) {
			c := comparison{"=", word}
			for _, o := range operators {
				if rest, ok := strings.CutPrefix(word, o); ok {
					c = comparison{o, rest}
					break
				}
			}
			if _, err := Compare(ecosystem, c.version, c.version); err != nil || c.version == "" {
				return nil, fault.Field("range", "%.100q is not a version of %s", c.version, ecosystem)
			}
			alternative = append(alternative, c)
			n++
		}
		if len(alternative) == 0 || n > maxComparisons {
			return nil, fault.Field("range", "must have 1 to %d comparisons, such as \">=1.0 <1.2 || 2.0\"", maxComparisons)
		}
		r = append(r, alternative)
	}
	return r, nil
}

// joined removes spaces after operators.
func joined(part string) string {
	for _, o := range operators {
		for strings.Contains(part, o+" ") {
			part = strings.ReplaceAll(part, o+" ", o)
		}
	}
	return part
}

// Has reports whether a version is in the range. It returns false for a version that cannot be compared.
func (r Range) Has(ecosystem, v string) bool {
	for _, comparisons := range r {
		holds := true
		for _, c := range comparisons {
			order, err := Compare(ecosystem, v, c.version)
			holds = holds && err == nil && c.allows(order)
		}
		if holds {
			return true
		}
	}
	return len(r) == 0
}

func (c comparison) allows(order int) bool {
	switch c.operator {
	case ">=":
		return order >= 0
	case "<=":
		return order <= 0
	case "!=":
		return order != 0
	case ">":
		return order > 0
	case "<":
		return order < 0
	}
	return order == 0
}
