package version_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

func FuzzSemver(f *testing.F)    { order(f, "npm", nil) }
func FuzzPub(f *testing.F)       { order(f, "Pub", nil) }
func FuzzPyPI(f *testing.F)      { order(f, "PyPI", nil) }
func FuzzMaven(f *testing.F)     { order(f, "Maven", nil) }
func FuzzRubyGems(f *testing.F)  { order(f, "RubyGems", compareGems) }
func FuzzNuGet(f *testing.F)     { order(f, "NuGet", nil) }
func FuzzPackagist(f *testing.F) { order(f, "Packagist", nil) }
func FuzzDotted(f *testing.F)    { order(f, "CRAN", nil) }
func FuzzDeb(f *testing.F)       { order(f, "Debian", compareDebs) }
func FuzzRPM(f *testing.F)       { order(f, "Red Hat", compareRPMs) }
func FuzzAPK(f *testing.F)       { order(f, "Alpine", nil) }

// order fuzzes the rule of an ecosystem with three versions. If the rule accepts them, it checks that they have a
// consistent order, that no key is a prefix of another key, and that a range between two of them agrees with the order.
// If tool is not nil, it also checks that the order agrees with the ecosystem's own tool.
func order(f *testing.F, ecosystem string, tool func(a, b string) int) {
	for _, file := range tables(f) {
		for _, c := range chains(f, file) {
			for i := range c.versions {
				f.Add(c.versions[i], c.versions[(i+1)%len(c.versions)], c.versions[(i+2)%len(c.versions)])
			}
		}
	}
	rule, _ := version.RuleFor(ecosystem, "")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ka, errA := rule.Key(a)
		kb, errB := rule.Key(b)
		if errA != nil || errB != nil {
			return
		}
		ab, _ := version.Compare(ecosystem, a, b)
		if ba, _ := version.Compare(ecosystem, b, a); ab != -ba {
			t.Fatalf("Compare(%q, %q) = %d, and the other way round %d", a, b, ab, ba)
		}
		if ab != 0 && (strings.HasPrefix(string(ka), string(kb)) || strings.HasPrefix(string(kb), string(ka))) {
			t.Fatalf("the key of %q and that of %q start alike", a, b)
		}
		if tool != nil && tool(a, b) != ab {
			t.Fatalf("Compare(%q, %q) = %d, the tool's own = %d", a, b, ab, tool(a, b))
		}
		bc, err := version.Compare(ecosystem, b, c)
		if err != nil {
			return
		}
		if ac, _ := version.Compare(ecosystem, a, c); ab <= 0 && bc <= 0 && ac != min(ab, bc) {
			t.Fatalf("%q, %q, %q are not in order: %d, %d, %d", a, b, c, ab, bc, ac)
		}
		holds(t, ecosystem, a, b, c)
	})
}

// holds checks that ranges agree with Compare: the range from a to c is valid only if a < c, and affects b only if
// a <= b < c.
func holds(t *testing.T, ecosystem, a, b, c string) {
	in := vuln.Affected{Ecosystem: ecosystem, Ranges: []vuln.AffectedRange{{
		Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: a}, {Fixed: c}},
	}}}
	ac, _ := version.Compare(ecosystem, a, c)
	ab, _ := version.Compare(ecosystem, a, b)
	bc, _ := version.Compare(ecosystem, b, c)
	if a == "0" { // "0" as an introduction means before all versions
		ac, ab = -1, -1
	}
	if err := version.CheckRanges(in); (err == nil) != (ac < 0) {
		t.Fatalf("CheckRanges(%q to %q) = %v", a, c, err)
	}
	if ac >= 0 {
		return
	}
	if got, err := isAffected(in, b); err != nil || got != (ab <= 0 && bc < 0) {
		t.Fatalf("%q in (%q to %q) = %v, %v", b, a, c, got, err)
	}
}

func FuzzPURL(f *testing.F) {
	f.Add("pkg:golang/github.com/Masterminds/goutils@v1.1.0")
	f.Add("pkg:apk/alpine/curl@8.5.0-r0?arch=x86_64&distro=alpine-3.20.1#a/b")
	f.Fuzz(func(t *testing.T, s string) {
		ecosystem, name, v, err := version.ParsePURL(s)
		if err == nil && (ecosystem == "" || name == "") {
			t.Fatalf("ParsePURL(%q) = %q, %q, %q", s, ecosystem, name, v)
		}
	})
}

// The following functions compare versions like the tools do, part by part and without keys. They are slow, but
// unlikely to have the same bugs.

// compareDebs compares two versions as dpkg does.
func compareDebs(a, b string) int {
	ea, ua, ra := splitDeb(a)
	eb, ub, rb := splitDeb(b)
	return cmp.Or(compareNumbers(ea, eb), compareDebParts(ua, ub), compareDebParts(ra, rb))
}

func splitDeb(s string) (epoch, upstream, revision string) {
	epoch, upstream, ok := strings.Cut(s, ":")
	if !ok {
		epoch, upstream = "", s
	}
	if i := strings.LastIndex(upstream, "-"); i >= 0 {
		upstream, revision = upstream[:i], upstream[i+1:]
	}
	return epoch, upstream, revision
}

func compareDebParts(a, b string) int {
	weight := func(s string) int {
		switch {
		case s == "", isDigit(s[0]):
			return 0
		case s[0] == '~':
			return -1
		case s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z':
			return int(s[0])
		}
		return int(s[0]) + 256
	}
	for a != "" || b != "" {
		for a != "" && !isDigit(a[0]) || b != "" && !isDigit(b[0]) {
			if c := cmp.Compare(weight(a), weight(b)); c != 0 {
				return c
			}
			a, b = a[min(1, len(a)):], b[min(1, len(b)):]
		}
		var na, nb string
		na, a = digits(a)
		nb, b = digits(b)
		if c := compareNumbers(na, nb); c != 0 {
			return c
		}
	}
	return 0
}

// compareRPMs compares epoch, version and release as rpmvercmp does.
func compareRPMs(a, b string) int {
	epoch := func(s string) string {
		if e, _, ok := strings.Cut(s, ":"); ok {
			return e
		}
		return "0"
	}
	_, ua, ra := splitDeb(a)
	_, ub, rb := splitDeb(b)
	return cmp.Or(compareRPMParts(epoch(a), epoch(b)), compareRPMParts(ua, ub), compareRPMParts(ra, rb))
}

func compareRPMParts(a, b string) int {
	counts := func(r rune) bool { return r < 128 && (isDigit(byte(r)) || isLetter(byte(r))) || r == '~' || r == '^' }
	skip := func(s string) string { return strings.TrimLeftFunc(s, func(r rune) bool { return !counts(r) }) }
	for {
		a, b = skip(a), skip(b)
		for _, mark := range []string{"~", "^"} {
			inA, inB := strings.HasPrefix(a, mark), strings.HasPrefix(b, mark)
			switch {
			case inA && inB:
				a, b = a[1:], b[1:]
			case mark == "~" && (inA || inB), mark == "^" && inA && b != "", mark == "^" && inB && a != "":
				return sign(inB) - sign(inA)
			case inA || inB: // the version without the mark ends here
				return sign(inA) - sign(inB)
			default:
				continue
			}
			return compareRPMParts(a, b)
		}
		if a == "" || b == "" {
			return cmp.Compare(len(a), len(b)) // the version that continues is newer
		}
		if isDigit(a[0]) != isDigit(b[0]) {
			return sign(isDigit(a[0])) - sign(isDigit(b[0]))
		}
		like := isLetter
		if isDigit(a[0]) {
			like = isDigit
		}
		i, j := prefix(a, like), prefix(b, like)
		c := strings.Compare(a[:i], b[:j])
		if isDigit(a[0]) {
			c = compareNumbers(a[:i], b[:j])
		}
		if c != 0 {
			return c
		}
		a, b = a[i:], b[j:]
	}
}

// compareGems compares two versions as Gem::Version does: segment by segment, padded with zeros.
func compareGems(a, b string) int {
	sa, sb := gemSegments(a), gemSegments(b)
	part := func(s []string, i int) string {
		if i < len(s) {
			return s[i]
		}
		return "0"
	}
	for i := range max(len(sa), len(sb)) {
		x, y := part(sa, i), part(sb, i)
		if isDigit(x[0]) != isDigit(y[0]) {
			return sign(isDigit(x[0])) - sign(isDigit(y[0]))
		}
		c := strings.Compare(x, y)
		if isDigit(x[0]) {
			c = compareNumbers(x, y)
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// gemSegments returns the canonical segments, without zeros before the first text and at the end.
func gemSegments(s string) []string {
	var segments []string
	text := false
	for s = strings.ReplaceAll(s, "-", ".pre."); s != ""; {
		like := func(c byte) bool { return !isDigit(c) && !isLetter(c) }
		if isDigit(s[0]) {
			like = isDigit
		} else if isLetter(s[0]) {
			like = isLetter
		}
		n := prefix(s, like)
		if isLetter(s[0]) && !text {
			segments, text = trimZeros(segments), true
		}
		if isDigit(s[0]) || isLetter(s[0]) {
			segments = append(segments, s[:n])
		}
		s = s[n:]
	}
	return trimZeros(segments)
}

func trimZeros(s []string) []string {
	for len(s) > 0 && strings.Trim(s[len(s)-1], "0") == "" {
		s = s[:len(s)-1]
	}
	return s
}

func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func digits(s string) (number, rest string) {
	n := prefix(s, isDigit)
	return s[:n], s[n:]
}

func prefix(s string, like func(byte) bool) int {
	n := 0
	for n < len(s) && like(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func sign(b bool) int {
	if b {
		return 1
	}
	return 0
}
