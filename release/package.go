package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // imported because the package formats register themselves
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"golang.org/x/mod/semver"
)

// writePackages writes the .deb and the .rpm of a program for Linux into dir.
func writePackages(s source, p program, arch string, binary []byte, documents []file, dir string) error {
	for _, format := range []string{"deb", "rpm"} {
		content, err := packageFiles(p, format, binary, documents)
		if err != nil {
			return err
		}
		if err := writePackage(s, p, arch, format, content, dir); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// packageFiles returns the files of a package, with the paths that its distributions use.
func packageFiles(p program, format string, binary []byte, documents []file) ([]file, error) {
	installed := []file{{path: "/usr/bin/" + p.name, mode: 0o755, data: binary}}
	for _, f := range documents {
		switch top, rest, below := strings.Cut(f.path, "/"); {
		case !below && f.path == "LICENSE":
			f.path = "/usr/share/doc/" + p.name + "/copyright"
		case !below:
			f.path = "/usr/share/doc/" + p.name + "/" + f.path
		case top == "man":
			data, err := gzipOf(f.data)
			if err != nil {
				return nil, err
			}
			f.path, f.data = "/usr/share/"+f.path+".gz", data
		case top == "powershell":
			continue
		case top == "zsh" && format == "rpm":
			f.path = "/usr/share/zsh/site-functions/" + path.Base(rest)
		default:
			f.path = "/usr/share/" + f.path
		}
		installed = append(installed, f)
	}
	if p.name == server.name {
		installed = append(installed,
			file{path: "/usr/lib/systemd/system/holdfastd.service", data: packagedFile("holdfastd.service")},
			file{path: "/usr/lib/sysusers.d/holdfast.conf", data: packagedFile("sysusers.conf")},
			file{path: "/etc/holdfast/holdfastd.yaml", mode: 0o640, config: true, data: packagedFile("holdfastd.yaml")},
			file{path: "/etc/holdfast/holdfastd.env", mode: 0o640, config: true, data: packagedFile("holdfastd.env")})
	}
	return installed, nil
}

// writePackage writes one package. nfpm reads contents and scripts from files, so they
// are written to a temporary folder first.
func writePackage(s source, p program, arch, format string, content []file, dir string) (err error) {
	stage, err := os.MkdirTemp("", "holdfast-package-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	info := describePackage(s, p, arch)
	if info.Contents, err = stageFiles(stage, s, content); err != nil {
		return err
	}
	if p.name == client.name { // adds the name under which Docker runs the client to get a password
		info.Contents = append(info.Contents, &files.Content{
			Source: "holdfast", Destination: "/usr/bin/docker-credential-holdfast", Type: files.TypeSymlink,
			FileInfo: &files.ContentFileInfo{MTime: s.date},
		})
	} else {
		// The package contains the folder, so that removing the package also removes the
		// folder.
		info.Contents = append(info.Contents, &files.Content{
			Destination: "/etc/holdfast", Type: files.TypeDir,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: s.date},
		})
		if info.Scripts, err = stageScripts(stage); err != nil {
			return err
		}
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(dir, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, out), out.Close())
}

// describePackage returns the metadata of a package. A prerelease sorts before its
// release. Its hyphens become dots, because rpm does not allow hyphens and dpkg gives
// them a meaning.
func describePackage(s source, p program, arch string) *nfpm.Info {
	core, _, _ := strings.Cut(strings.TrimSuffix(s.number(), semver.Build(s.version)), "-")
	prerelease := strings.TrimPrefix(semver.Prerelease(s.version), "-")
	info := &nfpm.Info{
		Name: p.name, Arch: arch, Platform: "linux",
		Version: core, Prerelease: strings.ReplaceAll(prerelease, "-", "."), VersionSchema: "none",
		VersionMetadata: strings.TrimPrefix(semver.Build(s.version), "+"),
		Release:         "1", Section: "admin", Priority: "optional",
		Maintainer:  "The Holdfast authors",
		Description: p.summary, Homepage: homepage, License: "Apache-2.0", Vendor: "Holdfast",
		MTime: s.date,
	}
	info.RPM.BuildHost = "holdfast" // otherwise the package would contain the name of this machine
	info.RPM.Summary = p.summary
	if p.name == server.name {
		info.Recommends = []string{"ca-certificates"}
		info.Suggests = []string{client.name}
	}
	return info
}

func stageFiles(stage string, s source, content []file) (all files.Contents, err error) {
	for i, f := range sorted(content) {
		staged := filepath.Join(stage, fmt.Sprint(i))
		if err := os.WriteFile(staged, f.data, 0o600); err != nil {
			return nil, err
		}
		kind := ""
		if f.config {
			kind = files.TypeConfigNoReplace
		}
		all = append(all, &files.Content{
			Source: staged, Destination: f.path, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: cmp.Or(f.mode, 0o644), MTime: s.date},
		})
	}
	return all, nil
}

func stageScripts(stage string) (s nfpm.Scripts, err error) {
	for name, path := range map[string]*string{
		"postinstall.sh": &s.PostInstall, "preremove.sh": &s.PreRemove, "postremove.sh": &s.PostRemove,
	} {
		*path = filepath.Join(stage, name)
		if err := os.WriteFile(*path, packagedFile(name), 0o600); err != nil {
			return s, err
		}
	}
	return s, nil
}
