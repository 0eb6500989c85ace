package vuln

import (
	"regexp"
	"slices"
	"strings"
)

// An advisory has two relations to vulnerabilities. Its aliases are other names of the same vulnerability. An advisory
// of a distribution instead fixes vulnerabilities, often several that have nothing in common. Its ID is not the name of
// any of them. An advisory that fixes no named vulnerability represents a vulnerability of its own.

// distributionPrefixes are the prefixes of IDs of security advisories that fix any number of CVEs. The letters may have
// any case.
var distributionPrefixes = []string{
	"ALSA-", "RHSA-", "RLSA-", "RXSA-", "ELSA-", "CESA-", "OVMSA-", "SUSE-SU-", "openSUSE-SU-", "MGASA-", "DSA-", "DLA-",
	"DTSA-", "ELA-", "USN-", "LSN-", "OESA-", "ALAS", "PHSA-", "GLSA-", "FEDORA-", "ASA-",
}

// bugFixPrefixes are the prefixes of IDs of advisories about bugs and enhancements, which are not security advisories.
var bugFixPrefixes = []string{
	"ALBA-", "ALEA-", "RHBA-", "RHEA-", "RLBA-", "RLEA-", "ELBA-", "ELEA-", "CEBA-", "CEEA-", "SUSE-RU-", "SUSE-FU-",
	"SUSE-OU-", "openSUSE-RU-", "openSUSE-FU-", "openSUSE-OU-", "MGAA-",
}

// trackerPrefixes are the prefixes of IDs of records that are each about one vulnerability in a distribution.
var trackerPrefixes = []string{"CGA-", "MINI-", "ECHO-", "AZL-", "ROOT-"}

// distributionCVE matches the ID of a distribution's record about one CVE, such as DEBIAN-CVE-2026-1000.
var distributionCVE = regexp.MustCompile(`^[A-Za-z]+-(CVE-\d+-\d+)$`)

func hasPrefix(id string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return len(id) >= len(prefix) && strings.EqualFold(id[:len(prefix)], prefix)
	})
}

// IsCVE reports whether a name has the form of the ID of a CVE.
func IsCVE(name string) bool { return strings.HasPrefix(name, "CVE-") }

// IsBugFix reports whether an ID belongs to an advisory about bugs or enhancements. Such an advisory is not about a
// vulnerability.
func IsBugFix(id string) bool { return hasPrefix(id, bugFixPrefixes) }

// isDistribution reports whether an ID belongs to an advisory of a distribution that fixes any number of CVEs.
func isDistribution(id string) bool { return hasPrefix(id, distributionPrefixes) || IsBugFix(id) }

// bareCVE returns the CVE in an ID such as DEBIAN-CVE-2026-1000, or the name itself.
func bareCVE(name string) string {
	if m := distributionCVE.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name
}

// Relate derives the relations of a record from its ID and from the fields of OSV with these names. The result depends
// on the source of the record, because sources use the fields in different ways:
//
//   - An advisory of a distribution fixes the CVEs in aliases and upstream or, if there are none, in related.
//   - A distribution's record about one CVE, such as DEBIAN-CVE-2026-1000, is the same as this CVE.
//   - Any other record is the same as its aliases, and fixes the vulnerabilities in upstream. Its field related names
//     other vulnerabilities.
func Relate(id string, aliases, upstream, related []string) (same, fixes []string) {
	if isDistribution(id) {
		aliased, rest := splitCVEs(aliases)
		fixed, otherNames := splitCVEs(upstream)
		if fixes = add(aliased, fixed...); len(fixes) == 0 {
			fixes, _ = splitCVEs(related)
		}
		if len(fixes) == 0 {
			fixes = slices.DeleteFunc(otherNames, isDistribution)
		}
		return rest, fixes
	}
	fixed, otherNames := splitCVEs(upstream)
	if isTracker := hasPrefix(id, trackerPrefixes) || bareCVE(id) != id; isTracker && len(fixed) <= 1 {
		same = add(add(slices.Clone(aliases), fixed...), otherNames...)
		if cve := bareCVE(id); cve != id {
			same = add(same, cve)
		}
		return same, nil
	}
	if len(fixed) == 0 {
		fixed = otherNames
	}
	for _, name := range fixed {
		if !slices.Contains(aliases, name) {
			fixes = append(fixes, name)
		}
	}
	if len(fixes) == 0 {
		return aliases, nil
	}
	aliased, rest := splitCVEs(aliases)
	return rest, add(aliased, fixes...)
}

// splitCVEs splits names into CVEs, without the name of a distribution, and all other names. Each occurs once.
func splitCVEs(names []string) (cves, others []string) {
	for _, name := range names {
		if cve := bareCVE(name); IsCVE(cve) {
			cves = add(cves, cve)
		} else {
			others = add(others, name)
		}
	}
	return cves, others
}

// add appends those names that the list does not contain.
func add(list []string, names ...string) []string {
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// JoinRelations returns the names of both relations in one list, in the stored form.
func JoinRelations(aliases, fixes []string) []string {
	return add(slices.Clip(slices.Clone(aliases)), fixes...)
}

// SplitRelations splits stored names into the aliases of an advisory and the vulnerabilities that it fixes. fixes are
// the names that are known to be fixed. Versions before the relations were separate stored none of them, and the
// previous version still does. So the CVEs of an advisory of a distribution always count as fixed.
func SplitRelations(id string, names, fixes []string) (aliases, fixed []string) {
	if len(fixes) == 0 && !isDistribution(id) {
		return names, nil
	}
	fixed = slices.Clone(fixes)
	for _, name := range names {
		switch {
		case slices.Contains(fixes, name):
		case isDistribution(id) && IsCVE(name):
			fixed = append(fixed, name)
		default:
			aliases = append(aliases, name)
		}
	}
	return aliases, fixed
}

// Vulnerabilities returns the names of each vulnerability that an advisory describes. An advisory that fixes
// vulnerabilities describes each of them. Any other advisory describes one, which has the advisory's ID and its aliases
// as names. An advisory about bugs describes none.
func (a Advisory) Vulnerabilities() [][]string { return Vulnerabilities(a.OwnNames(), a.Fixes) }

// OwnNames returns the ID, the aliases and the legacy ID of an advisory.
func (a Advisory) OwnNames() []string {
	names := append([]string{a.ID}, a.Aliases...)
	if a.LegacyID != "" {
		names = append(names, a.LegacyID)
	}
	return names
}

// maxTitle is the maximum number of bytes in a title that is found in the details of an advisory.
const maxTitle = 512

// TitleOf returns the title that the details of an advisory give to a vulnerability that it fixes, or "". Red Hat and
// distributions that are built from it list vulnerabilities as "* package: title (CVE-2026-1000)".
func (a Advisory) TitleOf(name string) string {
	for line := range strings.SplitSeq(a.Details, "\n") {
		title, ok := strings.CutPrefix(strings.TrimSpace(line), "* ")
		if !ok {
			continue
		}
		title, ok = strings.CutSuffix(title, "("+name+")")
		if title = strings.TrimSpace(title); ok && len(title) <= maxTitle {
			return title
		}
	}
	return ""
}

// Vulnerabilities returns the names of each vulnerability that an advisory describes. names are the ID of the advisory
// and its other names, and fixes are the vulnerabilities that it fixes.
func Vulnerabilities(names, fixes []string) (vulnerabilities [][]string) {
	if IsBugFix(names[0]) {
		return nil
	}
	if len(fixes) == 0 {
		return [][]string{names}
	}
	for _, name := range fixes {
		vulnerabilities = append(vulnerabilities, []string{name})
	}
	return vulnerabilities
}
