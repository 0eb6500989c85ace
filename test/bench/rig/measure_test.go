package rig_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

func TestQuantile(t *testing.T) {
	all := []int{5, 1, 4, 2, 3}
	for q, want := range map[float64]int{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := rig.Quantile(all, q); got != want {
			t.Errorf("quantile %v = %d, want %d", q, got, want)
		}
	}
}
