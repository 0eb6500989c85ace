package findingdb_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// TestDamagedContents checks that Contents returns the packages of complete lists, and an error for a list that ends in
// the middle of a number or lacks one.
func TestDamagedContents(t *testing.T) {
	tests := map[string]struct {
		packages []byte
		want     []int64 // nil if the list is damaged
	}{
		"no packages":                        {[]byte{}, []int64{}},
		"two packages":                       {[]byte{5, 1, 3, 2}, []int64{5, 8}},
		"numbers of two bytes":               {[]byte{0x80, 1, 0x81, 2}, []int64{128}},
		"a package without its place":        {[]byte{5}, nil},
		"a second package without its place": {[]byte{5, 1, 3}, nil},
		"half of a package":                  {[]byte{0x80}, nil},
		"half of a place":                    {[]byte{5, 0x80}, nil},
	}
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		n := 0
		for name, tt := range tests {
			n++
			digest := fmt.Sprint("sha256:", n)
			_, err := s.Exec(t.Context(), `INSERT INTO inspections (digest, extractors, update_ms, distribution, warnings,
				packages, places) VALUES ($1, 1, 0, '', '', $2, $3)`, digest, tt.packages, []byte{})
			testkit.Must(t, err)
			got := []int64{}
			err = s.Contents(t.Context(), []string{digest}, func(_ string, packages []int64) error {
				got = append(got, packages...)
				return nil
			})
			if (err != nil) != (tt.want == nil) {
				t.Errorf("%s: %v, error %v", name, got, err)
			}
			if diff := cmp.Diff(tt.want, got); err == nil && diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}
