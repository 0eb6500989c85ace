// Package inspecttest makes files of images for tests: rpm databases, and programs with known modules.
package inspecttest

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// An RPM is a package in an rpm database.
type RPM struct {
	Name, Version, Release string
	Epoch                  uint32
	Source                 string // file name of the source package
	Module                 string // label of the module, with its stream
}

// Header returns the header of a package in a database: the number of tags, the number of bytes, the tags, and the
// bytes.
func (p RPM) Header() []byte {
	var index, data bytes.Buffer
	tags := 0
	add := func(tag, kind uint32, value []byte) {
		must(binary.Write(&index, binary.BigEndian, []uint32{tag, kind, uint32(data.Len()), 1}))
		data.Write(value)
		tags++
	}
	const number, text = 4, 6
	add(1003, number, binary.BigEndian.AppendUint32(nil, p.Epoch))
	for _, t := range []struct {
		tag   uint32
		value string
	}{{1000, p.Name}, {1001, p.Version}, {1002, p.Release}, {1022, "x86_64"}, {1044, p.Source}} {
		add(t.tag, text, []byte(t.value+"\x00"))
	}
	if p.Module != "" {
		add(5096, text, []byte(p.Module+"\x00"))
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(tags))
	head = binary.BigEndian.AppendUint32(head, uint32(data.Len()))
	return append(append(head, index.Bytes()...), data.Bytes()...)
}

// RPMSqlite returns a database in the current format, rpmdb.sqlite. The test must import the driver "sqlite".
func RPMSqlite(t testing.TB, packages ...RPM) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rpmdb.sqlite")
	db, err := sql.Open("sqlite", name)
	must(err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
	must(err)
	for _, p := range packages {
		_, err = db.ExecContext(t.Context(), "INSERT INTO Packages (blob) VALUES (?)", p.Header())
		must(err)
	}
	must(db.Close())
	content, err := os.ReadFile(name)
	must(err)
	return string(content)
}

// RPMNdb returns a database in SUSE's format, Packages.db.
func RPMNdb(packages ...RPM) string {
	var headers [][]byte
	for _, p := range packages {
		headers = append(headers, p.Header())
	}
	return RPMNdbOf(headers...)
}

// RPMNdbOf returns a database in SUSE's format with any headers: a page of slots, and then the headers.
func RPMNdbOf(headers ...[]byte) string {
	const page, block = 4096, 16
	slots := binary.LittleEndian.AppendUint32([]byte("RpmP"), 0)
	slots = append(slots, make([]byte, 4)...)
	slots = binary.LittleEndian.AppendUint32(slots, 1) // number of pages
	slots = append(slots, make([]byte, 16)...)
	var blobs []byte
	for i, h := range headers {
		position := (page + len(blobs)) / block
		slots = append(slots, "Slot"...)
		for _, n := range []int{i + 1, position, (len(h) + 2*block + block - 1) / block} {
			slots = binary.LittleEndian.AppendUint32(slots, uint32(n))
		}
		blobs = append(blobs, "BlbS"...)
		for _, n := range []int{i + 1, 0, len(h)} {
			blobs = binary.LittleEndian.AppendUint32(blobs, uint32(n))
		}
		blobs = append(blobs, h...)
		for len(blobs)%block != 0 {
			blobs = append(blobs, 0)
		}
	}
	for len(slots) < page {
		slots = append(slots, "Slot\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	}
	return string(slots) + string(blobs)
}

// RPMBerkeley returns a database in the oldest format, Packages: a hash of Berkeley DB. It has a page with metadata, a
// page of keys and values, and pages for the headers. The pages are so short that every header needs several pages.
func RPMBerkeley(packages ...RPM) string {
	const page, head = 512, 26
	const isOverflow, isMeta, isHash, isElsewhere = 7, 8, 13, 3
	order := binary.LittleEndian
	put := func(number, next uint32, entries, free uint16, kind byte, body []byte) []byte {
		p := make([]byte, page)
		order.PutUint32(p[8:], number)
		order.PutUint32(p[16:], next)
		order.PutUint16(p[20:], entries)
		order.PutUint16(p[22:], free)
		p[25] = kind
		copy(p[head:], body)
		return p
	}
	var overflow []byte
	hash := make([]byte, page-head)
	end := page // keys and values are written from the end of the page towards its start
	entry := func(i int, value []byte) {
		end -= len(value)
		copy(hash[end-head:], value)
		order.PutUint16(hash[2*i:], uint16(end))
	}
	next := uint32(2)
	for i, p := range packages {
		h := p.Header()
		entry(2*i, order.AppendUint32([]byte{1}, uint32(i+1)))
		value := order.AppendUint32([]byte{isElsewhere, 0, 0, 0}, next)
		entry(2*i+1, order.AppendUint32(value, uint32(len(h))))
		for len(h) > 0 {
			n := min(len(h), page-head)
			following := next + 1
			if n == len(h) {
				following = 0
			}
			overflow = append(overflow, put(next, following, 1, uint16(n), isOverflow, h[:n])...)
			h, next = h[n:], next+1
		}
	}
	meta := put(0, 9, 0, 0, isMeta, nil) // 9 is the version of the format
	order.PutUint32(meta[12:], 0x00061561)
	order.PutUint32(meta[20:], page)
	meta[24] = 0 // zero means not encrypted
	order.PutUint32(meta[32:], next-1)
	return string(meta) + string(put(1, 0, uint16(2*len(packages)), uint16(end), isHash, hash)) + string(overflow)
}
