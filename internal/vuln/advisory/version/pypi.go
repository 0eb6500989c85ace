package version

import (
	"cmp"
	"regexp"
	"strings"
)

// pep440 is the pattern in appendix B of PEP 440. Its groups are: epoch, release, pre-release and its number,
// post-release (implicit, or with its number), development release and its number, local version.
var pep440 = regexp.MustCompile(`^v?(?:(\d+)!)?(\d+(?:\.\d+)*)` +
	`(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?(\d+)?)?` +
	`(?:-(\d+)|([-_.]?(?:post|rev|r)[-_.]?)(\d+)?)?` +
	`([-_.]?dev[-_.]?(\d+)?)?` +
	`(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?$`)

// Tags of the parts of a version, in sort order. Some tags mean that a part is absent.
const (
	pypiLegacy byte = 0 // a version that PEP 440 does not allow
	pypiNormal byte = 1

	pypiDevOnly byte = 0 // a development release of the final version, which is older than the alpha releases
	pypiAlpha   byte = 1
	pypiBeta    byte = 2
	pypiRC      byte = 3
	pypiFinal   byte = 4

	pypiNoPost byte = 0
	pypiPost   byte = 1

	pypiDev   byte = 0
	pypiNoDev byte = 1

	pypiEnd    byte = 0 // end of a local version
	pypiText   byte = 1
	pypiNumber byte = 2
)

// readPyPI parses a version as PEP 440 defines. Old packages may have versions that PEP 440 does not allow. These sort
// before all others, by their numbers and words.
func readPyPI(k key, s string) (key, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	if final(s) {
		k, _, err := readNumbers(append(k, pypiNormal).number("0"), s)
		return append(k, pypiFinal, pypiNoPost, pypiNoDev, pypiEnd), err
	}
	m := pep440.FindStringSubmatch(s)
	if m == nil {
		return readWords(append(k, pypiLegacy), s), nil
	}
	epoch, release, pre, preN, dev, devN, local := m[1], m[2], m[3], m[4], m[8], m[9], m[10]
	post, postN := m[5] != "" || m[6] != "", m[5]+m[7]
	// readNumbers cannot fail, because the release begins with a digit.
	k, _, _ = readNumbers(append(k, pypiNormal).number(epoch), release)
	switch {
	case pre != "":
		phase := cmp.Or(map[byte]byte{'a': pypiAlpha, 'b': pypiBeta}[pre[0]], pypiRC)
		k = append(k, phase).number(preN)
	case dev != "" && !post:
		k = append(k, pypiDevOnly)
	default:
		k = append(k, pypiFinal)
	}
	if post {
		k = append(k, pypiPost).number(postN)
	} else {
		k = append(k, pypiNoPost)
	}
	if dev != "" {
		k = append(k, pypiDev).number(devN)
	} else {
		k = append(k, pypiNoDev)
	}
	return readLocal(k, local), nil
}

// final reports whether s is only numbers separated by dots, as most versions are. It is
// faster than the regular expression.
func final(s string) bool {
	for i := range len(s) {
		if !digit(s[i]) && (s[i] != '.' || i == 0 || s[i-1] == '.') {
			return false
		}
	}
	return s != "" && digit(s[len(s)-1])
}

// readLocal parses a local version: more parts sort after fewer, and numbers after text.
func readLocal(k key, s string) key {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '-' || r == '_' || r == '.' }) {
		if numeric(part) {
			k = append(k, pypiNumber).number(part)
		} else {
			k = append(k, pypiText).text(part)
		}
	}
	return append(k, pypiEnd)
}

// readWords parses runs of digits and runs of other bytes.
func readWords(k key, s string) key {
	for s != "" {
		var part string
		if digit(s[0]) {
			part, s = run(s, digit)
			k = append(k, pypiNumber).number(part)
			continue
		}
		part, s = run(s, func(c byte) bool { return !digit(c) })
		k = append(k, pypiText).text(part)
	}
	return append(k, pypiEnd)
}
