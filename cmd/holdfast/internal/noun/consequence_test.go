package noun

import "testing"

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"1 day": Count(1, "day"), "30 days": Count(30, "day"), "0 images": Count(0, "image"),
		"1 identity": Count(1, "identity"), "2 identities": Count(int64(2), "identity"), "2 entries": Count(2, "entry"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
