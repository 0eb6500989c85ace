package server

import "testing"

func TestScrubRate(t *testing.T) {
	for text, want := range map[string]int64{
		"50MB/s": 50e6, "50MB": 50e6, "1KB": 1000, "2GB/s": 2e9, "50MiB": 50 << 20, "50MiB/s": 50 << 20, "1000": 1000,
		"7/s": 7,
		"0":   0, "-5": 0, "": 0, "/s": 0, "MB": 0, "-1MB": 0, "2GiBGB": 0, "2MBGB": 0, "99999999999GB": 0, "5TB": 0,
		"1.5MB": 0,
	} {
		got, err := parseRate(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
}
