package vuln_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

func TestRelate(t *testing.T) {
	t.Parallel()
	type relations struct{ Same, Fixes []string }
	type names []string
	for _, tt := range []struct {
		id                         string
		aliases, upstream, related names
		want                       relations
	}{
		{"ALSA-2025:2627", nil, nil, names{"CVE-2023-52605", "CVE-2024-50264"},
			relations{nil, names{"CVE-2023-52605", "CVE-2024-50264"}}},
		{"ALSA-2025:1", nil, nil, nil, relations{}},
		{"RHSA-2025:1", nil, names{"CVE-2025-1", "CVE-2025-2"}, names{"CVE-2025-9"},
			relations{nil, names{"CVE-2025-1", "CVE-2025-2"}}},
		{"RLSA-2025:1", names{"RHSA-2025:1"}, nil, names{"CVE-2025-1", "RLSA-2025:2"},
			relations{names{"RHSA-2025:1"}, names{"CVE-2025-1"}}},
		{"ELSA-2025-1", names{"CVE-2025-1"}, nil, nil, relations{nil, names{"CVE-2025-1"}}},
		{"SUSE-SU-2025:1-1", nil, names{"CVE-2025-1"}, names{"CVE-2025-1"}, relations{nil, names{"CVE-2025-1"}}},
		{"openSUSE-SU-2025:1-1", nil, nil, names{"CVE-2025-1"}, relations{nil, names{"CVE-2025-1"}}},
		{"MGASA-2025-1", nil, names{"CVE-2025-1", "GHSA-1"}, nil, relations{nil, names{"CVE-2025-1"}}},
		{"DSA-5000-1", names{"CVE-2025-1", "CVE-2025-2"}, nil, nil, relations{nil, names{"CVE-2025-1", "CVE-2025-2"}}},
		{"DLA-1-1", nil, names{"DEBIAN-CVE-2025-1", "CVE-2025-1"}, nil, relations{nil, names{"CVE-2025-1"}}},
		{"USN-1-1", nil, names{"CVE-2025-1", "UBUNTU-CVE-2025-1", "UBUNTU-CVE-2025-2"}, names{"USN-2-1"},
			relations{nil, names{"CVE-2025-1", "CVE-2025-2"}}},
		{"USN-2-1", nil, names{"GHSA-1", "USN-1-1"}, nil, relations{nil, names{"GHSA-1"}}},
		{"ALBA-2025:1", nil, nil, names{"CVE-2025-1"}, relations{nil, names{"CVE-2025-1"}}},
		{"DEBIAN-CVE-2025-1", nil, names{"CVE-2025-1"}, names{"DSA-1-1"}, relations{names{"CVE-2025-1"}, nil}},
		{"UBUNTU-CVE-2025-1", nil, nil, names{"USN-1-1"}, relations{names{"CVE-2025-1"}, nil}},
		{"CGA-1", nil, names{"CVE-2025-1", "GHSA-1"}, nil, relations{names{"CVE-2025-1", "GHSA-1"}, nil}},
		{"CGA-2", nil, names{"CVE-2025-1", "CVE-2025-2"}, nil, relations{nil, names{"CVE-2025-1", "CVE-2025-2"}}},
		{"GO-2025-1", names{"CVE-2025-1", "GHSA-1"}, nil, names{"CVE-2025-9"},
			relations{names{"CVE-2025-1", "GHSA-1"}, nil}},
		{"GHSA-1", names{"CVE-2025-1"}, names{"CVE-2025-1"}, nil, relations{names{"CVE-2025-1"}, nil}},
		{"X-1", names{"Y-1", "CVE-2025-1"}, names{"CVE-2025-2"}, nil,
			relations{names{"Y-1"}, names{"CVE-2025-1", "CVE-2025-2"}}},
		{"X-2", nil, names{"GHSA-1"}, nil, relations{nil, names{"GHSA-1"}}},
	} {
		same, fixes := vuln.Relate(tt.id, tt.aliases, tt.upstream, tt.related)
		if diff := cmp.Diff(tt.want, relations{same, fixes}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", tt.id, diff)
		}
		// The stored form has all names in one list.
		gotSame, gotFixes := vuln.SplitRelations(tt.id, vuln.JoinRelations(same, fixes), fixes)
		if diff := cmp.Diff(relations{same, fixes}, relations{gotSame, gotFixes}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s is stored as something else: %s", tt.id, diff)
		}
	}
}

// TestSplitOldRelations checks that the CVEs of a distribution's advisory count as fixed even if an earlier version has
// stored them as aliases.
func TestSplitOldRelations(t *testing.T) {
	t.Parallel()
	for id, want := range map[string][2][]string{
		"ALSA-2025:2627":   {{"X-1"}, {"CVE-2025-1", "CVE-2025-2"}},
		"openSUSE-SU-2025": {{"X-1"}, {"CVE-2025-1", "CVE-2025-2"}},
		"GHSA-1":           {{"CVE-2025-1", "X-1", "CVE-2025-2"}, nil},
	} {
		aliases, fixes := vuln.SplitRelations(id, []string{"CVE-2025-1", "X-1", "CVE-2025-2"}, nil)
		if diff := cmp.Diff(want, [2][]string{aliases, fixes}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
}

func TestVulnerabilities(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a    vuln.Advisory
		want [][]string
	}{
		"a record has all its names": {vuln.Advisory{ID: "GHSA-1", Aliases: []string{"CVE-1"}, LegacyID: "X-1"},
			[][]string{{"GHSA-1", "CVE-1", "X-1"}}},
		"an advisory describes each vulnerability that it fixes": {
			vuln.Advisory{ID: "ALSA-1", Aliases: []string{"RHSA-1"}, Fixes: []string{"CVE-1", "CVE-2"}},
			[][]string{{"CVE-1"}, {"CVE-2"}}},
		"an advisory without a CVE represents itself": {vuln.Advisory{ID: "ALSA-1"}, [][]string{{"ALSA-1"}}},
		"an advisory about bugs describes none":       {vuln.Advisory{ID: "RHBA-1", Fixes: []string{"CVE-1"}}, nil},
	} {
		if diff := cmp.Diff(tt.want, tt.a.Vulnerabilities()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTitleOf(t *testing.T) {
	t.Parallel()
	a := vuln.Advisory{Details: "Text.\n\nSecurity Fix(es):\n\n  * kernel: ACPI: a fix (CVE-2023-52605)\n" +
		"  * kernel: vsock (CVE-2024-50264)\n* no name\nCVE-2024-1"}
	for name, want := range map[string]string{
		"CVE-2023-52605": "kernel: ACPI: a fix", "CVE-2024-50264": "kernel: vsock", "CVE-2024-5026": "", "CVE-2024-1": "",
	} {
		if got := a.TitleOf(name); got != want {
			t.Errorf("title of %s = %q, want %q", name, got, want)
		}
	}
}
