package inspect_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/inspecttest"
)

// TestEcosystems checks that os-release decides the ecosystem of packages, with the release as OSV spells it.
func TestEcosystems(t *testing.T) {
	for _, tt := range []struct{ want, release string }{
		{"Red Hat:enterprise_linux:9", "ID=\"rhel\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"9.4\"\n"},
		{"Red Hat:enterprise_linux:10", "ID=\"rhel\"\nVERSION_ID=\"10.0\"\n"},
		{"SUSE:Linux Enterprise Server 15 SP5", "ID=\"sles\"\nVERSION=\"15-SP5\"\nVERSION_ID=\"15.5\"\n"},
		{"openSUSE:Leap 15.6", "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\nVERSION_ID=\"15.6\"\n"},
		{"openSUSE:Tumbleweed", "ID=\"opensuse-tumbleweed\"\nVERSION_ID=\"20260101\"\n"},
		{"Azure Linux:2", "ID=mariner\nVERSION_ID=\"2.0\"\n"},
		{"Azure Linux:3", "ID=azurelinux\nVERSION_ID=\"3.0\"\n"},
		{"Photon OS:4.0", "ID=photon\nVERSION_ID=4.0\n"},
		{"openEuler:22.03-LTS-SP3",
			"ID=\"openEuler\"\nVERSION_ID=\"22.03\"\nPRETTY_NAME=\"openEuler 22.03 (LTS-SP3)\"\n"},
		{"Mageia:9", "ID=mageia\nVERSION_ID=9\n"},
		{"AlmaLinux:9", "ID=\"almalinux\"\nVERSION_ID=\"9.6\"\n"},
		{"Fedora", "ID=fedora\nVERSION_ID=42\n"},
		{"Chainguard", "ID=chainguard\nVERSION_ID=\"20230214\"\nPRETTY_NAME=\"Chainguard\"\n"},
	} {
		want, release := tt.want, tt.release
		database := file{name: "var/lib/rpm/rpmdb.sqlite", content: inspecttest.RPMSqlite(t, rpms()...)}
		if want == "Chainguard" {
			database = file{name: "usr/lib/apk/db/installed", content: apkInstalled}
		}
		r := inspected(t, zipped(archive(database, file{name: "etc/os-release", content: release})))
		if len(r.Packages) == 0 || r.Packages[0].Ecosystem != want {
			t.Errorf("%q: packages = %+v, want %s", release, r.Packages, want)
		}
	}
}

// TestModuleStream checks that the package URL of an rpm contains its module and stream.
func TestModuleStream(t *testing.T) {
	database := inspecttest.RPMSqlite(t, inspecttest.RPM{Name: "php", Version: "8.1.27",
		Release: "1.module_el9.3.0+53+44872dd1", Source: "php-8.1.27-1.src.rpm", Module: "php:8.1:9030020240101:rhel9"})
	r := inspected(t, zipped(archive(file{name: "var/lib/rpm/rpmdb.sqlite", content: database},
		file{name: "etc/os-release", content: "ID=almalinux\nVERSION_ID=9.3\n"})))
	const want = "pkg:rpm/almalinux/php@8.1.27-1.module_el9.3.0%2B53%2B44872dd1?" +
		"arch=x86_64&distro=almalinux-9.3&rpmmod=php:8.1"
	if len(r.Packages) != 1 || r.Packages[0].Purl != want {
		t.Errorf("packages = %+v, want %s", r.Packages, want)
	}
}
