package store

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

func TestAPackedGroupIsTheSame(t *testing.T) {
	root := resource.NewRoot()
	for name, g := range map[string]resource.Group{
		"empty":     {CreateTime: fromMS(0), UpdateTime: fromMS(0)},
		"a root":    {UID: root, Name: "acme", Kind: resource.OrgDev, Verified: true, CreateTime: fromMS(1), UpdateTime: fromMS(2)},
		"a child":   {UID: root.NewChild(), Name: "n", Description: strings.Repeat("größe ", 1000), CreateTime: fromMS(time.Now().UnixMilli()), UpdateTime: fromMS(-5)},
		"odd kinds": {UID: root.NewChild(), Kind: -1, CreateTime: fromMS(0), UpdateTime: fromMS(1 << 50)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pack(&g).group(); got != g {
				t.Errorf("got %v, want %v", got, g)
			}
		})
	}
}

// TestWhatWasUsedLatelyStays: as many as the size are always kept, those used
// last, and never more than twice as many.
func TestWhatWasUsedLatelyStays(t *testing.T) {
	const size = 10
	l := lately[int, int]{size: size}
	l.dropAll()
	for i := range 10 * size {
		l.put(i, i)
		for j := max(0, i-size+2); j <= i; j++ { // the others, and among them 0
			if v, ok := l.get(j); !ok || v != j {
				t.Fatalf("after %d, %d is %d, %v", i, j, v, ok)
			}
		}
		if _, ok := l.get(0); !ok {
			t.Fatalf("after %d, what is always used is gone", i)
		}
		if n := len(l.young) + len(l.old); n > 2*size {
			t.Fatalf("%d are kept", n)
		}
	}
	if _, ok := l.get(size); ok {
		t.Error("what was not used for long is kept")
	}
	l.drop(0)
	if _, ok := l.get(0); ok {
		t.Error("what was dropped is kept")
	}
}
