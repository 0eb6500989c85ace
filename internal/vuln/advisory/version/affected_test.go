package version_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// isAffected reports whether a version of a package is in one of its ranges or on its list.
func isAffected(a vuln.Affected, v string) (bool, error) {
	q, err := version.NewQuery(a.Ecosystem, v)
	if err != nil {
		return false, err
	}
	return q.In(a)
}

// affected parses a range such as "introduced 1.0 fixed 1.5".
func affected(ecosystem, kind, events string) vuln.Affected {
	r := vuln.AffectedRange{Type: kind}
	for words := strings.Fields(events); len(words) > 1; words = words[2:] {
		e := map[string]vuln.RangeEvent{
			"introduced": {Introduced: words[1]}, "fixed": {Fixed: words[1]},
			"last": {LastAffected: words[1]}, "limit": {Limit: words[1]},
		}[words[0]]
		r.Events = append(r.Events, e)
	}
	return vuln.Affected{Ecosystem: ecosystem, Name: "thing", Ranges: []vuln.AffectedRange{r}}
}

func TestAffected(t *testing.T) {
	tests := map[string]struct {
		in       vuln.Affected
		yes, not string
	}{
		"all versions": {affected("npm", "SEMVER", "introduced 0"), "0.0.0-a 0 1 99", ""},
		"until a fix": {affected("npm", "SEMVER", "introduced 0 fixed 1.5.0"), "0.1.0 1.4.9 1.5.0-rc.1",
			"1.5.0 1.5.1"},
		"between": {affected("npm", "SEMVER", "introduced 1.0.0 fixed 1.5.0"), "1.0.0 1.4.9",
			"1.0.0-rc.1 0.9.0 1.5.0"},
		"until a last": {affected("npm", "SEMVER", "introduced 1.0.0 last 1.5.0"), "1.0.0 1.5.0", "0.9.0 1.5.1"},
		"in one only":  {affected("npm", "SEMVER", "introduced 1.5.0 last 1.5.0"), "1.5.0", "1.4.0 1.5.1"},
		"again, whatever the order of events": {
			affected("PyPI", "ECOSYSTEM", "fixed 2.3 introduced 2.0 fixed 1.5 introduced 1.0"),
			"1.0 1.4 2.0 2.2.9 2.3rc1", "0.9 1.5 1.9 2.3",
		},
		"without a break": {affected("npm", "SEMVER",
			"introduced 1.0.0 fixed 1.5.0 introduced 1.5.0 fixed 2.0.0"), "1.0.0 1.5.0 1.9.9", "2.0.0"},
		"with a fix for each branch": {affected("npm", "SEMVER", "introduced 0 fixed 1.5.0 fixed 2.3.0"), "1.4.0",
			"1.5.0 2.0.0 2.3.0"},
		"up to a limit": {affected("npm", "SEMVER", "introduced 1.0.0 limit 2.0.0"), "1.0.0 1.9.0",
			"0.9.0 2.0.0"},
		"up to the higher limit": {affected("npm", "SEMVER", "introduced 1.0.0 limit 2.0.0 limit 3.0.0"), "2.5.0",
			"3.0.0"},
		"without an end": {affected("npm", "SEMVER", "introduced 1.0.0 limit *"), "1.0.0 9.0.0", "0.9.0"},
		"never": {affected("Alpine:v3.20", "ECOSYSTEM", "introduced 0 fixed 0"), "",
			"0 0-r0 1.0-r0"},
		"by Debian's rules": {affected("Debian:12", "ECOSYSTEM", "introduced 0 fixed 7.88.1-10+deb12u5"),
			"7.88.1-10+deb12u4 7.88.1-10+deb12u5~bpo11", "7.88.1-10+deb12u5 1:1.0"},
		"by apk's": {affected("Wolfi", "ECOSYSTEM", "introduced 0 fixed 3.1.4-r2"),
			"3.1.4-r1 3.1.4_rc1", "3.1.4-r2 3.1.10-r0"},
		"by rpm's": {affected("Red Hat:enterprise_linux:9", "ECOSYSTEM",
			"introduced 0 fixed 0:4.18.0-553.el8"), "4.18.0-513.el8", "4.18.0-553.el8 1:1-1"},
		"by Maven's": {affected("Maven", "ECOSYSTEM", "introduced 2.0-beta9 fixed 2.15.0"),
			"2.0-rc1 2.14.1", "2.0-beta8 2.15.0"},
		"semantic in an unknown ecosystem": {
			affected("Some Registry", "SEMVER", "introduced 1.0.0 fixed 1.5.0"), "1.4.0", "1.5.0",
		},
		"all, of an unknown ecosystem": {affected("Some Registry", "ECOSYSTEM", "introduced 0"), "one 2", ""},
		"by commit":                    {affected("Go", "GIT", "introduced 0"), "", "1.0.0"},
		"on a list": {vuln.Affected{Ecosystem: "PyPI", Name: "thing",
			Versions: []string{"1.0.0", "1.1"}}, "1.0 1.0.0 1.1.0", "1.2"},
		"on a list, of an unknown ecosystem": {
			vuln.Affected{Ecosystem: "Some Registry", Name: "thing", Versions: []string{"one"}}, "one", "two",
		},
		"on a list beside a range": {
			vuln.Affected{Ecosystem: "npm", Versions: []string{"7.0.0"},
				Ranges: affected("", "SEMVER", "introduced 0 fixed 1.0.0").Ranges}, "7.0.0 0.5.0", "1.0.0 7.0.1",
		},
		"in the second range": {
			vuln.Affected{Ecosystem: "npm",
				Ranges: append(affected("", "SEMVER", "introduced 1.0.0 fixed 1.1.0").Ranges,
					affected("", "SEMVER", "introduced 2.0.0 fixed 2.1.0").Ranges...)}, "1.0.0 2.0.0", "1.1.0 2.1.0",
		},
		"by the rules of its package URL": {
			vuln.Affected{Ecosystem: "Some Linux", PURL: "pkg:apk/some/thing",
				Ranges: affected("", "ECOSYSTEM", "introduced 0 fixed 1.1-r0").Ranges}, "1.01-r0 1.1_rc1", "1.1-r0",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := version.CheckRanges(tt.in); err != nil {
				t.Errorf("CheckRanges: %v", err)
			}
			for v := range strings.FieldsSeq(tt.yes) {
				if in, err := isAffected(tt.in, v); !in || err != nil {
					t.Errorf("%s is not affected, %v", v, err)
				}
			}
			for v := range strings.FieldsSeq(tt.not) {
				if in, err := isAffected(tt.in, v); in || err != nil {
					t.Errorf("%s is affected, %v", v, err)
				}
			}
		})
	}
}

func TestQueryIn(t *testing.T) {
	tests := map[string]struct {
		query, in string
		want      bool
	}{
		"the same ecosystem":      {"npm", "npm", true},
		"another":                 {"npm", "PyPI", false},
		"the same release":        {"Debian:12", "Debian:12", true},
		"another release":         {"Debian:12", "Debian:11", false},
		"any release, asked":      {"Debian", "Debian:11", true},
		"any release, affected":   {"Debian:12", "Debian", true},
		"a release that is a LTS": {"Ubuntu:22.04", "Ubuntu:22.04:LTS", true},
		"a number's beginning":    {"Debian:1", "Debian:12", false},
		"nothing":                 {"", "npm", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			q, err := version.NewQuery(tt.query, "1.0")
			if err != nil {
				t.Fatal(err)
			}
			if in, err := q.In(affected(tt.in, "ECOSYSTEM", "introduced 0")); in != tt.want || err != nil {
				t.Errorf("In = %v, %v, want %v", in, err, tt.want)
			}
		})
	}
	if _, err := version.NewQuery("npm", "latest"); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("a version without a place: %v, want InvalidArgument", err)
	}
}

func TestCheckRanges(t *testing.T) {
	tests := map[string]struct{ ecosystem, kind, events string }{
		"nothing introduced":   {"npm", "SEMVER", "fixed 1.0.0"},
		"no events":            {"npm", "SEMVER", ""},
		"no commit introduced": {"npm", "GIT", "fixed abc"},
		"fixed before":         {"npm", "SEMVER", "introduced 2.0.0 fixed 1.0.0"},
		"fixed at once":        {"npm", "SEMVER", "introduced 2.0.0 fixed 2.0.0"},
		"fixed at once, another time": {"npm", "SEMVER",
			"introduced 1.0.0 fixed 1.5.0 introduced 2.0.0 fixed 2.0.0"},
		"fixed at once, in other words":          {"PyPI", "ECOSYSTEM", "introduced 2.0 fixed 2"},
		"fixed before, by the ecosystem's rules": {"Debian:12", "ECOSYSTEM", "introduced 1.0 fixed 1.0~rc1"},
		"last affected before":                   {"npm", "SEMVER", "introduced 2.0.0 last 1.0.0"},
		"last affected after its fix":            {"npm", "SEMVER", "introduced 1.0.0 fixed 1.5.0 last 1.7.0"},
		"limited before":                         {"npm", "SEMVER", "introduced 2.0.0 limit 1.0.0"},
		"limited at once":                        {"npm", "SEMVER", "introduced 2.0.0 limit 2.0.0"},
		"a bound that is no version":             {"npm", "SEMVER", "introduced 0 fixed soon"},
		"a bound that is too long": {"npm", "SEMVER",
			"introduced 0 fixed 1" + strings.Repeat("0", version.MaxLength)},
		"contradictory in an ecosystem we ignore": {"Some Registry", "SEMVER", "introduced 2.0.0 fixed 1.0.0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := version.CheckRanges(affected(tt.ecosystem, tt.kind, tt.events)); !errors.Is(err,
				fault.InvalidArgument) {
				t.Errorf("error = %v, want InvalidArgument", err)
			}
		})
	}
	if err := version.CheckRanges(affected("Some Registry", "ECOSYSTEM", "introduced 2 fixed 1")); err != nil {
		t.Errorf("an order we do not know: %v", err)
	}
}

func TestParsePURL(t *testing.T) {
	tests := map[string]struct{ purl, ecosystem, name, version string }{
		"Go, with its case": {"pkg:golang/github.com/Masterminds/goutils@v1.1.0", "Go",
			"github.com/Masterminds/goutils", "v1.1.0"},
		"Go's own":          {"pkg:golang/stdlib@1.21.0", "Go", "stdlib", "1.21.0"},
		"npm":               {"pkg:npm/lodash@4.17.20", "npm", "lodash", "4.17.20"},
		"npm, with a scope": {"pkg:npm/%40babel/core@7.0.0", "npm", "@babel/core", "7.0.0"},
		"Maven": {"pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1", "Maven",
			"org.apache.logging.log4j:log4j-core", "2.14.1"},
		"PyPI, normalized": {"pkg:pypi/Django_Foo@1.0", "PyPI", "django-foo", "1.0"},
		"Rust":             {"pkg:cargo/tokio@1.0.0", "crates.io", "tokio", "1.0.0"},
		"PHP": {"pkg:composer/symfony/http-kernel@5.4", "Packagist", "symfony/http-kernel",
			"5.4"},
		"without a version": {"pkg:gem/rails", "RubyGems", "rails", ""},
		"Alpine": {"pkg:apk/alpine/curl@8.5.0-r0?arch=x86_64&distro=alpine-3.20.1", "Alpine:v3.20",
			"curl", "8.5.0-r0"},
		"Debian, by number": {"pkg:deb/debian/curl@7.88.1-10?distro=debian-12", "Debian:12", "curl",
			"7.88.1-10"},
		"Debian, by name": {"pkg:deb/debian/curl@7.88.1-10?distro=bookworm", "Debian:12", "curl",
			"7.88.1-10"},
		"Debian, any": {"pkg:deb/debian/curl@7.88.1-10", "Debian", "curl", "7.88.1-10"},
		"Ubuntu":      {"pkg:deb/ubuntu/curl@1?distro=ubuntu-22.04", "Ubuntu:22.04", "curl", "1"},
		"Red Hat": {"pkg:rpm/redhat/kernel@4.18.0-553.el8?distro=redhat-8", "Red Hat:enterprise_linux:8", "kernel",
			"4.18.0-553.el8"},
		"Rocky": {"pkg:rpm/rocky-linux/kernel@1?distro=rocky-linux-9.3", "Rocky Linux:9",
			"kernel", "1"},
		"Rocky, by its own name":    {"pkg:rpm/rocky/kernel@1?distro=rocky-9.3", "Rocky Linux:9", "kernel", "1"},
		"Alpine, by number alone":   {"pkg:apk/alpine/curl@1?distro=3.20.1", "Alpine:v3.20", "curl", "1"},
		"an unknown distribution":   {"pkg:apk/some/curl@1", "Some", "curl", "1"},
		"an unknown type":           {"pkg:thing/a/b@1", "thing", "a/b", "1"},
		"an epoch, percent-encoded": {"pkg:deb/debian/vim@2%3A9.0-1", "Debian", "vim", "2:9.0-1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ecosystem, name, v, err := version.ParsePURL(tt.purl)
			if ecosystem != tt.ecosystem || name != tt.name || v != tt.version || err != nil {
				t.Errorf("ParsePURL = %q, %q, %q, %v", ecosystem, name, v, err)
			}
		})
	}
	for _, bad := range []string{"", "lodash", "pkg:", "pkg:npm", "pkg:npm/", "npm/lodash@1", "pkg:npm/a%ZZ@1",
		"pkg:npm/a%00b", "pkg:golang/a%0ab",
		"pkg:npm/" + strings.Repeat("a", 2000)} {
		if _, _, _, err := version.ParsePURL(bad); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("ParsePURL(%.40q) = %v, want InvalidArgument", bad, err)
		}
	}
}

func TestPURLType(t *testing.T) {
	for ecosystem, want := range map[string]string{
		"Go": "golang", "crates.io": "cargo", "Debian:12": "deb", "Alpine:v3.20": "apk", "Rocky Linux:9": "rpm",
		"Some Registry": "some registry",
	} {
		if got := version.PURLType(ecosystem); got != want {
			t.Errorf("PURLType(%s) = %s, want %s", ecosystem, got, want)
		}
	}
}

func TestPURL(t *testing.T) {
	for _, want := range []struct{ ecosystem, name, purl string }{
		{"Go", "github.com/Masterminds/goutils", "pkg:golang/github.com/Masterminds/goutils"},
		{"npm", "@babel/core", "pkg:npm/%40babel/core"},
		{"Maven", "org.apache:log4j", "pkg:maven/org.apache/log4j"},
		{"Debian", "libstdc++6", "pkg:deb/debian/libstdc++6"},
		{"Rocky Linux", "kernel", "pkg:rpm/rocky-linux/kernel"},
		{"PyPI", "django", "pkg:pypi/django"},
	} {
		if got := version.PURL(want.ecosystem, want.name); got != want.purl {
			t.Errorf("PURL(%s, %s) = %s, want %s", want.ecosystem, want.name, got, want.purl)
		}
		ecosystem, name, _, err := version.ParsePURL(want.purl)
		if ecosystem != want.ecosystem || name != want.name || err != nil {
			t.Errorf("ParsePURL(%s) = %s, %s, %v", want.purl, ecosystem, name, err)
		}
	}
}

func BenchmarkQueryIn(b *testing.B) {
	for _, ecosystem := range []string{"npm", "PyPI", "Maven", "Debian", "Alpine"} {
		b.Run(ecosystem, func(b *testing.B) {
			in := affected(ecosystem, "ECOSYSTEM", "introduced 1.0.0 fixed 1.5.0 introduced 2.0.0 fixed 2.3.1")
			q, err := version.NewQuery(ecosystem, "2.1.0")
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if ok, err := q.In(in); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
