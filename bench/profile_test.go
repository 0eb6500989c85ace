package main

import (
	"testing"
	"time"
)

// spin uses the processor for a while.
func spin(d time.Duration) (n uint64) {
	for begin := processorTime(); processorTime()-begin < d; {
		for i := range uint64(100_000) {
			n = n*31 + i
		}
	}
	return n
}

func TestAProfileTellsWhereTimeWent(t *testing.T) {
	p, err := profiled(func() error {
		spin(300 * time.Millisecond)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if share := p.share("bench.spin"); share < 0.5 {
		t.Errorf("share of spin = %v, want nearly all", share)
	}
	if share := p.share("bench.rest"); share != 0 {
		t.Errorf("share of nothing = %v", share)
	}
}

func TestTimeIsOfTheInnermostPart(t *testing.T) {
	tests := map[string]struct {
		frames []string
		want   string
	}{
		"a library under ours": {[]string{"runtime.memmove", "modernc.org/sqlite/lib._sqlite3Step",
			"github.com/holdfast-dev/holdfast/store.get"}, "SQLite"},
		"memory, of who asked for it": {[]string{"runtime.mallocgc", "encoding/json.Marshal",
			"net/http.(*conn).serve"}, "JSON"},
		"a client rather than a server": {[]string{"net.(*conn).Write", "net/http.(*persistConn).writeLoop"},
			"HTTP client"},
		"nobody in particular": {[]string{"runtime.findRunnable", "runtime.mcall"}, "scheduler"},
		"the collector when it is asked": {[]string{"runtime.scanobject", "runtime.gcAssistAlloc",
			"encoding/json.Marshal"}, "garbage collection"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := part(tt.frames); got != tt.want {
				t.Errorf("part = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	all := []int{5, 1, 4, 2, 3}
	for q, want := range map[float64]int{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile %v = %d, want %d", q, got, want)
		}
	}
}
