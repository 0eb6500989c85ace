package indexer_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/indexer"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// slowReader reads the images of some tenants until the test ends, and all other images without delay.
type slowReader struct {
	mu      sync.Mutex
	slow    map[string]bool // tenants whose images take long
	reading map[string]int  // number of images that are being read, by tenant
	stopped map[string]int  // number of times that reading was stopped, by tenant
}

func (r *slowReader) read(ctx context.Context, tenant string, _ []inspect.Layer) (inspect.Result, error) {
	r.mu.Lock()
	slow := r.slow[tenant]
	r.reading[tenant]++
	r.mu.Unlock()
	if slow {
		<-ctx.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reading[tenant]--
		r.stopped[tenant]++
		return inspect.Result{Processor: time.Hour}, ctx.Err()
	}
	return inspect.Result{}, nil
}

func (r *slowReader) counts(tenant registry.Repo) (reading, stopped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reading[string(tenant.UID.Root())], r.stopped[string(tenant.UID.Root())]
}

// TestAttackLongImages: two tenants push images whose inspection does not end. A server with one worker continues with
// one image, stops the other and charges its cost, and inspects the image of a third tenant.
func TestAttackLongImages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		quiet := slog.New(slog.DiscardHandler)
		checker, err := authz.Load(t.Context(), s.DB, quiet)
		testkit.Must(t, err)
		issuer, err := token.New(t.Context(), s.DB, token.Config{Issuer: "http://issuer.test", Key: secret.NewKey()})
		testkit.Must(t, err)
		images := assembly.New(s.DB, checker, issuer, blob.NewFolder(t.TempDir()), assembly.Config{}).Images
		reader := &slowReader{slow: map[string]bool{}, reading: map[string]int{}, stopped: map[string]int{}}
		x := indexer.New(s.ImageStore, s.FindingStore, images, indexer.Config{
			Version: 1, Log: quiet, Read: reader.read, Turn: 50 * time.Millisecond,
		})
		newRepo := func(name string, slow bool) registry.Repo {
			r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", name).UID, "app")
			reader.slow[string(r.UID.Root())] = slow
			return r
		}
		first, second, victim := newRepo("first", true), newRepo("second", true), newRepo("victim", false)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- x.Run(ctx) }()
		defer func() { stop(); testkit.Must(t, <-ended) }()

		isReading := func(r registry.Repo) func() bool {
			return func() bool { reading, _ := reader.counts(r); return reading == 1 }
		}
		pushLayers(t, s, first, "one")
		testkit.Until(t, isReading(first))
		pushLayers(t, s, second, "two")
		testkit.Until(t, isReading(second))
		digest := pushLayers(t, s, victim, "three")
		testkit.Until(t, func() bool {
			found, err := s.Images(t.Context(), victim.UID, []string{digest})
			testkit.Must(t, err)
			return found[digest].State == registry.ImageIndexed
		})
		if _, stopped := reader.counts(second); stopped == 0 {
			t.Error("the image of the second tenant was not stopped")
		}
		if reading, stopped := reader.counts(first); reading != 1 || stopped != 0 {
			t.Error("the first image was stopped although there is room for it")
		}
		var spent int64
		testkit.Must(t, s.DB.Row(t.Context(), `SELECT max(spent_us) FROM inspection_shares`, nil, &spent))
		if spent < (time.Hour / 2).Microseconds() {
			t.Errorf("the cost of the stopped image was not charged: %d", spent)
		}
	})
}
