// Package extract finds packages in the files of an image. Most formats are read by
// osv-scalibr, whose extractors are shown one file at a time; what needs the whole image
// is decided in Finish: the distribution, whose os-release may come last, and which files
// belong to its packages.
package extract

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/osv-scalibr/log"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// Limits are what an image may have.
type Limits struct {
	Packages int // an image with more is over the limit: layer.ErrLimit
	Warnings int // that are told; of the others, how many
}

// A Found is what an image has.
type Found struct {
	Distribution Distribution
	Packages     []Package
	Warnings     []string
}

// A Claim is what one file tells.
type Claim struct {
	paths    []string // of the file, set by Finish
	layer    int
	packages []*entry
	owner    string   // the package of dpkg whose files are listed, with or without its architecture
	files    []uint64 // of owner
	release  *Distribution
}

// An entry is a package before the distribution is known.
type entry struct {
	Package
	kind  string   // the type of its package URL, if it is a package of a distribution
	epoch string   // of an rpm
	files []uint64 // of a package of a distribution
}

// A Finder finds packages. It is the layer.Visitor of one image.
type Finder struct {
	limits   Limits
	readers  []reader
	paths    *paths
	packages int
	warnings []string
	untold   int
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
	f.readers = f.ours()
	theirs, err := scalibrReaders()
	if err != nil {
		return nil, err
	}
	f.readers = append(f.readers, theirs...)
	return f, nil
}

// Wants implements layer.Visitor.
func (f *Finder) Wants(path string, mode, size int64) bool {
	info := &fileInfo{path, mode, size}
	return slices.ContainsFunc(f.readers, func(r reader) bool { return r.wants(info) })
}

// Visit implements layer.Visitor. A file that cannot be understood is a warning.
func (f *Finder) Visit(ctx context.Context, file *layer.File, before *Claim) (*Claim, bool, error) {
	all := &Claim{layer: file.Layer}
	told := false
	info := &fileInfo{file.Path, file.Mode, file.Size}
	for _, r := range f.readers {
		if !r.wants(info) {
			continue
		}
		c, err := r.safely(ctx, file)
		if err != nil {
			f.warn(file.Path, r.name, err)
		}
		if c == nil {
			continue
		}
		told = true
		for _, e := range c.packages {
			if f.keep(e, file) {
				all.packages = append(all.packages, e)
			}
		}
		if c.owner != "" {
			all.owner, all.files = c.owner, c.files
		}
		if c.release != nil {
			all.release = c.release
		}
	}
	if f.packages += len(all.packages); f.packages > f.limits.Packages {
		return nil, false, fmt.Errorf("%w of %d packages", layer.ErrLimit, f.limits.Packages)
	}
	all.inherit(before)
	return all, told, nil
}

// safely calls read, and returns a panic as an error: it is a mistake of the reader's,
// which the rest of the image need not suffer from.
func (r reader) safely(ctx context.Context, file *layer.File) (c *Claim, err error) {
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%v", p)
		}
	}()
	return r.read(ctx, file)
}

// keep completes an entry, and reports whether it can be one.
func (f *Finder) keep(e *entry, file *layer.File) bool {
	e.Location, e.Layer = file.Path, file.Layer
	check := e.Package
	if check.Ecosystem == "" {
		check.Ecosystem = e.kind // the distribution is not known yet
	}
	if !check.Valid() {
		f.warn(file.Path, "package", fmt.Errorf("the name or version %.100q is not one", e.Name+" "+e.Version))
		return false
	}
	return true
}

// inherit has packages that were there before keep the layer that brought them: the
// database of a distribution is written again whenever a package is added.
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

// warn remembers what could not be understood.
func (f *Finder) warn(path, what string, err error) {
	if len(f.warnings) >= f.limits.Warnings-1 {
		f.untold++
		return
	}
	if len(path) > 200 {
		path = "…" + path[len(path)-200:]
	}
	f.warnings = append(f.warnings, fmt.Sprintf("%s: %s: %.200s", path, what, err.Error()))
}

// Finish returns what the image has, after its last layer.
func (f *Finder) Finish(image *layer.Stack[*Claim]) Found {
	found := Found{Warnings: f.warnings}
	for _, p := range []string{"etc/os-release", "usr/lib/os-release"} {
		if c, ok := image.Get(p); ok && c.release != nil {
			found.Distribution = *c.release
			break
		}
	}
	claims := claimsOf(image)
	f.setOwners(claims, found.Distribution)
	for _, c := range claims {
		for _, e := range c.packages {
			found.Packages = append(found.Packages, e.Package)
		}
	}
	slices.SortFunc(found.Packages, compare)
	found.Packages = slices.Compact(found.Packages)
	if f.paths.left <= 0 {
		found.Warnings = append(found.Warnings, "packages of the distribution have too many files: "+
			"some of its parts are listed on their own")
	}
	if f.untold > 0 {
		found.Warnings = append(found.Warnings, fmt.Sprintf("and %d more", f.untold))
	}
	return found
}

// setOwners names the packages of the distribution, and sets them as the owners of the
// packages of languages that are in their files.
func (f *Finder) setOwners(claims []*Claim, d Distribution) {
	files := map[uint64][]*Claim{} // of packages of languages, by the hashes of their names
	lists := map[string]*Claim{}   // of files, by the package
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
			e.setDistribution(e.kind, d, e.epoch)
			e.own(c.layer, e.files, files)
			for _, name := range []string{e.Name, e.Name + ":" + e.Arch} {
				if list := lists[name]; list != nil {
					e.own(list.layer, list.files, files)
				}
			}
		}
	}
}

// claimsOf returns the claims of all files, in the order of their paths. A file with several
// names is one.
func claimsOf(image *layer.Stack[*Claim]) (all []*Claim) {
	seen := map[*Claim]bool{}
	image.Each(func(path string, c *Claim) {
		if !seen[c] {
			seen[c] = true
			c.paths = nil
			for _, e := range c.packages {
				if valid(maxLocation, path) { // another than it was read at, if a layer has removed that name
					e.Location = path
				}
			}
			all = append(all, c)
		}
		c.paths = append(c.paths, path)
	})
	return all
}

// own makes e the owner of the packages in its files, unless a later layer has written
// them: what came after the list is not what the list means.
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
