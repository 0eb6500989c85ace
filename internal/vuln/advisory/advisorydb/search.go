package advisorydb

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// This file searches the names, aliases and IDs of advisories for any part of a word. These texts take about 80 MB for
// a million advisories. They are stored in blocks of a thousand advisories or more. Blocks are cached until their
// version changes, and searched byte by byte on all cores: a search in 1.3 million advisories takes a few dozen
// milliseconds. An index of trigrams would be faster for rare words, but slower for common words ("cve" is in almost
// every text, and the total must be exact). Writing it would also take most of the time of an import.

// A block is the search text of advisories, ordered by segment.
type block struct {
	segs []int64
	ends []uint32 // offset in text at which each advisory's text ends
	text []byte
}

const (
	blockRows      = 1024      // number of advisories up to which small imports are added to the last block
	textCacheBytes = 192 << 20 // maximum size of the cache in bytes
)

func (b *block) add(seg int64, text string) {
	b.segs = append(b.segs, seg)
	b.text = append(b.text, text...)
	b.ends = append(b.ends, uint32(len(b.text)))
}

// with returns a copy of the block in which the advisory seg has another text, or which omits seg if text is empty.
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

// find returns the segments of the advisories whose text contains pattern. A match cannot span two advisories, because
// every text ends with a NUL and pattern contains none.
func (b *block) find(pattern []byte) (segs []int64) {
	for offset, n := 0, 0; ; n++ {
		i := bytes.Index(b.text[offset:], pattern)
		if i < 0 {
			return segs
		}
		for int(b.ends[n]) <= offset+i {
			n++
		}
		segs = append(segs, b.segs[n])
		offset = int(b.ends[n])
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
		return nil, errors.New("decode block: wrong length of the text")
	}
	return b, nil
}

// addTexts adds the texts of new advisories to one of the group's blocks, and returns the block's id. It creates a new
// block if there are many advisories.
func (t Tx) addTexts(ctx context.Context, group resource.UID, drafts []draft) (int64, error) {
	id, b, version := store.Segment(drafts[0].a.UID), &block{}, int64(0)
	if len(drafts) < blockRows/2 {
		var last, n int64
		var data []byte
		err := t.Row(ctx, `SELECT t.block, t.version, t.n, t.body FROM advisory_texts AS t WHERE t.parent = $1
			ORDER BY t.block DESC LIMIT 1`+t.DB.Engine.ForUpdate,
			[]any{store.Segment(group)}, &last, &version, &n, &data)
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
		b.add(store.Segment(d.a.UID), d.text)
	}
	return id, t.putBlock(ctx, group, id, version+1, b)
}

// replaceText changes the text of one advisory in its block. An empty text removes the advisory from the block.
func (t Tx) replaceText(ctx context.Context, group resource.UID, id, seg int64, text string) error {
	var version int64
	var data []byte
	err := t.Row(ctx, `SELECT t.version, t.body FROM advisory_texts AS t WHERE t.parent = $1
		AND t.block = $2`+t.DB.Engine.ForUpdate,
		[]any{store.Segment(group), id}, &version, &data)
	if err != nil {
		return fmt.Errorf("read block %d: %w", id, err)
	}
	b, err := decodeBlock(data)
	if err != nil {
		return err
	}
	if b = b.with(seg, text); len(b.segs) == 0 {
		_, err := t.Exec(ctx, `DELETE FROM advisory_texts WHERE parent = $1 AND block = $2`, store.Segment(group), id)
		return err
	}
	return t.putBlock(ctx, group, id, version+1, b)
}

func (t Tx) putBlock(ctx context.Context, group resource.UID, id, version int64, b *block) error {
	_, err := t.Exec(ctx, `
		INSERT INTO advisory_texts (parent, block, version, n, body) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (parent, block) DO UPDATE SET version = excluded.version, n = excluded.n, body = excluded.body`,
		store.Segment(group), id, version, len(b.segs), b.encode())
	return err
}

// A textCache caches blocks. It evicts an arbitrary block instead of the least recently used one, because every search
// reads all blocks of a group: if they are slightly more than the cache can hold, an LRU cache would evict each block
// just before it is used.
type textCache struct {
	mu     sync.Mutex
	blocks map[int64]versionedBlock // cached blocks by id
	bytes  int
}

// A versionedBlock is a block with its version, and the value of store.DB.History when it was read. After the history
// has changed, for example because a back-up was restored, another block may have the same version.
type versionedBlock struct {
	history, version int64
	*block
}

func (b *block) size() int { return len(b.text) + 12*len(b.segs) }

func (t *textCache) get(id, history, version int64) (*block, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.blocks[id]
	return v.block, ok && v.history == history && v.version == version
}

func (t *textCache) put(id, history, version int64, b *block) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evict(id)
	for victim := range t.blocks {
		if t.bytes+b.size() <= textCacheBytes {
			break
		}
		t.evict(victim)
	}
	t.blocks[id] = versionedBlock{history, version, b}
	t.bytes += b.size()
}

func (t *textCache) evict(id int64) {
	if v, ok := t.blocks[id]; ok {
		t.bytes -= v.size()
		delete(t.blocks, id)
	}
}

// search returns the sorted segments of the advisories that are directly in the groups and whose text contains query.
func (s *Store) search(ctx context.Context, groups []resource.UID, query string) ([]int64, error) {
	pattern := []byte(strings.ToLower(query))
	var found [][]int64
	for _, g := range groups {
		type version struct{ id, version int64 }
		var blocks []version
		err := s.Rows(ctx, `SELECT block, version FROM advisory_texts WHERE parent = $1`, []any{store.Segment(g)},
			func(row store.Scanner) (bool, error) {
				var v version
				err := row.Scan(&v.id, &v.version)
				blocks = append(blocks, v)
				return false, err
			})
		if err != nil {
			return nil, err
		}
		in := make([][]int64, len(blocks))
		tasks, ctx := errgroup.WithContext(ctx)
		tasks.SetLimit(runtime.GOMAXPROCS(0))
		for i, v := range blocks {
			tasks.Go(func() error {
				b, err := s.block(ctx, g, v.id, v.version)
				if err == nil {
					in[i] = b.find(pattern)
				}
				return err
			})
		}
		if err := tasks.Wait(); err != nil {
			return nil, err
		}
		found = append(found, in...)
	}
	return mergeSorted(found), nil
}

// mergeSorted merges lists into one sorted list. It is fast if few lists overlap, which is the case because each list
// comes from one block, and blocks are written one after the other.
func mergeSorted(lists [][]int64) []int64 {
	lists = slices.DeleteFunc(lists, func(l []int64) bool { return len(l) == 0 })
	n := 0
	for _, l := range lists {
		slices.Sort(l) // a list is already sorted, unless the clocks of replicas differ
		n += len(l)
	}
	slices.SortFunc(lists, func(a, b []int64) int { return cmp.Compare(a[0], b[0]) })
	out := make([]int64, 0, n)
	for _, l := range lists {
		i, _ := slices.BinarySearch(out, l[0])
		rest := slices.Clone(out[i:])
		for out = out[:i]; len(rest) > 0; {
			if len(l) == 0 || rest[0] <= l[0] {
				out, rest = append(out, rest[0]), rest[1:]
			} else {
				out, l = append(out, l[0]), l[1:]
			}
		}
		out = append(out, l...)
	}
	return slices.Compact(out)
}

// block returns the cached block if it has the given version. Otherwise it reads the stored block, which may be newer.
// It returns an empty block if the block no longer exists.
func (s *Store) block(ctx context.Context, group resource.UID, id, version int64) (*block, error) {
	history := s.History()
	if b, ok := s.textCache.get(id, history, version); ok {
		return b, nil
	}
	var data []byte
	err := s.Row(ctx, `SELECT version, body FROM advisory_texts WHERE parent = $1 AND block = $2`,
		[]any{store.Segment(group), id}, &version, &data)
	if errors.Is(err, sql.ErrNoRows) { // the block was deleted after its version was read
		return &block{}, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := decodeBlock(data)
	if err == nil {
		s.textCache.put(id, history, version, b)
	}
	return b, err
}
