package extract

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// readRpm reads an rpm database. If a part of it is invalid, it returns the packages before that part, and an error.
func (f *Finder) readRpm(ctx context.Context, file *layer.File) (*Claim, error) {
	name, err := file.Name()
	if err != nil {
		return nil, err
	}
	// The timeout is needed because a query in a hostile SQLite database may be endless.
	ctx, cancel := context.WithTimeout(ctx, rpmSeconds*time.Second)
	defer cancel()
	c := &Claim{}
	err = rpmHeaders(ctx, name, func(header []byte) error {
		p, err := parseRpm(header)
		if err != nil {
			return err
		}
		if p.name != "gpg-pubkey" { // a signing key, which rpm stores like a package
			c.packages = append(c.packages, f.rpmEntry(p))
		}
		if len(c.packages) > f.limits.Packages {
			return errors.New("the database has too many packages")
		}
		return nil
	})
	return c, err
}

func (f *Finder) rpmEntry(p rpm) *entry {
	e := &entry{kind: kindRpm, module: version.Stream(p.module), Package: Package{
		Name: p.name, Version: p.version + "-" + p.release, Arch: p.arch, SourceName: sourceOfRpm(p.source),
	}}
	if p.epoch != 0 {
		e.epoch = strconv.Itoa(int(p.epoch))
		e.Version = e.epoch + ":" + e.Version
	}
	p.eachFile(func(name string) { e.files = f.paths.add(e.files, name) })
	return e
}

// An rpm is a package in an rpm database.
type rpm struct {
	name, version, release, arch, source string

	module string // label of the module

	epoch       int32
	folders     []string
	folderIndex []int32 // index in folders, for each of names
	names       []string
}

// The tags and types of a header that this package reads.
const (
	rpmName, rpmVersion, rpmRelease, rpmEpoch = 1000, 1001, 1002, 1003

	rpmArch, rpmSource, rpmModule             = 1022, 1044, 5096
	rpmFolderIndex, rpmBaseNames, rpmDirNames = 1116, 1117, 1118

	rpmInt32, rpmString, rpmStrings = 4, 6, 8
)

// maxRpmPath is the longest path of a file, in bytes. Without a limit, a few long folders with many files would cost
// much more time than their size.
const maxRpmPath = 4096

// maxRpmFiles is the largest number of files of a package. Texts in memory are larger than in the header.
const maxRpmFiles = 1 << 20

// eachFile calls visit with the path of each file, unless the lists of files are invalid.
func (p rpm) eachFile(visit func(string)) {
	if len(p.folderIndex) != len(p.names) {
		return
	}
	for i, name := range p.names {
		folder := p.folderIndex[i]
		if folder < 0 || int(folder) >= len(p.folders) {
			return
		}
		if len(p.folders[folder])+len(name) <= maxRpmPath {
			visit(path.Join(p.folders[folder], name))
		}
	}
}

// An rpmTag is an entry in the index of a header.
type rpmTag struct{ kind, position, count uint32 }

var errRpmHeader = errors.New("the header of a package is invalid")

// parseRpm parses the header of a package: the number of tags, the number of bytes of data, the tags with 16 bytes
// each, and the data. If a tag occurs several times, the last counts.
func parseRpm(header []byte) (p rpm, _ error) {
	number := binary.BigEndian.Uint32
	if len(header) < 8 {
		return p, errRpmHeader
	}
	tags, size, rest := int64(number(header)), int64(number(header[4:])), header[8:]
	if tags < 1 || 16*tags+size > int64(len(rest)) {
		return p, errRpmHeader
	}
	data := rest[16*tags : 16*tags+size]
	last := map[uint32]rpmTag{}
	for ; tags > 0; tags, rest = tags-1, rest[16:] {
		switch tag := number(rest); tag {
		case rpmName, rpmVersion, rpmRelease, rpmEpoch, rpmArch, rpmSource, rpmModule, rpmFolderIndex, rpmBaseNames,
			rpmDirNames:
			last[tag] = rpmTag{number(rest[4:]), number(rest[8:]), number(rest[12:])}
		}
	}
	for tag, field := range map[uint32]*string{
		rpmName: &p.name, rpmVersion: &p.version, rpmRelease: &p.release, rpmArch: &p.arch, rpmSource: &p.source,
		rpmModule: &p.module,
	} {
		found, err := last[tag].strings(data, rpmString)
		if err != nil {
			return p, fmt.Errorf("%w: tag %d", err, tag)
		}
		*field = strings.Join(found, "")
	}
	epochs, err := last[rpmEpoch].numbers(data)
	if err == nil && len(epochs) > 0 {
		p.epoch = epochs[0]
	}
	if err == nil {
		p.folderIndex, err = last[rpmFolderIndex].numbers(data)
	}
	if err == nil {
		p.folders, err = last[rpmDirNames].strings(data, rpmStrings)
	}
	if err == nil {
		p.names, err = last[rpmBaseNames].strings(data, rpmStrings)
	}
	if p.source == "(none)" {
		p.source = ""
	}
	return p, err
}

// strings returns the value of a tag with texts that end with a zero byte. It returns nil for a tag that is missing.
func (t rpmTag) strings(data []byte, kind uint32) (all []string, _ error) {
	if t == (rpmTag{}) {
		return nil, nil
	}
	if t.kind != kind || int64(t.position) > int64(len(data)) || kind == rpmString && t.count != 1 ||
		t.count > maxRpmFiles {
		return nil, errRpmHeader
	}
	data = data[t.position:]
	for range t.count {
		text, rest, found := bytes.Cut(data, []byte{0})
		if !found {
			return nil, errRpmHeader
		}
		all, data = append(all, string(text)), rest
	}
	return all, nil
}

// numbers returns the value of a tag with numbers. It returns nil for a tag that is missing.
func (t rpmTag) numbers(data []byte) (all []int32, _ error) {
	if t == (rpmTag{}) {
		return nil, nil
	}
	if t.kind != rpmInt32 || int64(t.position)+4*int64(t.count) > int64(len(data)) {
		return nil, errRpmHeader
	}
	data = data[t.position:]
	for range t.count {
		all, data = append(all, int32(binary.BigEndian.Uint32(data))), data[4:]
	}
	return all, nil
}
