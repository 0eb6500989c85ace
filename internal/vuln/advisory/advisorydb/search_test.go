package advisorydb

import (
	"slices"
	"testing"
)

// TestBlock checks that a search finds parts of a text, and nothing that spans two texts.
func TestBlock(t *testing.T) {
	b := &block{}
	b.add(5, "a-1\x00openssl\x00")
	b.add(6, "a-2\x00curl\x00cve-1\x00")
	b.add(7, "a-3\x00openssl-doc\x00openssl\x00")
	check := func(b *block, pattern string, want ...int64) {
		t.Helper()
		if got := b.find([]byte(pattern)); !slices.Equal(got, want) {
			t.Errorf("%q is in %v, want %v", pattern, got, want)
		}
	}
	decoded, err := decodeBlock(b.encode())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []*block{b, decoded} {
		check(b, "ssl", 5, 7)
		check(b, "a-", 5, 6, 7)
		check(b, "cve-1", 6)
		check(b, "ssla-2")
		check(b, "nothing")
	}
	check(b.with(6, "a-2\x00ssl\x00"), "ssl", 5, 6, 7)
	check(b.with(6, "a-2\x00ssl\x00"), "curl")
	check(b.with(7, ""), "ssl", 5)
	for n := range len(b.encode()) {
		if _, err := decodeBlock(b.encode()[:n]); err == nil {
			t.Errorf("a block that is cut after %d bytes is decoded", n)
		}
	}
}

// TestTextCacheIsBounded checks that the cache evicts blocks when it is full.
func TestTextCacheIsBounded(t *testing.T) {
	cache := &textCache{blocks: map[int64]versionedBlock{}}
	for i := range int64(40) {
		cache.put(i, 0, 1, &block{text: make([]byte, 8<<20)})
		cache.put(i, 0, 2, &block{text: make([]byte, 8<<20)})
	}
	if cache.bytes > textCacheBytes || cache.bytes < textCacheBytes/2 {
		t.Errorf("%d bytes are cached", cache.bytes)
	}
	if _, ok := cache.get(39, 0, 1); ok {
		t.Error("an old version is cached")
	}
	if _, ok := cache.get(39, 0, 2); !ok {
		t.Error("the newest version is not cached")
	}
	if _, ok := cache.get(39, 1, 2); ok {
		t.Error("the cache returns a block of another history")
	}
}

// TestMergeSorted checks that overlapping lists are merged into one sorted list.
func TestMergeSorted(t *testing.T) {
	for _, c := range []struct{ lists [][]int64 }{
		{nil},
		{[][]int64{nil, {}}},
		{[][]int64{{1, 2}, {3, 4}}},
		{[][]int64{{3, 4}, {1, 2}}},
		{[][]int64{{1, 5, 9}, {2, 3, 6}, {4, 10}}},
		{[][]int64{{1, 2, 3}, {2, 3, 4}, {9, 5}}},
		{[][]int64{{1, 20}, {2}, {3}, {4, 21}, {5}}},
	} {
		want := slices.Concat(c.lists...)
		slices.Sort(want)
		want = slices.Compact(want)
		if got := mergeSorted(c.lists); !slices.Equal(got, want) {
			t.Errorf("%v become %v, want %v", c.lists, got, want)
		}
	}
}
