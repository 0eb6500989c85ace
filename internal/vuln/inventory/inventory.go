// Package inventory keeps which images run at which place, as clients report it.
package inventory

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// An Service keeps what runs at places.
type Service struct {
	packages  *findingdb.Store
	repoStore *registrydb.Store
	authz     *authz.Checker
	pages     *page.Tokens
}

// NewService returns a Service over a database.
func NewService(
	packages *findingdb.Store, repos *registrydb.Store, c *authz.Checker, p *page.Tokens,
) *Service {
	return &Service{packages, repos, c, p}
}

// A Snapshot is what runs at a place at a time, as somebody tells it.
type Snapshot struct {
	Group   resource.UID
	Place   string
	Entries []vuln.InventoryEntry
	Life    time.Duration // after which it is out of date; 0 means 7 days
}

// Push replaces what is known to run at a place. The caller needs
// registry.deployments.create on the group. What is told is a claim of the caller, and
// stored with their identity; whether anybody has an image with one of the digests is
// neither checked nor answered. It returns fault.FailedPrecondition if the organization
// has too many places.
func (s *Service) Push(ctx context.Context, of Snapshot) (p vuln.InventoryPlace, _ error) {
	if err := s.authz.Require(ctx, resource.DeploymentsCreate, of.Group); err != nil {
		return p, err
	}
	of.Life = cmp.Or(of.Life, vuln.DefaultInventoryLife)
	if err := vuln.ValidateInventory(of.Place, of.Entries, of.Life); err != nil {
		return p, err
	}
	now := s.packages.Time()
	p = vuln.InventoryPlace{Group: of.Group, Name: of.Place, PushTime: now, ExpireTime: now.Add(of.Life),
		Entries: len(of.Entries)}
	if c, ok := authz.CallerFrom(ctx); ok {
		p.Identity = c.Identity
	}
	for _, e := range of.Entries {
		if e.Digest == "" {
			p.Unknown++
		}
	}
	return p, s.packages.ReplaceInventory(ctx, p, of.Entries)
}

// Delete forgets what runs at a place. The caller needs
// registry.deployments.create on the group. It returns fault.NotFound if nothing is
// known.
func (s *Service) Delete(ctx context.Context, group resource.UID, place string) error {
	if err := s.authz.Require(ctx, resource.DeploymentsCreate, group); err != nil {
		return err
	}
	if place == "" {
		return fault.Field("place", "is required")
	}
	return s.packages.DeleteInventory(ctx, group, place)
}

// An Filter selects what runs.
type Filter = findingdb.InventoryFilter

// A Running is an image that runs at a place.
type Running = findingdb.RunningImage

// inventoryList is how what runs is ordered.
var inventoryList = page.List{Kind: "inventory", Fields: []string{"place"}, Default: page.Order{Field: "place"}}

// List returns a page of what runs at the places that are not out of date. Those
// count on whose groups the caller has registry.deployments.list. To filter by a repo the
// caller needs repo.list on it.
func (s *Service) List(
	ctx context.Context, f Filter, p page.Params,
) (none page.Page[Running], _ error) {
	f, req, err := page.Resume(s.pages, inventoryList, f, p)
	if err != nil {
		return none, err
	}
	reach, err := s.authz.Reach(ctx, resource.DeploymentsList)
	if err != nil {
		return none, err
	}
	if f.Digest != "" && !resource.ValidDigest(f.Digest) {
		return none, fault.Field("digest", "is not a digest")
	}
	if len(f.Place) > maxPlaceName {
		return none, fault.Field("place", "must have at most %d bytes", maxPlaceName)
	}
	if f.Repo != "" {
		if err := s.authz.Require(ctx, resource.RepoList, f.Repo); err != nil {
			return none, err
		}
		if _, err := s.repoStore.Repo(ctx, f.Repo); err != nil { // under its whole uid
			return none, err
		}
	}
	got, err := s.packages.Inventory(ctx, reach, f, s.packages.Time(), req)
	if err != nil {
		return none, err
	}
	return page.Finish(s.pages, req, got), nil
}

const maxPlaceName = 1024 // bytes of the name of a place

// placeList is how places are ordered.
var placeList = page.List{Kind: "inventory_places", Fields: []string{"name"}, Default: page.Order{Field: "name"}}

// A PlaceState is a place, and whether what is known about it is out of date.
type PlaceState struct {
	vuln.InventoryPlace
	Expired bool
}

// An PlaceFilter selects places.
type PlaceFilter struct {
	Group resource.UID `json:"group,omitempty"` // "" means wherever the caller may look
}

// ListPlaces returns a page of the places that anything is known about, those included
// that are out of date. They count on whose groups the caller has
// registry.deployments.list.
func (s *Service) ListPlaces(ctx context.Context, at PlaceFilter, p page.Params) (none page.Page[PlaceState], _ error) {
	at, req, err := page.Resume(s.pages, placeList, at, p)
	if err != nil {
		return none, err
	}
	reach, err := s.authz.Reach(ctx, resource.DeploymentsList)
	if err != nil {
		return none, err
	}
	if at.Group != "" {
		reach = store.Overlap(reach, []resource.UID{at.Group})
	}
	places, err := s.packages.Places(ctx, reach)
	if err != nil {
		return none, err
	}
	now := s.packages.Time()
	var all []PlaceState
	for _, v := range places {
		all = append(all, PlaceState{v.InventoryPlace, v.Expired(now)})
	}
	got := page.Cut(all, req, func(v PlaceState) string { return v.Name + "\x00" + string(v.Group) })
	return page.Finish(s.pages, req, got), nil
}
