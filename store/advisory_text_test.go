package store

import (
	"slices"
	"testing"
)

// TestBlock finds what is in a text, and nothing across two of them.
func TestBlock(t *testing.T) {
	b := &block{}
	b.add(5, "a-1\x00openssl\x00")
	b.add(6, "a-2\x00curl\x00cve-1\x00")
	b.add(7, "a-3\x00openssl-doc\x00openssl\x00")
	found := func(b *block, what string) (segs []int64) {
		b.find([]byte(what), func(seg int64) { segs = append(segs, seg) })
		return segs
	}
	check := func(b *block, what string, want ...int64) {
		t.Helper()
		if got := found(b, what); !slices.Equal(got, want) {
			t.Errorf("%q is in %v, want %v", what, got, want)
		}
	}
	again, err := decodeBlock(b.encode())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []*block{b, again} {
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
			t.Errorf("a block of %d bytes can be read", n)
		}
	}
}

// TestTextsAreBounded checks that what is remembered has an end.
func TestTextsAreBounded(t *testing.T) {
	all, err := newTexts()
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(40) {
		all.put(i, 1, &block{text: make([]byte, 8<<20)})
		all.put(i, 2, &block{text: make([]byte, 8<<20)})
	}
	if all.bytes > blocksBytes || all.bytes < blocksBytes/2 {
		t.Errorf("%d bytes are remembered", all.bytes)
	}
	if _, ok := all.get(39, 1); ok {
		t.Error("an old version is remembered")
	}
	if _, ok := all.get(39, 2); !ok {
		t.Error("the newest version is not remembered")
	}
}
