package extract

import (
	"bufio"
	"bytes"
	"hash/maphash"
	"io"
	"path"
	"strings"
)

// maxOwned is how many files of packages of a distribution are remembered, of the whole
// image, in eight bytes each.
const maxOwned = 4_000_000

const maxLine = 64 << 10

// paths hashes the paths of files that belong to packages of a distribution.
type paths struct {
	seed maphash.Seed
	left int
}

func newPaths() *paths { return &paths{seed: maphash.MakeSeed(), left: maxOwned} }

func (h *paths) hash(p string) uint64 { return maphash.String(h.seed, p) }

// add adds a path from the root to files.
func (h *paths) add(files []uint64, p string) []uint64 {
	p = strings.TrimPrefix(path.Clean("/"+p), "/")
	if p == "" || h.left <= 0 {
		return files
	}
	h.left--
	return append(files, h.hash(p))
}

// names are the hashes under which a file may be listed: since /lib became a link to
// /usr/lib, lists have one name and archives the other.
func (h *paths) names(p string) []uint64 {
	names := []uint64{h.hash(p)}
	if rest, ok := strings.CutPrefix(p, "usr/"); ok {
		return append(names, h.hash(rest))
	}
	return append(names, h.hash("usr/"+p))
}

// lines calls f with each line. What is longer than a path can be ends it.
func lines(r io.Reader, f func(line string)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		f(s.Text())
	}
	return s.Err()
}

// dpkgList reads the list of a package's files and folders, a path on each line. Folders
// precede what is in them, and are left out.
func (h *paths) dpkgList(r io.Reader) (files []uint64, err error) {
	last := ""
	err = lines(r, func(line string) {
		if last != "" && !strings.HasPrefix(line, last+"/") {
			files = h.add(files, last)
		}
		last = line
	})
	return h.add(files, last), err
}

// dpkgSums reads the sums of a package's files: a sum and a path on each line.
func (h *paths) dpkgSums(r io.Reader) (files []uint64, err error) {
	err = lines(r, func(line string) {
		if _, p, ok := strings.Cut(line, "  "); ok {
			files = h.add(files, p)
		}
	})
	return files, err
}

// pacmanFiles reads the files of a package of Arch Linux: what follows a line %FILES%.
func (h *paths) pacmanFiles(r io.Reader) (files []uint64, err error) {
	inside := false
	err = lines(r, func(line string) {
		switch {
		case strings.HasPrefix(line, "%"):
			inside = line == "%FILES%"
		case inside && line != "" && !strings.HasSuffix(line, "/"):
			files = h.add(files, line)
		}
	})
	return files, err
}

// apkFiles reads the files of all packages of a database of Alpine's, by the name of the
// package.
func (h *paths) apkFiles(r io.Reader) (map[string][]uint64, error) {
	owned := map[string][]uint64{}
	name, dir := "", ""
	err := lines(r, func(line string) {
		if line == "" {
			name, dir = "", ""
			return
		}
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "P":
			name = value
		case "F":
			dir = value
		case "R":
			owned[name] = h.add(owned[name], dir+"/"+value)
		}
	})
	return owned, err
}

func isBinary(head []byte) bool {
	for _, magic := range []string{"\x7fELF", "MZ", "\xcf\xfa\xed\xfe", "\xfe\xed\xfa\xcf", "\xca\xfe\xba\xbe"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return false
}
