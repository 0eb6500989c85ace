package resource

import "regexp"

// DigestPattern matches digests with an algorithm that the registry supports.
var DigestPattern = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// ValidDigest reports whether s matches DigestPattern.
func ValidDigest(s string) bool { return DigestPattern.MatchString(s) }
