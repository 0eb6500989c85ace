package extract

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	rpmdb "github.com/erikvarga/go-rpmdb/pkg"
	_ "modernc.org/sqlite" // in which rpm keeps its database, among others

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// The types of package URLs of packages of distributions.
const (
	kindDeb    = "deb"
	kindApk    = "apk"
	kindRpm    = "rpm"
	kindOpkg   = "opkg"
	kindPacman = "alpm"
	kindEbuild = "ebuild"
)

const (
	maxManifest = 16 << 20 // bytes of a file that describes packages
	maxDatabase = 64 << 20 // of the database of a distribution
	rpmSeconds  = 120
)

// A fileInfo is what is known of a file before it is read.
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

// ours are the readers of what osv-scalibr does not read, or not all of.
func (f *Finder) ours() []reader {
	return []reader{
		{"os-release", isRelease, readRelease},
		{"list of dpkg", isDpkgList, f.readDpkgList},
		{"sums of dpkg", isDpkgSums, f.readDpkgSums},
		{"files of pacman", isPacmanFiles, f.readPacmanFiles},
		{"rpm database", isRpm, f.readRpm},
		{"journal of an rpm database", isRpmJournal, refuseRpmJournal},
		{"apk database", isApk, f.readApk},
		{"composer", isComposer, readComposer},
	}
}

// isRelease is true of more than the two places: they may be links to others.
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

// isDpkgSums is true of images without a package manager: they have no lists.
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
	name := path.Base(path.Dir(file.Path)) // name-version-release
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

// readRpm reads the database with the library that osv-scalibr uses, which tells of files,
// too.
func (f *Finder) readRpm(ctx context.Context, file *layer.File) (*Claim, error) {
	name, err := file.Name()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rpmSeconds*time.Second) // pages in a circle
	defer cancel()
	db, err := rpmdb.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	list, err := db.ListPackagesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &Claim{}
	for _, p := range list {
		if p.Name == "gpg-pubkey" { // a key that rpm keeps as if it were a package
			continue
		}
		c.packages = append(c.packages, f.rpmEntry(p))
	}
	return c, nil
}

func (f *Finder) rpmEntry(p *rpmdb.PackageInfo) *entry {
	e := &entry{kind: kindRpm, Package: Package{Name: p.Name, Version: p.Version + "-" + p.Release, Arch: p.Arch,
		SourceName: sourceOfRpm(p.SourceRpm)}}
	if n := p.EpochNum(); n != 0 {
		e.epoch = strconv.Itoa(n)
		e.Version = e.epoch + ":" + e.Version
	}
	names, err := p.InstalledFileNames()
	if err != nil {
		return e
	}
	for _, n := range names {
		e.files = f.paths.add(e.files, n)
	}
	return e
}

// sourceOfRpm returns the name in the name of a file: curl in curl-7.76.1-26.el9.src.rpm.
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
	return nil, fmt.Errorf("the last changes are not in the database yet")
}

func isApk(i *fileInfo) bool {
	return i.path == "lib/apk/db/installed" || i.path == "usr/lib/apk/db/installed" || i.path == "var/lib/apk/db/installed"
}

// readApk reads the database of Alpine: osv-scalibr reads the packages, and paths their
// files.
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

// readComposer reads what composer has installed: a list, since version 2 in an object.
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

// registryEntry returns the entry of a package of a registry, with its name as OSV has it,
// or nil if it has none there.
func registryEntry(ecosystem, name, version string) *entry {
	switch {
	case ecosystem == "PyPI":
		name = separators.ReplaceAllString(strings.ToLower(name), "-")
	case ecosystem == "Go" && name == "go":
		name = "stdlib"
	case ecosystem == "Go" && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/")):
		return nil // a folder of who built it, in the place of a module
	}
	if version == "(devel)" {
		version = ""
	}
	e := &entry{Package: Package{Ecosystem: ecosystem, Name: name, Version: version}}
	e.setURL()
	return e
}
