package registrytest

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A Shelf is an organization with a repo in a folder.
type Shelf struct {
	*Store
	Org, Folder resource.Group
	App         registry.Repo
}

// NewShelf adds the groups and the repo of a Shelf.
func NewShelf(t testing.TB, s *Store) Shelf {
	t.Helper()
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "folder")
	return Shelf{s, org, folder, AddRepo(t, s.RegistryStore, folder.UID, "app")}
}

// StoredBytes returns the number of bytes that the organization stores.
func StoredBytes(t testing.TB, s Shelf) int64 {
	t.Helper()
	used, err := s.Usage(t.Context(), s.Org.UID)
	testkit.Must(t, err)
	return used[resource.StoredBytes]
}

// MoveClock moves the clock of a store forward.
func MoveClock(s Shelf, by time.Duration) {
	moved := s.Now().Add(by)
	s.DB.Now = func() time.Time { return moved }
}

// KeepPromises runs tests on repos whose deleted images can be restored.
func KeepPromises(t *testing.T, promises map[string]func(*testing.T, Shelf)) {
	t.Parallel()
	for name, promise := range promises {
		t.Run(name, func(t *testing.T) {
			Each(t, func(t *testing.T, s *Store) {
				shelf := NewShelf(t, s)
				s.KeepTrash = Week
				promise(t, shelf)
				dbtest.WantExact(t, s.DB)
			})
		})
	}
}
