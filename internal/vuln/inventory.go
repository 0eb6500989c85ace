package vuln

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An InventoryPlace is a place where images run, such as a cluster, with what was last told
// about it.
type InventoryPlace struct {
	Group      resource.UID `json:"group"` // to which it was told
	Name       string       `json:"name"`
	Identity   resource.UID `json:"identity,omitempty"` // who has told it
	PushTime   time.Time    `json:"pushTime"`
	ExpireTime time.Time    `json:"expireTime"` // from when on it is out of date
	Entries    int          `json:"entries"`
	Unknown    int          `json:"unknown,omitempty"` // entries without a digest
}

// Expired reports whether what was told is out of date.
func (p InventoryPlace) Expired(now time.Time) bool { return !now.Before(p.ExpireTime) }

// An InventoryEntry is an image that runs at a place.
type InventoryEntry struct {
	Namespace string `json:"namespace,omitempty"`
	Workload  string `json:"workload,omitempty"`
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`  // the reference that it was started by
	Digest    string `json:"digest,omitempty"` // "" if it is not known
	Platform  string `json:"platform,omitempty"`
	Copies    int    `json:"copies,omitempty"`
}

// The limits of inventories.
const (
	MaxInventoryEntries = 10_000 // of a place
	MaxInventoryPlaces  = 200    // of an organization
	maxPlaceName        = 128
	maxPlatform         = 64
	maxCopies           = 1_000_000
)

// The lifetimes of an inventory.
const (
	DefaultInventoryLife = 7 * 24 * time.Hour
	minInventoryLife     = time.Minute
	maxInventoryLife     = 90 * 24 * time.Hour
)

// ValidateInventory reports every field a caller must fix in what runs at a place, for as
// long as life.
func ValidateInventory(name string, entries []InventoryEntry, life time.Duration) error {
	var p problems
	p.placeName(name)
	if life < minInventoryLife || life > maxInventoryLife {
		p.Add("ttl", "must be between one minute and 90 days")
	}
	p.AtMost("entries", len(entries), MaxInventoryEntries, "entries")
	for i, e := range entries[:min(len(entries), MaxInventoryEntries)] {
		e.validate(fmt.Sprintf("entries[%d].", i), &p)
	}
	return p.Err()
}

func (p *problems) placeName(name string) {
	p.Required("place", name)
	p.LongText("place", name, maxPlaceName)
	if strings.ContainsFunc(name, resource.IsHidden) || strings.TrimSpace(name) != name {
		p.Add("place", "must not contain controls, or begin or end with a space")
	}
}

func (e InventoryEntry) validate(at string, p *problems) {
	p.LongText(at+"namespace", e.Namespace, resource.MaxName)
	p.LongText(at+"workload", e.Workload, resource.MaxName)
	p.LongText(at+"container", e.Container, resource.MaxName)
	p.Text(at+"image", e.Image)
	p.LongText(at+"platform", e.Platform, maxPlatform)
	if e.Digest != "" && !resource.ValidDigest(e.Digest) {
		p.Add(at+"digest", "is not a digest")
	}
	if e.Digest == "" && e.Image == "" {
		p.Add(at+"digest", "is required, or the image")
	}
	if e.Copies < 0 || e.Copies > maxCopies {
		p.Add(at+"copies", "must be between 0 and 1000000")
	}
}
