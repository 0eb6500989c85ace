package extract

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	_ "modernc.org/sqlite" // driver for rpm databases in the SQLite format
)

// rpmHeaders calls f with the header of each package in an rpm database. There are three formats: SQLite, a hash table
// of Berkeley DB, and SUSE's own. A hostile database can contain any numbers, so each number is compared with the size
// of the file before it is used, and no part of the file is read twice.
func rpmHeaders(ctx context.Context, name string, f func(header []byte) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	db := rpmFile{ReaderAt: file, size: info.Size(), unread: info.Size()}
	start, err := db.bytes(0, 4)
	switch {
	case err != nil:
		return err
	case string(start) == "SQLi":
		return sqliteHeaders(ctx, name, f)
	case string(start) == "RpmP":
		return db.ndbHeaders(ctx, f)
	}
	return db.hashHeaders(ctx, f)
}

func sqliteHeaders(ctx context.Context, name string, f func([]byte) error) error {
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, "SELECT blob FROM Packages")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var header []byte
		if err := rows.Scan(&header); err != nil {
			return err
		}
		if err := f(header); err != nil {
			return err
		}
	}
	return rows.Err()
}

// An rpmFile is a database that is not in the SQLite format.
type rpmFile struct {
	io.ReaderAt
	size   int64
	unread int64 // number of bytes of headers that can still be read
	order  binary.ByteOrder
}

var errBeyondEnd = errors.New("the database refers to data beyond its end, or twice to the same data")

// bytes returns n bytes at a position.
func (db *rpmFile) bytes(position, n int64) ([]byte, error) {
	if position < 0 || n < 0 || n > db.size || position > db.size-n {
		return nil, errBeyondEnd
	}
	b := make([]byte, n)
	_, err := db.ReadAt(b, position)
	if errors.Is(err, io.EOF) { // ReadAt may return it with the last bytes of a file
		err = nil
	}
	return b, err
}

// header is bytes for a part of a header.
func (db *rpmFile) header(position, n int64) ([]byte, error) {
	if db.unread -= n; db.unread < 0 {
		return nil, errBeyondEnd
	}
	return db.bytes(position, n)
}

// The format of SUSE: a header of 32 bytes, slots of 16 bytes in pages, and blobs. A blob begins with 16 bytes: a magic
// number, the number of the package, a checksum and the length.
const (
	ndbSlot     = 16
	ndbPage     = 4096
	ndbMaxPages = 2048
)

func (db *rpmFile) ndbHeaders(ctx context.Context, f func([]byte) error) error {
	head, err := db.bytes(0, 2*ndbSlot)
	if err != nil {
		return err
	}
	number := binary.LittleEndian.Uint32
	pages := number(head[12:])
	if pages == 0 || pages > ndbMaxPages {
		return fmt.Errorf("the database has %d pages of slots", pages)
	}
	slots, err := db.bytes(2*ndbSlot, int64(pages)*ndbPage-2*ndbSlot)
	if err != nil {
		return err
	}
	for ; len(slots) > 0 && ctx.Err() == nil; slots = slots[ndbSlot:] {
		if string(slots[:4]) != "Slot" {
			return errors.New("a slot of the database is invalid")
		}
		if number(slots[4:]) == 0 {
			continue // the slot is empty
		}
		position := int64(number(slots[8:])) * ndbSlot
		blob, err := db.bytes(position, ndbSlot)
		if err != nil {
			return err
		}
		if string(blob[:4]) != "BlbS" || number(blob[4:]) != number(slots[4:]) {
			return errors.New("a blob of the database is invalid")
		}
		header, err := db.header(position+ndbSlot, int64(number(blob[12:])))
		if err == nil {
			err = f(header)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// The format of Berkeley DB: pages that begin with 26 bytes. A page of the hash table has pairs of a key and a value,
// with their positions after these bytes. The value of a package is on a list of overflow pages.
const (
	hashMagic      = 0x61561
	hashPageStart  = 26
	hashUnsorted   = 2  // type of a page of the table, in old versions
	hashOverflow   = 7  // type of an overflow page
	hashMeta       = 8  // type of the first page
	hashSorted     = 13 // type of a page of the table
	hashOnOverflow = 3  // type of a value that is on overflow pages
	hashValue      = 12 // bytes of such a value in its page
)

func (db *rpmFile) hashHeaders(ctx context.Context, f func([]byte) error) error {
	meta, err := db.bytes(0, 72)
	if err != nil {
		return err
	}
	db.order = binary.LittleEndian
	if binary.BigEndian.Uint32(meta[12:]) == hashMagic {
		db.order = binary.BigEndian
	}
	size, last := int64(db.order.Uint32(meta[20:])), int64(db.order.Uint32(meta[32:]))
	const encrypted, kind = 24, 25
	if db.order.Uint32(meta[12:]) != hashMagic || meta[encrypted] != 0 || meta[kind] != hashMeta ||
		size < 512 || size > 64<<10 || size&(size-1) != 0 {
		return errors.New("the file is not an rpm database in a known format")
	}
	for n := int64(0); n <= last && ctx.Err() == nil; n++ {
		page, err := db.bytes(n*size, size)
		if err == nil && (page[kind] == hashUnsorted || page[kind] == hashSorted) {
			err = db.hashValues(page, f)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// hashValues calls f with each header that a page of the hash table names.
func (db *rpmFile) hashValues(page []byte, f func([]byte) error) error {
	entries := int(db.order.Uint16(page[20:]))
	if hashPageStart+2*entries > len(page) {
		return errBeyondEnd
	}
	for i := 1; i < entries; i += 2 {
		offset := int(db.order.Uint16(page[hashPageStart+2*i:]))
		if offset >= len(page) {
			return errBeyondEnd
		}
		if page[offset] != hashOnOverflow {
			continue
		}
		if offset+hashValue > len(page) {
			return errBeyondEnd
		}
		header, err := db.overflow(int64(db.order.Uint32(page[offset+4:])), int64(len(page)))
		if err == nil {
			err = f(header)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// overflow returns the content of a list of overflow pages.
func (db *rpmFile) overflow(number, size int64) ([]byte, error) {
	var content bytes.Buffer
	for number != 0 {
		page, err := db.header(number*size, size)
		if err != nil {
			return nil, err
		}
		if page[25] != hashOverflow {
			return nil, errors.New("a page of the database has the wrong type")
		}
		number = int64(db.order.Uint32(page[16:]))
		end := len(page)
		if number == 0 {
			end = hashPageStart + int(db.order.Uint16(page[22:]))
		}
		if end > len(page) {
			return nil, errBeyondEnd
		}
		content.Write(page[hashPageStart:end])
	}
	return content.Bytes(), nil
}
