package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

func TestOverlap(t *testing.T) {
	const a, b = resource.UID("0123456789abcdef0123456789abcdef01234567"),
		resource.UID("1123456789abcdef0123456789abcdef01234567")
	ax, ay := a+"/0123456789abcdef", a+"/1123456789abcdef"
	tests := map[string]struct{ x, y, want []resource.UID }{
		"nothing":              {nil, []resource.UID{a}, nil},
		"the same":             {[]resource.UID{a, b}, []resource.UID{a, b}, []resource.UID{a, b}},
		"apart":                {[]resource.UID{a}, []resource.UID{b}, nil},
		"one within the other": {[]resource.UID{a}, []resource.UID{ax, b}, []resource.UID{ax}},
		"both ways": {[]resource.UID{a, b + "/0123456789abcdef"}, []resource.UID{ax, ay, b},
			[]resource.UID{ax, ay, b + "/0123456789abcdef"}},
	}
	for name, tt := range tests {
		if diff := cmp.Diff(tt.want, store.Overlap(tt.x, tt.y)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(tt.want, store.Overlap(tt.y, tt.x)); diff != "" {
			t.Errorf("%s, the other way round: %s", name, diff)
		}
	}
}
