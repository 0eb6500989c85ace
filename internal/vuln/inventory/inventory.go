// Package inventory stores which images run at which places, as clients report it.
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

// A Service stores which images run at which places. It is safe for concurrent use.
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

// A Snapshot is the list of images that run at a place, as a client reports it.
type Snapshot struct {
	Group   resource.UID
	Place   string
	Entries []vuln.InventoryEntry
	Life    time.Duration // time after which the inventory is out of date; 0 means 7 days
	Empty   bool          // whether the client states that nothing runs at the place
}

// Push replaces the inventory of a place. The caller needs registry.deployments.create
// on the group. The inventory is a claim of the caller, and is stored with the caller's
// identity. Push neither checks nor reveals whether an image with one of the digests
// exists. It returns fault.FailedPrecondition if the organization has too many places.
// An inventory without entries is invalid unless Empty is set, because a client that
// failed to list the images would otherwise delete the inventory. It returns fault.PermissionDenied to a workload if
// another workload has reported the place.
func (s *Service) Push(ctx context.Context, snapshot Snapshot) (p vuln.InventoryPlace, _ error) {
	if err := s.authz.Require(ctx, resource.DeploymentsCreate, snapshot.Group); err != nil {
		return p, err
	}
	snapshot.Life = cmp.Or(snapshot.Life, vuln.DefaultInventoryLife)
	if err := vuln.ValidateInventory(snapshot.Place, snapshot.Entries, snapshot.Life); err != nil {
		return p, err
	}
	switch {
	case len(snapshot.Entries) == 0 && !snapshot.Empty:
		return p, fault.Field("entries", "is required unless empty is set, which states that nothing runs at the place")
	case len(snapshot.Entries) > 0 && snapshot.Empty:
		return p, fault.Field("empty", "must not be set together with entries")
	}
	asOf := s.packages.Time()
	p = vuln.InventoryPlace{Group: snapshot.Group, Name: snapshot.Place, PushTime: asOf,
		ExpireTime: asOf.Add(snapshot.Life),
		Entries:    len(snapshot.Entries)}
	if c, ok := authz.CallerFrom(ctx); ok {
		p.Identity = c.Identity
	}
	for _, e := range snapshot.Entries {
		if e.Digest == "" {
			p.Unknown++
		}
	}
	return p, s.packages.ReplaceInventory(ctx, p, snapshot.Entries)
}

// Delete removes the inventory of a place. The caller needs registry.deployments.create on the group. It returns
// fault.NotFound if the place has no inventory.
func (s *Service) Delete(ctx context.Context, group resource.UID, place string) error {
	if err := s.authz.Require(ctx, resource.DeploymentsCreate, group); err != nil {
		return err
	}
	if place == "" {
		return fault.Field("place", "is required")
	}
	c, _ := authz.CallerFrom(ctx)
	return s.packages.DeleteInventory(ctx, group, place, c.Identity)
}

// A Filter selects entries of inventories.
type Filter = findingdb.InventoryFilter

// A Running is an image that runs at a place.
type Running = findingdb.RunningImage

// inventoryList orders entries by place.
var inventoryList = page.List{Kind: "inventory", Fields: []string{"place"}, Default: page.Order{Field: "place"}}

// List returns a page of the entries of inventories that are not out of date. It includes the inventories of groups on
// which the caller has registry.deployments.list. To filter by a repo, the caller needs repo.list on it.
func (s *Service) List(
	ctx context.Context, f Filter, p page.Params,
) (zero page.Page[Running], _ error) {
	f, req, err := page.Resume(s.pages, inventoryList, f, p)
	if err != nil {
		return zero, err
	}
	reach, err := s.authz.Reach(ctx, resource.DeploymentsList)
	if err != nil {
		return zero, err
	}
	if f.Digest != "" && !resource.ValidDigest(f.Digest) {
		return zero, fault.Field("digest", "is not a digest")
	}
	if len(f.Place) > maxPlaceName {
		return zero, fault.Field("place", "must have at most %d bytes", maxPlaceName)
	}
	if f.Repo != "" {
		if err := s.authz.Require(ctx, resource.RepoList, f.Repo); err != nil {
			return zero, err
		}
		if _, err := s.repoStore.Repo(ctx, f.Repo); err != nil { // compares the whole UID, not only its last segment
			return zero, err
		}
	}
	got, err := s.packages.Inventory(ctx, reach, f, s.packages.Time(), req)
	if err != nil {
		return zero, err
	}
	return page.Finish(s.pages, req, got), nil
}

const maxPlaceName = 1024 // maximum length of a place's name in bytes

// placeList orders places by name.
var placeList = page.List{Kind: "inventory_places", Fields: []string{"name"}, Default: page.Order{Field: "name"}}

// A PlaceState is a place, and whether its inventory is out of date.
type PlaceState struct {
	vuln.InventoryPlace
	Expired bool
}

// A PlaceFilter selects places.
type PlaceFilter struct {
	Group resource.UID `json:"group,omitempty"` // "" means every group that the caller may list
}

// ListPlaces returns a page of the places with an inventory, even if the inventory is out of date. It includes the
// places of groups on which the caller has registry.deployments.list.
func (s *Service) ListPlaces(
	ctx context.Context, filter PlaceFilter, p page.Params,
) (zero page.Page[PlaceState], _ error) {
	filter, req, err := page.Resume(s.pages, placeList, filter, p)
	if err != nil {
		return zero, err
	}
	reach, err := s.authz.Reach(ctx, resource.DeploymentsList)
	if err != nil {
		return zero, err
	}
	if filter.Group != "" {
		reach = store.Overlap(reach, []resource.UID{filter.Group})
	}
	places, err := s.packages.Places(ctx, reach)
	if err != nil {
		return zero, err
	}
	asOf := s.packages.Time()
	var states []PlaceState
	for _, v := range places {
		states = append(states, PlaceState{v.InventoryPlace, v.Expired(asOf)})
	}
	got := page.Cut(states, req, func(v PlaceState) string { return v.Name + "\x00" + string(v.Group) })
	return page.Finish(s.pages, req, got), nil
}
