package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// installed lists the files that the packages must install, with their modes, by program.
var installed = map[*program]map[string]string{
	&server: {
		"/usr/bin/holdfastd":                        "-rwxr-xr-x",
		"/usr/lib/systemd/system/holdfastd.service": "-rw-r--r--",
		"/usr/lib/sysusers.d/holdfast.conf":         "-rw-r--r--",
		"/etc/holdfast/holdfastd.yaml":              "-rw-r-----",
		"/etc/holdfast/holdfastd.env":               "-rw-r-----",
		"/usr/share/man/man8/holdfastd.8.gz":        "-rw-r--r--",
		"/usr/share/doc/holdfastd/copyright":        "-rw-r--r--",
		"/usr/share/doc/holdfastd/sbom.cdx.json":    "-rw-r--r--",
	},
	&client: {
		"/usr/bin/holdfast": "-rwxr-xr-x",
		"/usr/share/man/man1/holdfast-iam-groups-create.1.gz": "-rw-r--r--",
		"/usr/share/bash-completion/completions/holdfast":     "-rw-r--r--",
		"/usr/share/fish/vendor_completions.d/holdfast.fish":  "-rw-r--r--",
		"/usr/share/doc/holdfast/THIRD-PARTY-LICENSES":        "-rw-r--r--",
	},
}

// unpackDeb unpacks a package with dpkg and returns the folder.
func unpackDeb(t *testing.T, file string) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	dir := t.TempDir()
	if _, err := output(exec.CommandContext(t.Context(), "dpkg-deb", "--raw-extract", file, dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDeb(t *testing.T) {
	m := released(t)
	for p, want := range installed {
		file := m.one(t, p.name+"_*_"+here.arch+".deb")
		dir := unpackDeb(t, file)
		for path, mode := range want {
			info, err := os.Stat(filepath.Join(dir, path))
			if err != nil || info.Mode().String() != mode || info.Size() == 0 {
				t.Errorf("%s: %v, want mode %s (%v)", path, info, mode, err)
			}
		}
		if p.name == client.name {
			if to, err := os.Readlink(filepath.Join(dir, "usr/bin/docker-credential-holdfast")); to != "holdfast" {
				t.Errorf("Docker's name for the client leads to %q (%v)", to, err)
			}
			continue
		}
		conffiles, err := os.ReadFile(filepath.Join(dir, "DEBIAN/conffiles"))
		if err != nil || string(conffiles) != "/etc/holdfast/holdfastd.env\n/etc/holdfast/holdfastd.yaml\n" {
			t.Errorf("conffiles are %s (%v)", conffiles, err)
		}
	}
}

func TestRPM(t *testing.T) {
	m := released(t)
	for p, want := range installed {
		f, err := os.Open(m.one(t, p.name+"-*.rpm"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		rpm, err := rpmutils.ReadRpm(f)
		if err != nil {
			t.Fatal(err)
		}
		files, err := rpm.Header.GetFiles()
		if err != nil {
			t.Fatal(err)
		}
		modes := map[string]string{}
		for _, file := range files {
			modes[file.Name()] = os.FileMode(file.Mode() & 0o777).String()
			if file.UserName() != "root" || file.GroupName() != "root" {
				t.Errorf("%s belongs to %s:%s", file.Name(), file.UserName(), file.GroupName())
			}
			config := file.Flags()&rpmutils.RPMFILE_CONFIG != 0
			if config != strings.HasPrefix(file.Name(), "/etc/holdfast/") {
				t.Errorf("%s: config is %v", file.Name(), config)
			}
		}
		for path, mode := range want {
			if modes[path] != mode {
				t.Errorf("%s has mode %q, want %s", path, modes[path], mode)
			}
		}
		if host, err := rpm.Header.GetString(rpmutils.BUILDHOST); host != "holdfast" {
			t.Errorf("built on %q (%v)", host, err)
		}
	}
}

// TestPackagedServer starts the server of the package with the settings of the package,
// in which only the folder and the port are replaced.
func TestPackagedServer(t *testing.T) {
	dir := unpackDeb(t, released(t).one(t, "holdfastd_*_"+here.arch+".deb"))
	data, address := filepath.Join(dir, "var/lib/holdfast"), freeAddress(t)
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "etc/holdfast/holdfastd.yaml")
	settings, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(settings), "\ndata_dir: /var/lib/holdfast\n", "\ndata_dir: "+data+"\n")
	text = strings.ReplaceAll(text, "\nlisten: 127.0.0.1:8080\n", "\nlisten: "+address+"\n")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "usr/bin/holdfastd")
	// The test's cleanup stops the server.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "--config", path)
	cmd.Env, cmd.Dir = []string{}, data
	if said := start(t, cmd, address); !strings.Contains(said.String(), "http://"+address) {
		t.Errorf("no link to set it up:\n%s", said)
	}
	// The command uses the control socket of the server.
	keys := exec.CommandContext(t.Context(), binary, "keys", "list", "--config", path)
	keys.Env = []string{}
	if out, err := keys.CombinedOutput(); err != nil {
		t.Errorf("keys list: %v\n%s", err, out)
	}
	for _, name := range []string{"holdfast.db", "holdfast.key", "control.sock"} {
		if info, err := os.Stat(filepath.Join(data, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v (%v)", name, info, err)
		}
	}
}

// TestSettingsFile checks that every setting in the file and in the environment file can
// be set.
func TestSettingsFile(t *testing.T) {
	help, err := released(t).ask(t.Context(), server, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#?([a-z0-9_]+): `).FindAllSubmatch(packagedFile("holdfastd.yaml"), -1) {
		if !strings.Contains(help, "(HOLDFAST_"+strings.ToUpper(string(m[1]))+")") {
			t.Errorf("holdfastd.yaml shows %s, which --help does not list", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^#?(HOLDFAST_\w+)=`).FindAllSubmatch(packagedFile("holdfastd.env"), -1) {
		if !strings.Contains(help, string(m[1])) {
			t.Errorf("holdfastd.env shows %s, which --help does not list", m[1])
		}
	}
}

const mostExposure = 20 // maximum exposure level in tenths; systemd rates levels up to 5.0 as "OK"

// TestUnit lets systemd verify the unit, and rate how much of the system a compromised
// server could reach.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd is not installed")
	}
	const unit = "packaged/holdfastd.service"
	security := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--no-pager", "--offline=true",
		fmt.Sprintf("--threshold=%d", mostExposure), unit)
	if out, err := security.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// verify reports the program and the manual page as missing, because they are not
	// installed on this machine.
	verify := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit)
	out, _ := verify.CombinedOutput()
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(out)), "\n"), func(line string) bool {
		return !strings.Contains(line, "holdfastd.service") ||
			strings.Contains(line, "/usr/bin/holdfastd is not executable")
	})
	if len(lines) > 0 {
		t.Errorf("systemd-analyze verify: %s", strings.Join(lines, "\n"))
	}
}

func TestPackageVersions(t *testing.T) {
	tests := map[string]string{ // the version, prerelease and metadata in packages, by version
		"v1.2.3":           "1.2.3",
		"v1.2.3-rc.1":      "1.2.3 rc.1",
		"v1.2.3-0.20-ab":   "1.2.3 0.20.ab",
		"v1.2.3-rc.1+deep": "1.2.3 rc.1 deep",
	}
	for version, want := range tests {
		info := describePackage(source{version: version}, server, "amd64")
		got := strings.TrimSpace(info.Version + " " + info.Prerelease + " " + info.VersionMetadata)
		if got != want {
			t.Errorf("%s becomes %q, want %q", version, got, want)
		}
	}
}
