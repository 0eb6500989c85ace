package extract

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	cpb "github.com/google/osv-scalibr/binary/proto/config_go_proto"
	"github.com/google/osv-scalibr/extractor"
	"github.com/google/osv-scalibr/extractor/filesystem"
	"github.com/google/osv-scalibr/extractor/filesystem/language/dotnet/depsjson"
	"github.com/google/osv-scalibr/extractor/filesystem/language/golang/gobinary"
	"github.com/google/osv-scalibr/extractor/filesystem/language/javascript/packagejson"
	"github.com/google/osv-scalibr/extractor/filesystem/language/lua/luarocks"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/condameta"
	"github.com/google/osv-scalibr/extractor/filesystem/language/python/wheelegg"
	"github.com/google/osv-scalibr/extractor/filesystem/language/ruby/gemspec"
	"github.com/google/osv-scalibr/extractor/filesystem/language/rust/cargoauditable"
	"github.com/google/osv-scalibr/extractor/filesystem/os/apk"
	apkmeta "github.com/google/osv-scalibr/extractor/filesystem/os/apk/metadata"
	"github.com/google/osv-scalibr/extractor/filesystem/os/chisel"
	"github.com/google/osv-scalibr/extractor/filesystem/os/dpkg"
	dpkgmeta "github.com/google/osv-scalibr/extractor/filesystem/os/dpkg/metadata"
	"github.com/google/osv-scalibr/extractor/filesystem/os/pacman"
	"github.com/google/osv-scalibr/extractor/filesystem/os/portage"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// maxNested is the maximum number of bytes, in total, that are read from archives inside an archive.
const maxNested = 256 << 20

// scalibrReaders returns readers for the extractors of osv-scalibr that find installed packages. It omits extractors
// for lock files, because a lock file lists packages that need not be installed.
func scalibrReaders() ([]reader, error) {
	var readers []reader
	var failed error
	add := func(make func(*cpb.PluginConfig) (filesystem.Extractor, error), wants func(*fileInfo) bool) {
		x, err := make(&cpb.PluginConfig{PluginSpecific: []*cpb.PluginSpecificConfig{{
			Config: &cpb.PluginSpecificConfig_Dpkg{Dpkg: &cpb.DpkgConfig{IncludeNotInstalled: true}}, // see hasFiles
		}}})
		if err != nil {
			failed = cmp.Or(failed, err)
			return
		}
		if wants == nil {
			wants = func(i *fileInfo) bool { return x.FileRequired(i) }
		}
		readers = append(readers, reader{x.Name(), wants, func(ctx context.Context, file *layer.File) (*Claim, error) {
			return extractWith(ctx, x, file)
		}})
	}
	add(dpkg.New, nil)
	add(pacman.New, nil)
	add(portage.New, nil)
	add(chisel.New, nil)
	add(wheelegg.New, nil)
	add(condameta.New, isConda)
	add(packagejson.New, isPackageJSON)
	add(gemspec.New, isGem)
	add(depsjson.New, nil)
	add(luarocks.New, nil)
	add(gobinary.New, nil)
	add(cargoauditable.New, nil)
	return readers, failed
}

// isPackageJSON reports whether a file may describe a package of npm. Files outside node_modules count only if a link
// leads to them, because they may be test data of a package.
func isPackageJSON(i *fileInfo) bool { return i.Name() == "package.json" }

// isNodeFolder reports whether Node.js finds a package in this folder by its name: node_modules/name or
// node_modules/@scope/name.
func isNodeFolder(folder string) bool {
	parent := path.Dir(folder)
	if strings.HasPrefix(path.Base(parent), "@") {
		parent = path.Dir(parent)
	}
	return path.Base(parent) == "node_modules"
}

func isGem(i *fileInfo) bool {
	return strings.HasSuffix(i.path, ".gemspec") && strings.Contains(i.path, "/specifications/")
}

func isConda(i *fileInfo) bool {
	return strings.HasSuffix(i.path, ".json") && path.Base(path.Dir(i.path)) == "conda-meta"
}

// extractWith reads a file with an extractor. It returns nil if the file has no packages.
func extractWith(ctx context.Context, x filesystem.Extractor, file *layer.File) (*Claim, error) {
	if name := x.Name(); (name == gobinary.Name || name == cargoauditable.Name) && !isBinary(file.Head()) {
		return nil, nil
	}
	if limit := maxBytes(x.Name(), file.Path); limit > 0 && file.Size > limit {
		return nil, &layer.TooLongError{Size: file.Size, Limit: limit}
	}
	content, err := file.Content()
	if err != nil {
		return nil, err
	}
	info := &fileInfo{file.Path, file.Mode, file.Size}
	found, err := x.Extract(ctx, &filesystem.ScanInput{FS: noFiles{}, Path: file.Path, Info: info, Reader: content})
	if len(found.Packages) == 0 {
		return nil, err
	}
	c := &Claim{}
	for _, p := range found.Packages {
		if m, ok := p.Metadata.(*dpkgmeta.Metadata); ok {
			has, problem := hasFiles(m.Status, file.Path)
			if err = cmp.Or(err, problem); !has {
				continue
			}
		}
		if e := entryOf(p); e != nil {
			c.packages = append(c.packages, e)
		}
	}
	return c, err
}

// hasFiles reports whether the files of a dpkg package are in the image. They are there from the time when they were
// unpacked, whether or not the package was configured. status has three words: the wish, a flag and the state. Images
// without a package manager describe packages in dpkgStatus, without a status.
func hasFiles(status, name string) (bool, error) {
	words := strings.Fields(status)
	if len(words) == 0 {
		return strings.HasPrefix(name, dpkgStatus), nil
	}
	switch words[len(words)-1] {
	case "installed", "unpacked", "half-configured", "half-installed", "triggers-awaited", "triggers-pending":
		return true, nil
	case "not-installed", "config-files":
		return false, nil
	}
	return false, fmt.Errorf("%q is not a status of dpkg", status)
}

// maxBytes returns the maximum size of a file that an extractor reads into memory, or 0 for an extractor that reads
// only parts of a file.
func maxBytes(extractor, name string) int64 {
	switch extractor {
	case gobinary.Name, cargoauditable.Name:
		return 0
	case dpkg.Name, apk.Name, chisel.Name:
		return maxDatabase
	case wheelegg.Name:
		if ext := path.Ext(name); ext == ".egg" || ext == ".whl" {
			return 0
		}
	}
	return maxManifest
}

func scanApk(ctx context.Context, file *layer.File) (*Claim, error) {
	x, err := apk.New(&cpb.PluginConfig{})
	if err != nil {
		return nil, err
	}
	c, err := extractWith(ctx, x, file)
	if c == nil {
		c = &Claim{}
	}
	return c, err
}

// entryOf converts a package of osv-scalibr. It returns nil if the package is not an installed package.
func entryOf(p *extractor.Package) *entry {
	e := &entry{kind: p.PURLType, Package: Package{Name: p.Name, Version: p.Version}}
	switch m := p.Metadata.(type) {
	case *apkmeta.Metadata:
		e.Arch, e.SourceName, e.SourceVersion = m.Architecture, cmp.Or(m.OriginName, p.Name), p.Version
		return e
	case *dpkgmeta.Metadata:
		e.Arch = m.Architecture
		e.SourceName, e.SourceVersion = cmp.Or(m.SourceName, p.Name), cmp.Or(m.SourceVersion, p.Version)
		return e
	case *depsjson.Metadata:
		if m.Type == "project" { // the package is the inspected program itself
			return nil
		}
	}
	switch p.PURLType {
	case kindPacman, "pacman":
		e.kind = kindPacman
		return e
	case kindEbuild, "portage":
		e.kind = kindEbuild
		return e
	}
	return registryEntry(cmp.Or(p.Ecosystem().String(), p.PURLType), p.Name, p.Version)
}

// noFiles is an empty file system for extractors, so that they can read only the file that they are given.
type noFiles struct{}

func (noFiles) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (noFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
}

func (noFiles) Stat(name string) (fs.FileInfo, error) {
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// quiet is a logger for osv-scalibr. It discards all messages, because extractors also return their errors.
type quiet struct{}

func (quiet) Errorf(string, ...any) {}
func (quiet) Error(...any)          {}
func (quiet) Warnf(string, ...any)  {}
func (quiet) Warn(...any)           {}
func (quiet) Infof(string, ...any)  {}
func (quiet) Info(...any)           {}
func (quiet) Debugf(string, ...any) {}
func (quiet) Debug(...any)          {}
