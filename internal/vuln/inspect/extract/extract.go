// Package extract finds packages in the files of an image. The extractors of osv-scalibr read most formats, one file at
// a time. Finish determines the facts that need the whole image: the distribution, because its os-release may be the
// last file, and the files that belong to its packages.
package extract

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/google/osv-scalibr/log"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// Limits limit the result for one image.
type Limits struct {
	Packages int // maximum number of packages; if an image has more, the walk ends with layer.ErrLimit
	Warnings int // maximum number of warnings; further warnings are only counted
}

// A Found is the result for one image.
type Found struct {
	Distribution Distribution
	Packages     []Package
	Warnings     []string
}

// A Claim is the content of one file: packages, a list of a package's files, or the distribution.
type Claim struct {
	paths    []string // paths of the file, set by Finish
	layer    int
	packages []*entry
	owner    string   // the dpkg package whose files are listed, with or without the package's architecture
	files    []uint64 // hashes of the paths of owner's files
	release  *Distribution
	linked   bool   // whether the claim counts only if a symbolic link in node_modules leads to the file
	warning  string // warning about a linked file, which also counts only then
}

// An entry is a package before the distribution is known.
type entry struct {
	Package
	kind   string   // type of the package URL; set only for packages of a distribution
	epoch  string   // epoch of an rpm
	module string   // module and stream of an rpm, such as php:8.1
	files  []uint64 // hashes of the paths of the package's files; set only for packages of a distribution
}

// A Finder finds packages. It is the layer.Visitor of one image.
type Finder struct {
	limits   Limits
	readers  []reader
	paths    *paths
	packages int
	warnings []string
	omitted  int // number of warnings beyond the limit
}

// A reader reads one kind of file.
type reader struct {
	name  string
	wants func(*fileInfo) bool
	read  func(context.Context, *layer.File) (*Claim, error)
}

// New returns a Finder for one image.
func New(limits Limits) (*Finder, error) {
	log.SetLogger(quiet{})
	f := &Finder{limits: limits, paths: newPaths()}
	f.readers = f.ownReaders()
	scalibr, err := scalibrReaders()
	if err != nil {
		return nil, err
	}
	f.readers = append(f.readers, scalibr...)
	return f, nil
}

// Wants implements layer.Visitor.
func (f *Finder) Wants(path string, mode, size int64) bool {
	info := &fileInfo{path, mode, size}
	return slices.ContainsFunc(f.readers, func(r reader) bool { return r.wants(info) })
}

// WantsLink implements layer.Visitor. It wants the links by which Node.js finds packages outside node_modules.
func (f *Finder) WantsLink(path string) bool { return isNodeFolder(path) }

// Visit implements layer.Visitor. If a file cannot be read, it adds a warning.
func (f *Finder) Visit(ctx context.Context, file *layer.File, before *Claim) (*Claim, bool, error) {
	info := &fileInfo{file.Path, file.Mode, file.Size}
	merged := &Claim{layer: file.Layer, linked: isPackageJSON(info) && !isNodeFolder(path.Dir(file.Path))}
	found := false
	report := func(reader string, err error) {
		if !merged.linked {
			f.warn(warning(file.Path, reader, err))
			return
		}
		merged.warning, found = warning(file.Path, reader, err), true
	}
	for _, r := range f.readers {
		if !r.wants(info) {
			continue
		}
		c, err := r.safely(ctx, file)
		if err != nil {
			report(r.name, err)
		}
		if c == nil {
			continue
		}
		found = true
		for _, e := range c.packages {
			if err := place(e, file); err != nil {
				report("package", err)
				continue
			}
			merged.packages = append(merged.packages, e)
		}
		if c.owner != "" {
			merged.owner, merged.files = c.owner, c.files
		}
		if c.release != nil {
			merged.release = c.release
		}
	}
	if !merged.linked {
		f.packages += len(merged.packages)
	}
	if f.packages > f.limits.Packages {
		return nil, false, f.overLimit()
	}
	merged.inherit(before)
	return merged, found, nil
}

// safely calls read, and returns a panic as an error, so that a bug in a reader does not affect the rest of the image.
func (r reader) safely(ctx context.Context, file *layer.File) (c *Claim, err error) {
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%v", p)
		}
	}()
	return r.read(ctx, file)
}

func (f *Finder) overLimit() error {
	return fmt.Errorf("%w of %d packages", layer.ErrLimit, f.limits.Packages)
}

// place sets the location and the layer of an entry. It returns an error if the entry is not valid.
func place(e *entry, file *layer.File) error {
	e.Location, e.Layer = file.Path, file.Layer
	check := e.Package
	if check.Ecosystem == "" {
		check.Ecosystem = e.kind // used because the ecosystem, which contains the distribution, is not known yet
	}
	if !check.Valid() {
		return fmt.Errorf("the name or version %.100q is invalid", e.Name+" "+e.Version)
	}
	return nil
}

// inherit gives packages that the replaced file already contained the layer that they had there, because the
// database of a distribution is rewritten whenever a package is added.
func (c *Claim) inherit(before *Claim) {
	if before == nil {
		return
	}
	type key struct{ kind, ecosystem, name, version, arch string }
	keyOf := func(e *entry) key { return key{e.kind, e.Ecosystem, e.Name, e.Version, e.Arch} }
	layers := map[key]int{}
	for _, e := range before.packages {
		layers[keyOf(e)] = e.Layer
	}
	for _, e := range c.packages {
		if l, ok := layers[keyOf(e)]; ok {
			e.Layer = l
		}
	}
}

// warn adds a warning.
func (f *Finder) warn(text string) {
	if len(f.warnings) >= f.limits.Warnings-1 {
		f.omitted++
		return
	}
	f.warnings = append(f.warnings, text)
}

// warning returns a warning about a file that reader could not read.
func warning(path, reader string, err error) string {
	if len(path) > 200 {
		path = "…" + path[len(path)-200:]
	}
	return fmt.Sprintf("%s: %s: %.200s", path, reader, err.Error())
}

// Finish returns the result for the image. It is called after the last layer. It returns an error that wraps
// layer.ErrLimit if the image has too many packages.
func (f *Finder) Finish(image *layer.Stack[*Claim]) (Found, error) {
	claims := claimsOf(image)
	for _, c := range claims {
		if c.warning != "" {
			f.warn(c.warning)
		}
	}
	found := Found{Warnings: f.warnings}
	for _, p := range []string{"etc/os-release", "usr/lib/os-release"} {
		if c, ok := image.Get(p); ok && c.release != nil {
			found.Distribution = *c.release
			break
		}
	}
	f.setOwners(claims, found.Distribution)
	for _, c := range claims {
		for _, e := range c.packages {
			found.Packages = append(found.Packages, e.Package)
		}
	}
	slices.SortFunc(found.Packages, compare)
	found.Packages = slices.Compact(found.Packages)
	if len(found.Packages) > f.limits.Packages {
		return Found{}, f.overLimit()
	}
	if f.paths.left <= 0 {
		found.Warnings = append(found.Warnings, "packages of the distribution have too many files: "+
			"packages that they contain may be listed separately")
	}
	if f.omitted > 0 {
		found.Warnings = append(found.Warnings, fmt.Sprintf("and %d more", f.omitted))
	}
	return found, nil
}

// setOwners sets the ecosystem and package URL of the distribution's packages, and makes them the owners of the
// language packages in their files.
func (f *Finder) setOwners(claims []*Claim, d Distribution) {
	files := map[uint64][]*Claim{} // claims with language packages, by the hash of each of their paths
	lists := map[string]*Claim{}   // claims with lists of files, by the name of the package
	for _, c := range claims {
		if c.owner != "" {
			lists[c.owner] = c
		}
		if len(c.packages) > 0 && c.packages[0].kind == "" {
			for _, p := range c.paths {
				for _, h := range f.paths.names(p) {
					files[h] = append(files[h], c)
				}
			}
		}
	}
	for _, c := range claims {
		for _, e := range c.packages {
			if e.kind == "" {
				continue
			}
			e.setDistribution(d)
			e.own(c.layer, e.files, files)
			for _, name := range []string{e.Name, e.Name + ":" + e.Arch} {
				if list := lists[name]; list != nil {
					e.own(list.layer, list.files, files)
				}
			}
		}
	}
}

// claimsOf returns the claims of all files, in the order of their paths. A file with several hard links has one claim.
func claimsOf(image *layer.Stack[*Claim]) (claims []*Claim) {
	linked := map[string]bool{} // files to which links in node_modules lead
	for _, p := range image.Links() {
		linked[path.Join(image.Follow(p), "package.json")] = true
	}
	seen := map[*Claim]bool{}
	image.Each(func(p string, c *Claim) {
		if c.linked && !linked[p] && !isNodeFolder(path.Dir(p)) {
			return
		}
		if !seen[c] {
			seen[c] = true
			c.paths = nil
			for _, e := range c.packages {
				// A layer may have removed the hard link at e.Location. Then p is another link.
				if valid(maxLocation, p) {
					e.Location = p
				}
			}
			claims = append(claims, c)
		}
		c.paths = append(c.paths, p)
	})
	return claims
}

// own makes e the owner of the packages in its files. layer is the number of the layer that contains the list of e's
// files. Files that a later layer has written are skipped, because the list does not describe them.
func (e *entry) own(layer int, owned []uint64, files map[uint64][]*Claim) {
	for _, h := range owned {
		for _, c := range files[h] {
			if c.layer > layer {
				continue
			}
			for _, part := range c.packages {
				part.Owner = e.Purl
			}
		}
	}
}
