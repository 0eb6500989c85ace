package inspect_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/inspecttest"
)

const alpineRelease = `NAME="Alpine Linux"
ID=alpine
VERSION_ID=3.20.3
PRETTY_NAME="Alpine Linux v3.20"
`

const apkInstalled = `C:Q1abc
P:libcrypto3
V:3.3.2-r0
A:x86_64
o:openssl
F:lib
R:libcrypto.so.3

P:py3-requests
V:2.32.3-r0
A:x86_64
F:usr/lib/python3.12/site-packages/requests-2.32.3.dist-info
R:METADATA

P:musl
V:1.2.5-r0
A:x86_64
o:musl

`

const rockyRelease = "ID='rocky'\nVERSION_ID=\"9.4\"\nNAME=\"Rocky Linux\"\nVERSION=\"9.4 (Blue Onyx)\"\n"

// A golden is an image with a line for each of its packages: ecosystem, name, version, source package and its version,
// layer, location, and the owner if there is one.
type golden struct {
	distribution string
	layers       [][]file
	want         []string
}

var goldens = map[string]golden{
	"Debian": {"debian 12 Debian GNU/Linux 12 (bookworm)", [][]file{
		{{name: "usr/lib/os-release", content: debianRelease}, link("etc/os-release", "../usr/lib/os-release"),
			{name: "var/lib/dpkg/status", content: status("libc6", "2.36-9", "glibc")}},
		{{name: "var/lib/dpkg/status", content: status("libc6", "2.36-9", "glibc") +
			status("python3-requests", "2.28.1+dfsg-1", "requests") + status("libcurl4", "7.88.1-10+b1", "curl (7.88.1-10)") +
			"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"},
			{name: "var/lib/dpkg/info/python3-requests.list", content: "/.\n/usr\n/usr/lib\n" +
				"/usr/lib/python3/dist-packages/requests-2.28.1.egg-info\n" +
				"/usr/lib/python3/dist-packages/requests-2.28.1.egg-info/PKG-INFO\n/usr/lib/node_modules/npm/package.json\n"},
			{name: "usr/lib/python3/dist-packages/requests-2.28.1.egg-info/PKG-INFO", content: wheel("requests", "2.28.1")},
			{name: "usr/lib/node_modules/npm/package.json", content: node("npm", "9.0.0")}},
		{{name: "usr/lib/node_modules/npm/package.json", content: node("npm", "10.0.0")},
			{name: "usr/local/lib/python3.11/site-packages/Flask_Login-0.6.3.dist-info/METADATA",
				content: wheel("Flask_Login", "0.6.3")}},
	}, []string{
		"Debian:12 libc6 2.36-9 glibc 2.36-9 layer 0 var/lib/dpkg/status",
		"Debian:12 libcurl4 7.88.1-10+b1 curl 7.88.1-10 layer 1 var/lib/dpkg/status",
		"Debian:12 python3-requests 2.28.1+dfsg-1 requests 2.28.1+dfsg-1 layer 1 var/lib/dpkg/status",
		"PyPI flask-login 0.6.3   layer 2 usr/local/lib/python3.11/site-packages/Flask_Login-0.6.3.dist-info/METADATA",
		"PyPI requests 2.28.1   layer 1 usr/lib/python3/dist-packages/requests-2.28.1.egg-info/PKG-INFO " +
			"of pkg:deb/debian/python3-requests@2.28.1%2Bdfsg-1?arch=amd64&distro=debian-12",
		"npm npm 10.0.0   layer 2 usr/lib/node_modules/npm/package.json",
	}},
	"without a package manager": {"debian 12 Debian GNU/Linux 12 (bookworm)", [][]file{{
		{name: "etc/os-release", content: debianRelease},
		{name: "var/lib/dpkg/status.d/libssl3",
			content: "Package: libssl3\nVersion: 3.0.11-1~deb12u2\nSource: openssl\nArchitecture: amd64\n"},
		{name: "var/lib/dpkg/status.d/libssl3.md5sums", content: "0123  usr/lib/x/node_modules/a/package.json\n"},
		{name: "usr/lib/x/node_modules/a/package.json", content: node("a", "1.0.0")},
	}}, []string{
		"Debian:12 libssl3 3.0.11-1~deb12u2 openssl 3.0.11-1~deb12u2 layer 0 var/lib/dpkg/status.d/libssl3",
		"npm a 1.0.0   layer 0 usr/lib/x/node_modules/a/package.json " +
			"of pkg:deb/debian/libssl3@3.0.11-1~deb12u2?arch=amd64&distro=debian-12",
	}},
	"Alpine": {"alpine 3.20.3 Alpine Linux v3.20", [][]file{{
		{name: "usr/lib/python3.12/site-packages/requests-2.32.3.dist-info/METADATA", content: wheel("requests", "2.32.3")},
		{name: "lib/apk/db/installed", content: apkInstalled},
		{name: "etc/os-release", content: alpineRelease},
	}}, []string{
		"Alpine:v3.20 libcrypto3 3.3.2-r0 openssl 3.3.2-r0 layer 0 lib/apk/db/installed",
		"Alpine:v3.20 musl 1.2.5-r0 musl 1.2.5-r0 layer 0 lib/apk/db/installed",
		"Alpine:v3.20 py3-requests 2.32.3-r0 py3-requests 2.32.3-r0 layer 0 lib/apk/db/installed",
		"PyPI requests 2.32.3   layer 0 usr/lib/python3.12/site-packages/requests-2.32.3.dist-info/METADATA " +
			"of pkg:apk/alpine/py3-requests@2.32.3-r0?arch=x86_64&distro=alpine-3.20.3",
	}},
	"Arch Linux": {"arch  Arch Linux", [][]file{{
		{name: "usr/lib/os-release", content: "ID=arch\nPRETTY_NAME=\"Arch Linux\"\n"},
		{name: "var/lib/pacman/local/npm-10.8.0-1/desc", content: "%NAME%\nnpm\n\n%VERSION%\n10.8.0-1\n\n"},
		{name: "var/lib/pacman/local/npm-10.8.0-1/files", content: "%FILES%\nusr/\nusr/lib/node_modules/npm/package.json\n"},
		{name: "usr/lib/node_modules/npm/package.json", content: node("npm", "10.8.0")},
	}}, []string{
		"Arch npm 10.8.0-1   layer 0 var/lib/pacman/local/npm-10.8.0-1/desc",
		"npm npm 10.8.0   layer 0 usr/lib/node_modules/npm/package.json of pkg:alpm/arch/npm@10.8.0-1",
	}},
	"the store of pnpm before node_modules": {"  ", [][]file{{
		{name: "a-store/v10/files/0a/1b", content: node("left", "1.2.3")},
		{name: "app/node_modules/.pnpm/left@1.2.3/node_modules/left/package.json", kind: tar.TypeLink,
			link: "a-store/v10/files/0a/1b"},
		link("app/node_modules/left", ".pnpm/left@1.2.3/node_modules/left"),
		{name: "a-store/v10/files/0a/2c", content: node("unlinked", "1.0.0")},
	}}, []string{
		"npm left 1.2.3   layer 0 app/node_modules/.pnpm/left@1.2.3/node_modules/left/package.json",
	}},
	"links out of node_modules": {"  ", [][]file{{
		{name: "lib/shared/package.json", content: node("shared", "2.0.0")},
		{name: "lib/scoped/package.json", content: node("@me/scoped", "3.0.0")},
		{name: "lib/other/package.json", content: node("other", "4.0.0")},
		link("srv/very/deep/folder/app/node_modules/shared", "../../../../../../lib/shared"),
		link("srv/very/deep/folder/app/node_modules/@me/scoped", "/lib/scoped"),
		link("srv/other", "../lib/other"),
	}}, []string{
		"npm @me/scoped 3.0.0   layer 0 lib/scoped/package.json",
		"npm shared 2.0.0   layer 0 lib/shared/package.json",
	}},
	"languages": {"  ", [][]file{{
		{name: "app/node_modules/@scope/pkg/package.json", content: node("@scope/pkg", "1.2.3")},
		{name: "app/node_modules/lodash/package.json", content: node("lodash", "4.17.20")},
		{name: "app/node_modules/lodash/test/fixture/package.json", content: node("fixture", "0.0.1")},
		{name: "app/package.json", content: node("app", "1.0.0")},
		{name: "usr/lib/ruby/gems/3.1.0/specifications/rack-2.2.4.gemspec", content: "Gem::Specification.new do |s|\n" +
			"  s.name = \"rack\".freeze\n  s.version = \"2.2.4\"\nend\n"},
		{name: "app/vendor/composer/installed.json",
			content: `{"packages":[{"name":"Monolog/Monolog","version":"v2.9.1"}]}`},
		{name: "old/vendor/composer/installed.json", content: `[{"name":"twig/twig","version":"1.44.0"}]`},
		{name: "app/App.deps.json", content: dotnet},
		{name: "opt/conda/conda-meta/numpy-1.26.4-py311.json", content: `{"name":"numpy","version":"1.26.4"}`},
		{name: "app/log4j-core-2.14.1.jar", content: jar("META-INF/maven/org.apache.logging.log4j/log4j-core/pom.properties",
			"groupId=org.apache.logging.log4j\nartifactId=log4j-core\nversion=2.14.1\n")},
		{name: "app/fat.war", content: jar("WEB-INF/lib/inner.jar", jar("META-INF/maven/g/inner/pom.properties",
			"groupId=com.example\nartifactId=inner\nversion=1.0\n"))},
		{name: "usr/bin/a-tool", mode: 0o755, content: "#!/bin/sh\n"},
		{name: "usr/bin/tool", mode: 0o755, content: rust(`{"packages":[` +
			`{"name":"ring","version":"0.16.20","source":"crates.io"},` +
			`{"name":"cc","version":"1.0.0","source":"crates.io","kind":"build"}]}`)},
		{name: "usr/bin/z-tool", kind: tar.TypeLink, link: "usr/bin/tool"},
	}}, []string{
		"Maven com.example:inner 1.0   layer 0 app/fat.war",
		"Maven org.apache.logging.log4j:log4j-core 2.14.1   layer 0 app/log4j-core-2.14.1.jar",
		"NuGet Newtonsoft.Json 12.0.1   layer 0 app/App.deps.json",
		"Packagist monolog/monolog 2.9.1   layer 0 app/vendor/composer/installed.json",
		"Packagist twig/twig 1.44.0   layer 0 old/vendor/composer/installed.json",
		"PyPI numpy 1.26.4   layer 0 opt/conda/conda-meta/numpy-1.26.4-py311.json",
		"RubyGems rack 2.2.4   layer 0 usr/lib/ruby/gems/3.1.0/specifications/rack-2.2.4.gemspec",
		"crates.io ring 0.16.20   layer 0 usr/bin/tool",
		"npm @scope/pkg 1.2.3   layer 0 app/node_modules/@scope/pkg/package.json",
		"npm lodash 4.17.20   layer 0 app/node_modules/lodash/package.json",
	}},
}

func TestImage(t *testing.T) {
	goldens := maps.Clone(goldens)
	for format, database := range map[string]string{
		"var/lib/rpm/rpmdb.sqlite":         inspecttest.RPMSqlite(t, rpms()...),
		"usr/lib/sysimage/rpm/Packages.db": inspecttest.RPMNdb(rpms()...),
		"var/lib/rpm/Packages":             inspecttest.RPMBerkeley(rpms()...),
	} {
		goldens["rpm in "+filepath.Base(format)] = golden{"rocky 9.4 Rocky Linux 9.4 (Blue Onyx)", [][]file{
			{{name: format, content: database}},
			{{name: "etc/os-release", content: rockyRelease}},
		}, []string{
			"Rocky Linux:9 bash 5.1.8-9.el9 bash  layer 0 " + format,
			"Rocky Linux:9 vim-minimal 2:8.2.2637-20.el9 vim  layer 0 " + format,
		}}
	}
	for name, g := range goldens {
		t.Run(name, func(t *testing.T) {
			var blobs [][]byte
			for _, l := range g.layers {
				blobs = append(blobs, zipped(archive(l...)))
			}
			r := inspected(t, blobs...)
			d := r.Distribution
			if got := strings.Join([]string{d.ID, d.VersionID, d.Name}, " "); got != g.distribution {
				t.Errorf("distribution = %q, want %q", got, g.distribution)
			}
			if diff := cmp.Diff(g.want, packageLines(r)); diff != "" || len(r.Warnings) > 0 {
				t.Errorf("packages (-want +got):\n%s\nwarnings: %q", diff, r.Warnings)
			}
		})
	}
}

func packageLines(r inspect.Result) []string {
	var lines []string
	for _, p := range r.Packages {
		line := fmt.Sprintf("%s %s %s %s %s layer %d %s", p.Ecosystem, p.Name, p.Version, p.SourceName, p.SourceVersion,
			p.Layer, p.Location)
		if p.Owner != "" {
			line += " of " + p.Owner
		}
		lines = append(lines, line)
	}
	return lines
}

func TestGoBinary(t *testing.T) {
	program := inspecttest.GoProgram(t, "example.com/app", map[string]string{"example.com/Dep": "v1.2.3"})
	r := inspected(t, zipped(archive(file{name: "app", mode: 0o755, content: program})))
	var got []string
	for _, p := range r.Packages {
		if p.Name == "stdlib" && strings.HasPrefix(p.Version, "1.") {
			p.Version, p.Purl = "1", ""
		}
		got = append(got, strings.TrimSpace(p.Ecosystem+" "+p.Name+" "+p.Version+" "+p.Purl))
	}
	want := []string{"Go example.com/Dep 1.2.3 pkg:golang/example.com/Dep@1.2.3",
		"Go example.com/app  pkg:golang/example.com/app", "Go stdlib 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func link(name, target string) file { return file{name: name, kind: tar.TypeSymlink, link: target} }

func status(name, version, source string) string {
	return fmt.Sprintf("Package: %s\nStatus: install ok installed\nArchitecture: amd64\nSource: %s\nVersion: %s\n\n",
		name, source, version)
}

func wheel(name, version string) string {
	return "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n\n"
}

func node(name, version string) string { return fmt.Sprintf(`{"name":%q,"version":%q}`, name, version) }

const dotnet = `{"targets":{".NETCoreApp,Version=v6.0":{"App/1.0.0":{"dependencies":{"Newtonsoft.Json":"12.0.1"}}}},
"libraries":{"App/1.0.0":{"type":"project"},"Newtonsoft.Json/12.0.1":{"type":"package"}}}`

// jar returns an archive with one file.
func jar(name, content string) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	must(err)
	_, err = w.Write([]byte(content))
	must(err)
	must(z.Close())
	return b.String()
}

// rust returns a program that does nothing and contains a list of its dependencies in the format of cargo auditable.
func rust(doc string) string {
	var data bytes.Buffer
	z := zlib.NewWriter(&data)
	_, err := z.Write([]byte(doc))
	must(err)
	must(z.Close())
	const names = "\x00.dep-v0\x00.shstrtab\x00"
	const size = 64 // size of the ELF header and of a section header, in bytes
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: size,
		Shentsize: size, Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	n := uint64(data.Len())
	h.Shoff = size + n + uint64(len(names))
	var b bytes.Buffer
	must(binary.Write(&b, binary.LittleEndian, h))
	b.Write(data.Bytes())
	b.WriteString(names)
	must(binary.Write(&b, binary.LittleEndian, []elf.Section64{{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: size, Size: n},
		{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: size + n, Size: uint64(len(names))}}))
	return b.String()
}

// rpms returns the packages that the tests write to rpm databases.
func rpms() []inspecttest.RPM {
	return []inspecttest.RPM{
		{Name: "bash", Version: "5.1.8", Release: "9.el9", Source: "bash-5.1.8-9.el9.src.rpm"},
		{Name: "vim-minimal", Version: "8.2.2637", Release: "20.el9", Epoch: 2, Source: "vim-8.2.2637-20.el9.src.rpm"},
		{Name: "gpg-pubkey", Version: "350d275d", Release: "6279464b", Source: "(none)"},
	}
}
