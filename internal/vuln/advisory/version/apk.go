package version

import (
	"slices"
	"strings"
)

// Tags of the parts of an apk version, in sort order. The end of a version sorts after a pre-release suffix and before
// other parts.
const (
	apkPreSuffix byte = iota + 1 // _alpha, _beta, _pre, _rc
	apkJunk                      // any text that apk cannot parse
	apkEnd
	apkRevision     // package revision, such as -r1
	apkHash         // hash of a commit, such as ~1a2b3c
	apkSuffixNumber // number after a suffix
	apkPostSuffix   // _cvs, _svn, _git, _hg, _p
	apkLetter
	apkFraction // number with a leading zero, which is compared like digits after a decimal point
	apkNumber
)

// apkSuffixes are the suffixes in sort order. The suffixes before apkPost are pre-releases.
var apkSuffixes = []string{"alpha", "beta", "pre", "rc", "cvs", "svn", "git", "hg", "p"}

const apkPost = 4

// readAPK parses number{.number}[letter]{_suffix[number]}[~hash][-rnumber]. The rest of
// s that does not have this form gets the tag apkJunk, so 1.0junk sorts before 1.0.
func readAPK(k key, s string) (key, error) {
	n, s := run(s, digit)
	if n == "" {
		return nil, errShape("a number first")
	}
	k = append(k, apkNumber).number(n) // leading zeros are ignored in the first number
	for len(s) > 1 && s[0] == '.' && digit(s[1]) {
		if n, s = run(s[1:], digit); n[0] == '0' {
			k = append(k, apkFraction).text(n)
		} else {
			k = append(k, apkNumber).number(n)
		}
	}
	if s != "" && 'a' <= s[0] && s[0] <= 'z' {
		k, s = append(k, apkLetter, s[0]), s[1:]
	}
	k, s = readAPKSuffixes(k, s)
	if hash, ok := strings.CutPrefix(s, "~"); ok {
		hash, s = run(hash, func(c byte) bool { return digit(c) || 'a' <= c && c <= 'f' })
		k = append(k, apkHash).text(hash)
	}
	if n, ok := strings.CutPrefix(s, "-r"); ok && numeric(n) {
		k, s = append(k, apkRevision).number(n), ""
	}
	if s != "" {
		k = append(k, apkJunk).text(s)
	}
	return append(k, apkEnd), nil
}

// readAPKSuffixes parses {_suffix[number]}, and returns the rest of the version.
func readAPKSuffixes(k key, s string) (key, string) {
	for strings.HasPrefix(s, "_") {
		name, rest := run(s[1:], letter)
		i := slices.Index(apkSuffixes, name)
		if i < 0 {
			return k, s
		}
		tag := apkPreSuffix
		if i >= apkPost {
			tag = apkPostSuffix
		}
		k = append(k, tag, byte(i))
		var n string
		if n, s = run(rest, digit); n != "" {
			k = append(k, apkSuffixNumber).number(n)
		}
	}
	return k, s
}
