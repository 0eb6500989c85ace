package bitmap_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
)

// TestSet compares random operations on sets with the same operations on maps.
func TestSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var a, b bitmap.Set
		in, other := map[int]bool{}, map[int]bool{}
		for range rng.IntN(400) {
			place := rng.IntN(bitmap.Size)
			a.Add(place)
			in[place] = true
		}
		for range rng.IntN(400) {
			place := rng.IntN(bitmap.Size)
			b.Add(place)
			other[place] = true
		}
		or, and, minus, one := a, a, a, a
		or.Or(&b)
		and.And(&b)
		minus.Minus(&b)
		one.Remove(7)
		var places []int
		for place := range bitmap.Size {
			if in[place] {
				places = append(places, place)
			}
			if a.Has(place) != in[place] || or.Has(place) != (in[place] || other[place]) ||
				and.Has(place) != (in[place] && other[place]) || minus.Has(place) != (in[place] && !other[place]) ||
				one.Has(place) != (in[place] && place != 7) {
				t.Fatalf("place %d is wrong", place)
			}
		}
		if got := slices.Collect(a.All()); !slices.Equal(got, places) || a.Len() != len(places) {
			t.Fatalf("%d places, want %v", a.Len(), places)
		}
		back, err := bitmap.Decode(a.Encode())
		if err != nil || back != a {
			t.Fatalf("%d places are not decoded: %v", a.Len(), err)
		}
	}
}

// FuzzDecode checks that bytes are either refused, or decode to a set whose own bytes
// decode to the same set.
func FuzzDecode(f *testing.F) {
	full := bitmap.Set{}
	for place := range bitmap.Size {
		full.Add(place)
	}
	for _, seed := range [][]byte{nil, {1}, {0, 8}, {255, 7}, full.Encode(), bytes.Repeat([]byte{3}, 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := bitmap.Decode(b)
		if err != nil {
			return
		}
		if back, err := bitmap.Decode(s.Encode()); err != nil || back != s {
			t.Errorf("%x is not the same again", b)
		}
	})
}
