package extract

import (
	"bufio"
	"bytes"
	"hash/maphash"
	"io"
	"path"
	"strings"
)

// maxOwned is the maximum number of files, in all packages of the image's distribution, whose paths are kept in memory.
// Each takes eight bytes.
const maxOwned = 4_000_000

const maxLine = 64 << 10

// paths hashes the paths of files that belong to packages of a distribution.
type paths struct {
	seed maphash.Seed
	left int // number of paths that can still be added
}

func newPaths() *paths { return &paths{seed: maphash.MakeSeed(), left: maxOwned} }

func (h *paths) hash(p string) uint64 { return maphash.String(h.seed, p) }

// add appends the hash of a path to files, unless the limit is reached.
func (h *paths) add(files []uint64, p string) []uint64 {
	p = strings.TrimPrefix(path.Clean("/"+p), "/")
	if p == "" || h.left <= 0 {
		return files
	}
	h.left--
	return append(files, h.hash(p))
}

// names returns the hashes of the two paths under which a file may be listed. Since /lib became a link to /usr/lib, a
// list may contain one path while the archive contains the other.
func (h *paths) names(p string) []uint64 {
	names := []uint64{h.hash(p)}
	if rest, ok := strings.CutPrefix(p, "usr/"); ok {
		return append(names, h.hash(rest))
	}
	return append(names, h.hash("usr/"+p))
}

// lines calls f with each line. It returns an error for a line of more than maxLine bytes.
func lines(r io.Reader, f func(line string)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		f(s.Text())
	}
	return s.Err()
}

// dpkgList reads the list of a package's files and folders, with one path per line. It omits folders, which precede
// their files.
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

// dpkgSums reads the checksums of a package's files, with a checksum and a path per line.
func (h *paths) dpkgSums(r io.Reader) (files []uint64, err error) {
	err = lines(r, func(line string) {
		if _, p, ok := strings.Cut(line, "  "); ok {
			files = h.add(files, p)
		}
	})
	return files, err
}

// pacmanFiles reads the list of files of an Arch Linux package: the lines after %FILES%.
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

// apkFiles reads the files of all packages in an apk database, by package name.
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
