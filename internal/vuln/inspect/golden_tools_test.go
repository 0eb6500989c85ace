package inspect_test

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/inspecttest"
)

// The tests in this file compare packages with lists of the tools that have installed them: rpm, dpkg, npm, pnpm and
// Go. scripts/prepare installs the tools. Nothing is downloaded, because the tests make all packages themselves.

const toolLimit = 5 * time.Minute // maximum time of a tool

// run runs a program in a folder, and returns its standard output.
func run(t *testing.T, folder, stdin, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin = folder, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "npm_config_offline=true", "npm_config_update_notifier=false",
		"GOFLAGS=-buildvcs=false -mod=mod", "GOWORK=off", "GOPROXY=off", "CGO_ENABLED=0")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, &out, &problems)
	}
	return out.String()
}

// put writes a file, and the folders above it.
func put(t *testing.T, name, content string) {
	t.Helper()
	must(os.MkdirAll(filepath.Dir(name), 0o700))
	must(os.WriteFile(name, []byte(content), 0o600))
}

// folderLayer returns a layer with the files, symbolic links and hard links in a folder. The first name of a file that
// has several names is a file, and the others are links to it, as in the layers that image builders write.
func folderLayer(t *testing.T, folder string) []byte {
	t.Helper()
	var files []file
	names := map[uint64]string{} // first name by inode
	must(filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(folder, path)
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		must(err)
		inode := info.Sys().(*syscall.Stat_t).Ino
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			must(err)
			files = append(files, link(name, strings.TrimPrefix(target, folder)))
		case !info.Mode().IsRegular():
		case names[inode] != "":
			files = append(files, file{name: name, kind: tar.TypeLink, link: names[inode]})
		default:
			content, err := os.ReadFile(path)
			must(err)
			files = append(files, file{name: name, content: string(content), mode: int64(info.Mode().Perm())})
			names[inode] = name
		}
		return nil
	}))
	return zipped(archive(files...))
}

// checkLines compares the packages of an image, in the format that line returns, with the list of a tool. It ignores
// the order, and packages that occur several times. The list must have several packages.
func checkLines(t *testing.T, r inspect.Result, want []string, line func(inspect.Package) string) {
	t.Helper()
	var got []string
	for _, p := range r.Packages {
		got = append(got, line(p))
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" || len(want) < 3 || len(r.Warnings) > 0 {
		t.Errorf("%d packages (-tool +inspected):\n%s\nwarnings: %q", len(want), diff, r.Warnings)
	}
}

// sorted returns the different lines, in order.
func sorted(lines []string) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return line == "" })
	slices.Sort(lines)
	return slices.Compact(lines)
}

// goldenSpec describes source packages in the format of rpmbuild: one with an epoch and many large packages, and one in
// a stream of a module.
func goldenSpec(t *testing.T, folder string) (specs []string) {
	t.Helper()
	const head = "Summary: s\nLicense: l\nBuildArch: noarch\n"
	large := "Name: glibc\nEpoch: 2\nVersion: 2.34~rc1\nRelease: 100.el9_4.2\n" + head + "%description\nd\n%files\n"
	for i := range 30 {
		large += fmt.Sprintf("%%package langpack-%d\nSummary: s\n%%description langpack-%d\n%s\n%%files langpack-%d\n", i, i,
			strings.Repeat(fmt.Sprintf("words %d\n", i), 40*i*i), i)
	}
	module := "Name: php\nVersion: 8.0.30\nRelease: 1.module_el8.8.0+3611\n" +
		"ModularityLabel: php:8.0:8080020231:6c33a7e4\n" + head + "%description\nd\n%files\n"
	for name, text := range map[string]string{"glibc.spec": large, "php.spec": module} {
		put(t, filepath.Join(folder, name), text)
		specs = append(specs, filepath.Join(folder, name))
	}
	return specs
}

// TestGoldenRPM compares the packages in rpm databases with the list of rpm. rpm writes the SQLite database. db_load
// writes the Berkeley database, which rpm only reads today. Debian's rpm does not support the format of SUSE, so this
// database has the headers that rpm wrote in a file that inspecttest writes.
func TestGoldenRPM(t *testing.T) {
	rpm, folder := testprogram.Installed(t, "rpm"), t.TempDir()
	specs := goldenSpec(t, folder)
	run(t, folder, "", testprogram.Installed(t, "rpmbuild"), append([]string{"-bb", "--quiet", "--define",
		"_topdir " + folder + "/top", "--define", "_rpmdir " + folder + "/rpms"}, specs...)...)
	packages, err := filepath.Glob(folder + "/rpms/*/*.rpm")
	must(err)
	installed := filepath.Join(folder, "image/var/lib/rpm")
	must(os.MkdirAll(installed, 0o700))
	run(t, folder, "", rpm, append([]string{"--dbpath", installed, "-i", "--justdb", "--nodeps", "--nosignature",
		"--ignorearch"}, packages...)...)
	content, err := os.ReadFile(filepath.Join(installed, "rpmdb.sqlite")) // before rpm opens it again
	must(err)
	headers := rpmHeaders(t, filepath.Join(installed, "rpmdb.sqlite"))
	berkeley := filepath.Join(folder, "berkeley")
	must(os.Mkdir(berkeley, 0o700))
	old := run(t, folder, berkeleyDump(headers), testprogram.Installed(t, "db5.3_load"), berkeley+"/Packages")
	oldContent, err := os.ReadFile(berkeley + "/Packages")
	must(err)

	const format = `%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE} %{NAME} %{SOURCERPM} %{MODULARITYLABEL}\n`
	list := func(args ...string) []string {
		return strings.Split(run(t, folder, "", rpm, append(args, "-qa", "--qf", format)...), "\n")
	}
	want := list("--dbpath", installed)
	if len(want) != 33 || old != "" { // with the empty line at the end
		t.Fatalf("rpm lists %q; db_load says %q", want, old)
	}
	if got := list("--dbpath", berkeley, "--define", "_db_backend bdb_ro"); !slices.Equal(sorted(got), sorted(want)) {
		t.Fatalf("rpm reads other packages from the Berkeley database: %q", got)
	}
	for name, database := range map[string]string{
		"var/lib/rpm/rpmdb.sqlite": string(content), "usr/lib/sysimage/rpm/Packages.db": inspecttest.RPMNdbOf(headers...),
		"var/lib/rpm/Packages": string(oldContent),
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			r := inspected(t, zipped(archive(file{name: name, content: database},
				file{name: "etc/os-release", content: rockyRelease})))
			checkLines(t, r, want, func(p inspect.Package) string {
				label := "(none)"
				if strings.Contains(p.Purl, "rpmmod=php:8.0") || strings.Contains(p.Purl, "rpmmod=php%3A8.0") {
					label = "php:8.0:8080020231:6c33a7e4"
				}
				_, version, _ := strings.Cut(":"+p.Version, ":")
				if at := strings.LastIndexByte(version, ':'); at >= 0 {
					version = version[at+1:]
				}
				return fmt.Sprintf("%s %s %s-%s.src.rpm %s", p.Version, p.Name, p.SourceName, version, label)
			})
		})
	}
}

// rpmHeaders returns the headers in an rpm database.
func rpmHeaders(t *testing.T, name string) (headers [][]byte) {
	t.Helper()
	db, err := sql.Open("sqlite", name)
	must(err)
	defer func() { must(db.Close()) }()
	rows, err := db.QueryContext(t.Context(), "SELECT blob FROM Packages ORDER BY hnum")
	must(err)
	defer rows.Close()
	for rows.Next() {
		var header []byte
		must(rows.Scan(&header))
		headers = append(headers, header)
	}
	must(rows.Err())
	return headers
}

// berkeleyDump returns the input with which db_load writes an rpm database: the largest number, and the header of each
// number.
func berkeleyDump(headers [][]byte) string {
	number := func(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }
	var b strings.Builder
	b.WriteString("VERSION=3\nformat=bytevalue\ntype=hash\ndb_pagesize=4096\nHEADER=END\n")
	fmt.Fprintf(&b, " %x\n %x\n", number(0), number(len(headers)))
	for i, h := range headers {
		fmt.Fprintf(&b, " %x\n %x\n", number(i+1), h)
	}
	b.WriteString("DATA=END\n")
	return b.String()
}

// TestGoldenDpkg compares the packages that dpkg has installed with its own list, after removals and an upgrade.
func TestGoldenDpkg(t *testing.T) {
	dpkg, folder := testprogram.Installed(t, "dpkg"), t.TempDir()
	root := filepath.Join(folder, "root")
	for _, name := range []string{"info", "updates", "triggers"} {
		must(os.MkdirAll(filepath.Join(root, "var/lib/dpkg", name), 0o700))
	}
	put(t, filepath.Join(root, "var/lib/dpkg/status"), "")
	put(t, filepath.Join(root, "etc/os-release"), debianRelease)
	build := func(name, version, source string) string {
		dir := filepath.Join(folder, name+"-"+strings.ReplaceAll(version, ":", "_"))
		control := "Package: " + name + "\nVersion: " + version + "\nArchitecture: all\nMaintainer: m <m@example.test>\n" +
			"Description: d\n with a text:\n .\n Package: not-a-package\n"
		if source != "" {
			control += "Source: " + source + "\n"
		}
		put(t, filepath.Join(dir, "DEBIAN/control"), control)
		put(t, filepath.Join(dir, "etc", name+".conf"), name)
		put(t, filepath.Join(dir, "DEBIAN/conffiles"), "/etc/"+name+".conf\n")
		must(os.Chmod(filepath.Join(dir, "DEBIAN"), 0o755))
		run(t, folder, "", testprogram.Installed(t, "dpkg-deb"), "--build", dir)
		return dir + ".deb"
	}
	do := func(args ...string) {
		run(t, folder, "", dpkg, append([]string{"--root=" + root, "--log=/dev/null", "--force-not-root",
			"--force-script-chrootless", "--force-bad-path"}, args...)...)
	}
	do("-i", build("libcurl4", "7.88.1-10+b1", "curl (7.88.1-10)"), build("tzdata", "2024a-0+deb12u1", ""),
		build("libssl3", "3.0.11-1~deb12u2", "openssl"), build("bind9-libs", "1:9.18.28-1~deb12u2", "bind9"),
		build("gone", "1.0", ""), build("purged", "1.0", ""), build("unpacked", "1.0", ""))
	do("-i", build("libssl3", "3.0.14-1~deb12u2", "openssl"))
	do("--remove", "gone")
	do("--purge", "purged")
	do("--unpack", build("unpacked", "2.0", ""))
	want := strings.Split(run(t, folder, "", testprogram.Installed(t, "dpkg-query"),
		"--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W",
		"-f", "${db:Status-Status} ${Package} ${Version} ${source:Package} ${source:Version}\n"), "\n")
	want = slices.DeleteFunc(want, func(line string) bool {
		return strings.HasPrefix(line, "config-files ") || strings.HasPrefix(line, "not-installed ")
	})
	for i := range want {
		_, want[i], _ = strings.Cut(want[i], " ")
	}
	checkLines(t, inspected(t, folderLayer(t, root)), want, func(p inspect.Package) string {
		return strings.Join([]string{p.Name, p.Version, p.SourceName, p.SourceVersion}, " ")
	})
}
