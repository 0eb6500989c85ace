package vulnapi

import (
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// maxSpool is the number of bytes of documents that one tenant may store on disk during imports. It is enough for one
// document of the largest size.
const maxSpool = maxDocument

// A spool limits the documents that are stored on disk during imports.
type spool struct {
	mu   sync.Mutex
	used map[resource.Tenant]int64 // reserved bytes
}

func newSpool() *spool { return &spool{used: map[resource.Tenant]int64{}} }

// reserve reserves space for a document before its data arrives. The caller calls release when the document is no
// longer stored. reserve returns fault.ResourceExhausted if the tenant has no space left.
func (s *spool) reserve(tenant resource.Tenant, size int64) (release func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[tenant]+size > maxSpool {
		f := fault.New(fault.ResourceExhausted,
			"Resource exhausted: the documents of other imports leave no space for %d bytes; try again later", size)
		f.RetryIn = time.Minute
		return nil, f
	}
	s.used[tenant] += size
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.used[tenant] -= size; s.used[tenant] == 0 {
			delete(s.used, tenant)
		}
	}, nil
}
