package registrydb_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
)

// TestManifestsTogether checks that concurrent reads of manifests return the same results as single
// reads.
func TestManifestsTogether(t *testing.T) {
	t.Parallel()
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		var asked []func() (registry.Manifest, error)
		for i := range 4 {
			r := registrytest.AddRepo(t, s.RegistryStore, org.UID, fmt.Sprint("app", i))
			one := registrytest.AddImage(t, s.RegistryStore, r, "v1", fmt.Sprint("one", i))
			long := registrytest.NewImage(fmt.Sprint("one", i))
			long.Body = append(long.Body, strings.Repeat(" ", 200<<10)...)
			long.Digest = registrytest.Digest(string(long.Body))
			registrytest.Push(t, s.RegistryStore, r, long, "long")
			for _, reference := range []string{"v1", "long", one.Digest, long.Digest, "absent", "sha256:absent", "it's; --",
				"\xff", "v\x00"} {
				asked = append(asked,
					func() (registry.Manifest, error) { return s.Manifest(t.Context(), r.UID, reference) },
					func() (registry.Manifest, error) { return s.StatManifest(t.Context(), r.UID, reference) })
			}
		}
		told := func(m registry.Manifest, err error) string {
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(m.Digest, m.MediaType, m.Size, m.PushTime, m.Subject, registrytest.Digest(string(m.Body)),
				len(m.Body))
		}
		var alone []string
		for _, f := range asked {
			alone = append(alone, told(f()))
		}
		for range 5 {
			var wg sync.WaitGroup
			for i, f := range asked {
				wg.Go(func() {
					if got := told(f()); got != alone[i] {
						t.Errorf("together %s, alone %s", got, alone[i])
					}
				})
			}
			wg.Wait()
		}
	})
}
