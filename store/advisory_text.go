package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/resource"
)

// This file searches the text of advisories: names, aliases and ids, for any
// part of a word. The text of a million of them is some 80 MB, so it is kept in
// blocks of a thousand or more, read once, remembered until their version
// changes, and searched byte by byte: 1.3 million take a few dozen
// milliseconds, whatever is asked. An index of trigrams would be faster for
// rare words, slower for common ones ("cve" is in all of them, and the total
// must be told), and would cost an import more than all the rest.

// A block is the text of some advisories, in the order of their segments.
type block struct {
	segs []int64
	ends []uint32 // where each one's text ends
	text []byte
}

const (
	blockRows   = 1024      // what is added by hand joins the last block until it has as many
	blocksBytes = 128 << 20 // remembered
)

func (b *block) add(seg int64, text string) {
	b.segs = append(b.segs, seg)
	b.text = append(b.text, text...)
	b.ends = append(b.ends, uint32(len(b.text)))
}

// with returns the block with the text of one advisory in place of another, or,
// if that is empty, without it.
func (b *block) with(seg int64, text string) *block {
	out := &block{}
	from := uint32(0)
	for i, s := range b.segs {
		if s != seg {
			out.add(s, string(b.text[from:b.ends[i]]))
		} else if text != "" {
			out.add(s, text)
		}
		from = b.ends[i]
	}
	return out
}

// find calls f for the segments of advisories that contain what. Texts end with
// a NUL, which what does not have, so that nothing is found across two.
func (b *block) find(what []byte, f func(seg int64)) {
	for at := 0; ; {
		i := bytes.Index(b.text[at:], what)
		if i < 0 {
			return
		}
		n := sort.Search(len(b.ends), func(k int) bool { return int(b.ends[k]) > at+i })
		f(b.segs[n])
		at = int(b.ends[n])
	}
}

func (b *block) encode() []byte {
	out := make([]byte, 0, 4+12*len(b.segs)+len(b.text))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(b.segs)))
	for i, seg := range b.segs {
		out = binary.LittleEndian.AppendUint64(out, uint64(seg))
		out = binary.LittleEndian.AppendUint32(out, b.ends[i])
	}
	return append(out, b.text...)
}

func decodeBlock(data []byte) (*block, error) {
	if len(data) < 4 {
		return nil, errors.New("decode block: too short")
	}
	n := int(binary.LittleEndian.Uint32(data))
	data = data[4:]
	if len(data) < 12*n {
		return nil, errors.New("decode block: too short")
	}
	b := &block{segs: make([]int64, n), ends: make([]uint32, n), text: data[12*n:]}
	for i := range n {
		b.segs[i] = int64(binary.LittleEndian.Uint64(data[12*i:]))
		b.ends[i] = binary.LittleEndian.Uint32(data[12*i+8:])
	}
	if n > 0 && int(b.ends[n-1]) != len(b.text) {
		return nil, errors.New("decode block: the text has another length")
	}
	return b, nil
}

// text adds the texts of new advisories to a group's blocks and returns the
// block they are in. Many are a block of their own.
func (t *tx) text(ctx context.Context, group resource.UID, drafts []draft) (int64, error) {
	id, b, version := segment(drafts[0].a.UID), &block{}, int64(0)
	if len(drafts) < blockRows/2 {
		var last, n int64
		var data []byte
		err := t.row(ctx, `SELECT t.block, t.version, t.n, t.body FROM advisory_texts AS t WHERE t.parent = $1 ORDER BY t.block DESC LIMIT 1`+t.s.engine.lock,
			[]any{segment(group)}, &last, &version, &n, &data)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		if err == nil && n+int64(len(drafts)) <= blockRows {
			if b, err = decodeBlock(data); err != nil {
				return 0, err
			}
			id = last
		} else {
			version = 0
		}
	}
	for _, d := range drafts {
		b.add(segment(d.a.UID), d.text)
	}
	return id, t.putBlock(ctx, group, id, version+1, b)
}

// retext changes the text of one advisory in its block; an empty one takes it
// out.
func (t *tx) retext(ctx context.Context, group resource.UID, id, seg int64, text string) error {
	var version int64
	var data []byte
	err := t.row(ctx, `SELECT t.version, t.body FROM advisory_texts AS t WHERE t.parent = $1 AND t.block = $2`+t.s.engine.lock,
		[]any{segment(group), id}, &version, &data)
	if err != nil {
		return fmt.Errorf("read block %d: %w", id, err)
	}
	b, err := decodeBlock(data)
	if err != nil {
		return err
	}
	if b = b.with(seg, text); len(b.segs) == 0 {
		_, err := t.exec(ctx, `DELETE FROM advisory_texts WHERE parent = $1 AND block = $2`, segment(group), id)
		return err
	}
	return t.putBlock(ctx, group, id, version+1, b)
}

func (t *tx) putBlock(ctx context.Context, group resource.UID, id, version int64, b *block) error {
	_, err := t.exec(ctx, `
		INSERT INTO advisory_texts (parent, block, version, n, body) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (parent, block) DO UPDATE SET version = excluded.version, n = excluded.n, body = excluded.body`,
		segment(group), id, version, len(b.segs), b.encode())
	return err
}

// texts remembers blocks.
type texts struct {
	mu    sync.Mutex
	all   *lru.Cache[int64, versioned]
	bytes int
}

type versioned struct {
	version int64
	*block
}

func newTexts() (*texts, error) {
	t := &texts{}
	all, err := lru.NewWithEvict(1<<20, func(_ int64, v versioned) { t.bytes -= len(v.text) + 12*len(v.segs) })
	t.all = all
	return t, err
}

func (t *texts) get(id, version int64) (*block, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.all.Get(id)
	return v.block, ok && v.version == version
}

func (t *texts) put(id, version int64, b *block) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.Remove(id)
	t.all.Add(id, versioned{version, b})
	t.bytes += len(b.text) + 12*len(b.segs)
	for t.bytes > blocksBytes {
		t.all.RemoveOldest()
	}
}

// search returns the segments of the advisories directly in the groups that
// contain what, in order.
func (s *Store) search(ctx context.Context, groups []resource.UID, what string) ([]int64, error) {
	pattern := []byte(strings.ToLower(what))
	var found []int64
	for _, g := range groups {
		type version struct{ id, version int64 }
		var blocks []version
		err := s.rows(ctx, `SELECT block, version FROM advisory_texts WHERE parent = $1`, []any{segment(g)}, func(row scanner) (bool, error) {
			var v version
			err := row.Scan(&v.id, &v.version)
			blocks = append(blocks, v)
			return false, err
		})
		if err != nil {
			return nil, err
		}
		for _, v := range blocks {
			b, err := s.block(ctx, g, v.id, v.version)
			if err != nil {
				return nil, err
			}
			b.find(pattern, func(seg int64) { found = append(found, seg) })
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// block returns a block: from memory if that has the version asked for, else as
// it is now.
func (s *Store) block(ctx context.Context, group resource.UID, id, version int64) (*block, error) {
	if b, ok := s.texts.get(id, version); ok {
		return b, nil
	}
	var data []byte
	err := s.row(ctx, `SELECT version, body FROM advisory_texts WHERE parent = $1 AND block = $2`, []any{segment(group), id}, &version, &data)
	if errors.Is(err, sql.ErrNoRows) { // gone meanwhile
		return &block{}, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := decodeBlock(data)
	if err == nil {
		s.texts.put(id, version, b)
	}
	return b, err
}
