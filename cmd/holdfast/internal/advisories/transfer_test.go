package advisories

import (
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	tests := map[string]struct {
		bytes, total, records int64
		took                  time.Duration
		want                  string
	}{
		"at the start": {0, 100, 0, time.Second, "[                        ]   0%  0 records, 0/s, ? left"},
		"half way":     {50, 100, 3000, 2 * time.Second, "[============            ]  50%  3000 records, 1500/s, 2s left"},
		"done":         {100, 100, 6000, 4 * time.Second, "[========================] 100%  6000 records, 1500/s, 0s left"},
		"of nothing":   {0, 0, 0, 0, "[========================] 100%  0 records, 0/s, 0s left"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := progressLine(tt.bytes, tt.total, tt.records, tt.took); got != tt.want {
				t.Errorf("line = %q, want %q", got, tt.want)
			}
		})
	}
}
