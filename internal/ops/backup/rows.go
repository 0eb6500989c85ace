package backup

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/fxamacker/cbor/v2"

	"github.com/holdfast-dev/holdfast/internal/store/dump"
)

// The file of a table is a sequence of CBOR arrays (RFC 8742), one for each row,
// compressed with gzip. CBOR distinguishes text from bytes and has 64-bit numbers.

// A counted is a writer that counts and hashes the bytes that it writes.
type counted struct {
	io.Writer
	hash.Hash
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += int64(n)
	c.Hash.Write(b[:n])
	return n, err
}

// putTable writes the rows of a table.
func putTable(ctx context.Context, p Place, folder string, d *dump.Snapshot, t dump.Table) (TableFile, error) {
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := p.Put(ctx, folder+t.Name, in)
		in.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // stops the writer if Put returned early
		done <- err
	}()
	file := TableFile{Table: t}
	w := &counted{Writer: out, Hash: sha256.New()}
	err := encodeRows(w, func(encode func(row []any) error) error {
		return d.Rows(ctx, t, func(row []any) error {
			file.Rows++
			return encode(row)
		})
	})
	out.CloseWithError(err)
	if err := cmp.Or(<-done, err); err != nil { // if both failed, the error that Put returned is the cause
		return file, fmt.Errorf("table %s: %w", t.Name, err)
	}
	file.Size, file.SHA256 = w.n, hex.EncodeToString(w.Sum(nil))
	return file, nil
}

// encodeRows calls each with a function that encodes a row to w.
func encodeRows(w io.Writer, each func(encode func(row []any) error) error) error {
	buffered := bufio.NewWriterSize(w, 1<<20)
	packed, err := gzip.NewWriterLevel(buffered, gzip.BestSpeed)
	if err != nil {
		return err
	}
	plain := bufio.NewWriterSize(packed, 1<<16)
	rows := cbor.NewEncoder(plain)
	if err := each(func(row []any) error { return rows.Encode(row) }); err != nil {
		return err
	}
	return errors.Join(plain.Flush(), packed.Close(), buffered.Flush())
}

// decoding reads numbers as dump.Loader expects them.
var decoding = func() cbor.DecMode {
	mode, err := cbor.DecOptions{IntDec: cbor.IntDecConvertSignedOrFail}.DecMode()
	if err != nil {
		panic(err) // happens only if the options contradict each other
	}
	return mode
}()

// readRows calls f with a function that returns the next row of a table, and io.EOF at the end. Afterwards it returns
// fault.FailedPrecondition if the file does not match the manifest.
func readRows(
	ctx context.Context, p Place, folder string, t TableFile, f func(next func() ([]any, error)) error,
) error {
	file, err := p.Open(ctx, folder+t.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	whole := io.TeeReader(bufio.NewReaderSize(file, 1<<20), sum)
	packed, err := gzip.NewReader(whole)
	if err != nil {
		return refuse("table %s is damaged: %v", t.Name, err)
	}
	rows := decoding.NewDecoder(bufio.NewReaderSize(packed, 1<<16))
	var n int64
	err = f(func() ([]any, error) {
		var row []any
		if err := rows.Decode(&row); errors.Is(err, io.EOF) {
			return nil, io.EOF
		} else if err != nil {
			return nil, refuse("table %s is damaged: %v", t.Name, err)
		}
		if n++; len(row) != len(t.Columns) {
			return nil, refuse("table %s is damaged: a row has %d columns", t.Name, len(row))
		}
		return row, ctx.Err()
	})
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, whole); err != nil {
		return err
	}
	if n != t.Rows || hex.EncodeToString(sum.Sum(nil)) != t.SHA256 {
		return refuse("table %s is damaged: it does not match the manifest", t.Name)
	}
	return nil
}
