package version_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// TestSameEcosystem compares the ecosystem of a package in an image with ecosystems of advisories.
func TestSameEcosystem(t *testing.T) {
	tests := map[string]struct{ same, different []string }{
		"Red Hat:enterprise_linux:9": {
			[]string{"Red Hat", "Red Hat:enterprise_linux:9", "Red Hat:enterprise_linux:9::baseos",
				"Red Hat:enterprise_linux:9.6::appstream"},
			[]string{"Red Hat:enterprise_linux:10", "Red Hat:enterprise_linux:10.0", "Red Hat:enterprise_linux:8::baseos",
				"Red Hat:jboss_enterprise_application_platform:8.0::el9", "Red Hat:rhel_eus:9.2::baseos",
				"Red Hat:openshift:4.12::el9", "Rocky Linux:9"},
		},
		"Red Hat": {
			[]string{"Red Hat:enterprise_linux:9::baseos"}, []string{"Red Hat:openshift:4.12::el9"},
		},
		"SUSE:Linux Enterprise Server 15 SP5": {
			[]string{"SUSE", "SUSE:Linux Enterprise Module for Basesystem 15 SP5",
				"SUSE:Linux Enterprise Module for Web and Scripting 15 SP5", "SUSE:Linux Enterprise Desktop 15 SP5"},
			[]string{"SUSE:Linux Enterprise Server 15 SP6", "SUSE:Linux Enterprise Module for Basesystem 15 SP6",
				"SUSE:Linux Enterprise Server 15", "SUSE:Linux Enterprise Server 15 SP5-LTSS",
				"SUSE:Linux Enterprise Live Patching 15 SP5", "SUSE:Linux Enterprise Server for SAP Applications 15 SP5",
				"SUSE:Linux Enterprise Micro 5.5", "SUSE:Manager Server 4.3", "openSUSE:Leap 15.5"},
		},
		"SUSE:Linux Enterprise Server 12 SP5": {
			[]string{"SUSE:Linux Enterprise Server 12 SP5", "SUSE:Linux Enterprise Module for Public Cloud 12",
				"SUSE:Linux Enterprise Software Development Kit 12 SP5"},
			[]string{"SUSE:Linux Enterprise Server 12 SP4", "SUSE:Linux Enterprise Server 12"},
		},
		"openSUSE:Leap 15.5": {
			[]string{"openSUSE", "openSUSE:Leap 15.5", "openSUSE:Leap NonFree 15.5"},
			[]string{"openSUSE:Leap 15.6", "openSUSE:Tumbleweed", "openSUSE:Leap Micro 5.5"},
		},
		"openSUSE:Tumbleweed": {[]string{"openSUSE:Tumbleweed"}, []string{"openSUSE:Leap 15.5"}},
		"Azure Linux:3": {
			[]string{"Azure Linux", "Azure Linux:3", "Azure Linux:3.0"}, []string{"Azure Linux:2", "CBL-Mariner:2.0"},
		},
		"Azure Linux:2": {
			[]string{"Azure Linux:2", "CBL-Mariner:2.0", "Mariner:2", "Mariner"}, []string{"Azure Linux:3"},
		},
		"Photon OS:4.0": {[]string{"Photon OS:4.0", "Photon OS:4"}, []string{"Photon OS:5.0"}},
		"openEuler:22.03-LTS-SP3": {
			[]string{"openEuler:22.03-LTS-SP3", "openEuler:22.03"},
			[]string{"openEuler:22.03-LTS", "openEuler:22.03-LTS-SP1", "openEuler:24.03-LTS"},
		},
		"Mageia:9": {[]string{"Mageia:9"}, []string{"Mageia:8"}},
		"Ubuntu:22.04": {
			[]string{"Ubuntu:22.04:LTS", "Ubuntu:22.04", "Ubuntu"},
			[]string{"Ubuntu:24.04:LTS", "Ubuntu:Pro:22.04:LTS", "Ubuntu:Pro:FIPS-updates:22.04:LTS",
				"Ubuntu:22.04:LTS:for:NVIDIA:BlueField"},
		},
		"Alpine:v3.20":  {[]string{"Alpine:v3.20", "Alpine"}, []string{"Alpine:v3.2", "Alpine:v3.19", "Alpine:edge"}},
		"Rocky Linux:9": {[]string{"Rocky Linux:9"}, []string{"Rocky Linux:10", "AlmaLinux:9"}},
		"Maven":         {[]string{"Maven", "Maven:https://repo.example.com/maven2"}, []string{"npm"}},
	}
	for ecosystem, tt := range tests {
		for _, other := range tt.same {
			if !version.SameEcosystem(ecosystem, other) || !version.SameEcosystem(other, ecosystem) {
				t.Errorf("%s and %s are not the same", ecosystem, other)
			}
		}
		for _, other := range tt.different {
			if version.SameEcosystem(ecosystem, other) || version.SameEcosystem(other, ecosystem) {
				t.Errorf("%s and %s are the same", ecosystem, other)
			}
		}
	}
}

// TestReleaseOfPURL checks the ecosystems of package URLs that are written with the ID of os-release, or by scanners.
func TestReleaseOfPURL(t *testing.T) {
	for purl, want := range map[string]string{
		"pkg:rpm/rhel/bash@5?distro=rhel-9.4":                                "Red Hat:enterprise_linux:9",
		"pkg:rpm/redhat/bash@5?distro=rhel-10.0":                             "Red Hat:enterprise_linux:10",
		"pkg:rpm/rhel/bash@5":                                                "Red Hat",
		"pkg:rpm/sles/bash@5?distro=sles-15.5":                               "SUSE:Linux Enterprise Server 15 SP5",
		"pkg:rpm/suse/bash@5?distro=sles-12.5":                               "SUSE:Linux Enterprise Server 12 SP5",
		"pkg:rpm/sles/bash@5?distro=sles-15":                                 "SUSE:Linux Enterprise Server 15",
		"pkg:rpm/sles/bash@5?distro=sles-16.0":                               "SUSE:Linux Enterprise Server 16.0",
		"pkg:rpm/sle-micro/bash@5?distro=sle-micro-5.3":                      "SUSE:Linux Enterprise Micro 5.3",
		"pkg:rpm/sl-micro/bash@5?distro=sl-micro-6.0":                        "SUSE:Linux Micro 6.0",
		"pkg:rpm/opensuse-leap/bash@5?distro=opensuse-leap-15.5":             "openSUSE:Leap 15.5",
		"pkg:rpm/opensuse/bash@5?distro=opensuse-leap-15.5":                  "openSUSE:Leap 15.5",
		"pkg:rpm/opensuse-tumbleweed/b@5?distro=opensuse-tumbleweed-2026010": "openSUSE:Tumbleweed",
		"pkg:rpm/opensuse-leap-micro/b@5?distro=opensuse-leap-micro-5.5":     "openSUSE:Leap Micro 5.5",
		"pkg:rpm/mariner/bash@5?distro=mariner-2.0.20240301":                 "Azure Linux:2",
		"pkg:rpm/azurelinux/bash@5?distro=azurelinux-3.0":                    "Azure Linux:3",
		"pkg:rpm/photon/bash@5?distro=photon-4.0":                            "Photon OS:4.0",
		"pkg:rpm/openeuler/bash@5?distro=openeuler-22.03-LTS-SP3":            "openEuler:22.03-LTS-SP3",
		"pkg:rpm/mageia/bash@5?distro=mageia-9":                              "Mageia:9",
		"pkg:apk/chainguard/curl@8":                                          "Chainguard",
		"pkg:apk/wolfi/curl@8?distro=wolfi-20230201":                         "Wolfi",
		"pkg:deb/ubuntu/curl@8?distro=ubuntu-24.04":                          "Ubuntu:24.04",
	} {
		if got, _, _, err := version.ParsePURL(purl); got != want || err != nil {
			t.Errorf("ParsePURL(%s) = %q, %v, want %q", purl, got, err, want)
		}
	}
}

// TestPackageQuery checks that the type of a package URL orders the versions of an unknown distribution.
func TestPackageQuery(t *testing.T) {
	q, err := version.NewPackageQuery("Some", "pkg:apk/some/thing@1.2-r0", "1.2-r0")
	if err != nil {
		t.Fatal(err)
	}
	for fixed, want := range map[string]bool{"1.10-r0": true, "1.2-r0": false} {
		if in, err := q.In(affected("Some", "ECOSYSTEM", "introduced 0 fixed "+fixed)); in != want || err != nil {
			t.Errorf("fixed in %s: affected = %v, %v", fixed, in, err)
		}
	}
}
