package version

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// Red Hat and the distributions that are built from its sources publish some packages in several streams, such as
// php:8.1 and php:8.3. A stream is part of the identity of a package: a version of one stream is never compared with a
// version of another. The versions of packages in streams contain the word module.

// moduleQualifier is the part of an rpm's package URL that contains the module and its stream.
const moduleQualifier = "rpmmod"

// modular reports whether a version of an rpm belongs to a package in a stream.
func modular(version string) bool { return strings.Contains(version, ".module") }

// moduleOf returns the module and its stream in a package URL, such as php:8.1, or "".
func moduleOf(purl string) string {
	_, query, ok := strings.Cut(purl, "?")
	if !ok || !strings.Contains(query, moduleQualifier) {
		return ""
	}
	query, _, _ = strings.Cut(query, "#")
	values, _ := url.ParseQuery(query) // on an error, it returns the valid part
	return Stream(values.Get(moduleQualifier))
}

// Stream returns the module and its stream in a label such as php:8.1:9020020230101:rhel9.
func Stream(label string) string {
	module, rest, _ := strings.Cut(label, ":")
	stream, _, _ := strings.Cut(rest, ":")
	if module == "" || stream == "" {
		return ""
	}
	return module + ":" + stream
}

var streamInTitle = regexp.MustCompile(`[\w.+-]+:[\w.+-]+`)

// sameStream reports whether an affected package of an advisory is in the stream of the queried package. Advisories
// name the stream in a package URL or in their title: "Important: php:8.1 security update".
func (q Query) sameStream(a vuln.Advisory, p vuln.Affected) bool {
	inStream, outside := false, false // whether fixed versions are in a stream, and outside streams
	for _, r := range p.Ranges {
		for _, e := range r.Events {
			inStream = inStream || modular(e.Fixed)
			outside = outside || e.Fixed != "" && !modular(e.Fixed)
		}
	}
	named := moduleOf(p.PURL)
	switch queried := q.module != "" || modular(q.version); {
	case named == "" && !inStream:
		return !queried || !outside
	case !queried:
		return false
	case q.module == "": // the queried package is in a stream, but its package URL does not say in which one
		return true
	case named != "":
		return named == q.module
	}
	streams := streamInTitle.FindAllString(a.Summary, -1)
	return len(streams) == 0 || slices.Contains(streams, q.module)
}
