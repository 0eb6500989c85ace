package extract

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// The types of package URLs that distributions use.
const (
	kindDeb    = "deb"
	kindApk    = "apk"
	kindRpm    = "rpm"
	kindOpkg   = "opkg"
	kindPacman = "alpm"
	kindEbuild = "ebuild"
)

const (
	maxManifest = 16 << 20 // maximum size in bytes of a file that describes packages
	maxDatabase = 64 << 20 // maximum size in bytes of a distribution's package database
	rpmSeconds  = 120      // maximum time for reading an rpm database, in seconds
)

// A fileInfo is the metadata of a file. It implements the interfaces of osv-scalibr and fs.FileInfo.
type fileInfo struct {
	path       string
	mode, size int64
}

func (i *fileInfo) Path() string               { return i.path }
func (i *fileInfo) Stat() (fs.FileInfo, error) { return i, nil }
func (i *fileInfo) Name() string               { return path.Base(i.path) }
func (i *fileInfo) Size() int64                { return i.size }
func (i *fileInfo) Mode() fs.FileMode          { return fs.FileMode(i.mode & 0o777) }
func (i *fileInfo) ModTime() time.Time         { return time.Time{} }
func (i *fileInfo) IsDir() bool                { return false }
func (i *fileInfo) Sys() any                   { return nil }

// ownReaders returns the readers for files that osv-scalibr does not read, or reads only in part.
func (f *Finder) ownReaders() []reader {
	return []reader{
		{"os-release", isRelease, readRelease},
		{"list of dpkg", isDpkgList, f.readDpkgList},
		{"sums of dpkg", isDpkgSums, f.readDpkgSums},
		{"files of pacman", isPacmanFiles, f.readPacmanFiles},
		{"rpm database", isRpm, f.readRpm},
		{"journal of an rpm database", isRpmJournal, refuseRpmJournal},
		{"apk database", isApk, f.readApk},
		{"composer", isComposer, readComposer},
		{"java/archive", isJar, readJar},
	}
}

// isRelease reports whether a file may be an os-release. It accepts any folder, because the two standard paths may be
// links to other files.
func isRelease(i *fileInfo) bool {
	return strings.HasPrefix(i.Name(), "os-release") && i.size <= maxRelease
}

func readRelease(_ context.Context, file *layer.File) (*Claim, error) {
	content, err := file.Bytes(maxRelease)
	if err != nil {
		return nil, err
	}
	d := parseRelease(content)
	return &Claim{release: &d}, nil
}

const (
	dpkgInfo   = "var/lib/dpkg/info/"
	dpkgStatus = "var/lib/dpkg/status.d/"
	pacmanDB   = "var/lib/pacman/local/"
)

func isDpkgList(i *fileInfo) bool {
	return strings.HasPrefix(i.path, dpkgInfo) && strings.HasSuffix(i.path, ".list")
}

func (f *Finder) readDpkgList(_ context.Context, file *layer.File) (*Claim, error) {
	content, err := file.Content()
	if err != nil {
		return nil, err
	}
	files, err := f.paths.dpkgList(content)
	return &Claim{owner: strings.TrimSuffix(path.Base(file.Path), ".list"), files: files}, err
}

// isDpkgSums reports whether a file contains the checksums of a dpkg package. Images without a package manager have
// checksums instead of lists.
func isDpkgSums(i *fileInfo) bool {
	return strings.HasPrefix(i.path, dpkgStatus) && strings.HasSuffix(i.path, ".md5sums")
}

func (f *Finder) readDpkgSums(_ context.Context, file *layer.File) (*Claim, error) {
	content, err := file.Content()
	if err != nil {
		return nil, err
	}
	files, err := f.paths.dpkgSums(content)
	return &Claim{owner: strings.TrimSuffix(path.Base(file.Path), ".md5sums"), files: files}, err
}

func isPacmanFiles(i *fileInfo) bool {
	return strings.HasPrefix(i.path, pacmanDB) && i.Name() == "files"
}

func (f *Finder) readPacmanFiles(_ context.Context, file *layer.File) (*Claim, error) {
	content, err := file.Content()
	if err != nil {
		return nil, err
	}
	files, err := f.paths.pacmanFiles(content)
	name := path.Base(path.Dir(file.Path)) // the folder is named name-version-release
	for range 2 {
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
	}
	return &Claim{owner: name, files: files}, err
}

var rpmFolders = []string{"var/lib/rpm/", "usr/lib/sysimage/rpm/", "usr/share/rpm/"}

func isRpm(i *fileInfo) bool {
	dir, base := path.Split(i.path)
	for _, d := range rpmFolders {
		if dir == d {
			return base == "rpmdb.sqlite" || base == "Packages.db" || base == "Packages"
		}
	}
	return false
}

// sourceOfRpm returns the package name in a file name: curl for curl-7.76.1-26.el9.src.rpm.
func sourceOfRpm(file string) string {
	name := strings.TrimSuffix(file, ".src.rpm")
	for range 2 {
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
	}
	return name
}

func isRpmJournal(i *fileInfo) bool {
	dir, ok := strings.CutSuffix(i.path, "rpmdb.sqlite-wal")
	return ok && isRpm(&fileInfo{path: dir + "rpmdb.sqlite"})
}

func refuseRpmJournal(context.Context, *layer.File) (*Claim, error) {
	return nil, fmt.Errorf("the database lacks the changes in this journal")
}

func isApk(i *fileInfo) bool {
	return i.path == "lib/apk/db/installed" || i.path == "usr/lib/apk/db/installed" ||
		i.path == "var/lib/apk/db/installed"
}

// readApk reads an apk database. osv-scalibr reads the packages, and paths reads their files.
func (f *Finder) readApk(ctx context.Context, file *layer.File) (*Claim, error) {
	c, err := scanApk(ctx, file)
	if err != nil {
		return c, err
	}
	content, err := file.Content()
	if err != nil {
		return c, err
	}
	owned, err := f.paths.apkFiles(content)
	for _, e := range c.packages {
		e.files = owned[e.Name]
	}
	return c, err
}

func isComposer(i *fileInfo) bool {
	return strings.HasSuffix("/"+i.path, "/vendor/composer/installed.json")
}

// readComposer reads the packages that Composer has installed. The file is a list, or since version 2 an object with a
// list.
func readComposer(_ context.Context, file *layer.File) (*Claim, error) {
	content, err := file.Bytes(maxManifest)
	if err != nil {
		return nil, err
	}
	type installed struct{ Name, Version string }
	var list []installed
	if err := json.Unmarshal(content, &list); err != nil {
		var object struct{ Packages []installed }
		if err := json.Unmarshal(content, &object); err != nil {
			return nil, err
		}
		list = object.Packages
	}
	c := &Claim{}
	for _, p := range list {
		e := registryEntry("Packagist", strings.ToLower(p.Name), strings.TrimPrefix(p.Version, "v"))
		c.packages = append(c.packages, e)
	}
	return c, nil
}

var separators = regexp.MustCompile(`[-_.]+`)

// registryEntry returns the entry of a package from a registry, with its name in OSV. It returns nil if the package has
// no name in OSV.
func registryEntry(ecosystem, name, version string) *entry {
	switch {
	case ecosystem == "PyPI":
		name = separators.ReplaceAllString(strings.ToLower(name), "-")
	case ecosystem == "Go" && name == "go":
		name = "stdlib"
	case ecosystem == "Go" && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/")):
		return nil // the build replaced the module by a local folder
	}
	if version == "(devel)" {
		version = ""
	}
	e := &entry{Package: Package{Ecosystem: ecosystem, Name: name, Version: version}}
	e.setURL()
	return e
}
