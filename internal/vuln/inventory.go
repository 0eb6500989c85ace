package vuln

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An InventoryPlace is a place where images run, such as a cluster, with a summary of the inventory that was last
// reported for it.
type InventoryPlace struct {
	Group      resource.UID `json:"group"` // the group that received the inventory
	Name       string       `json:"name"`
	Identity   resource.UID `json:"identity,omitempty"` // the identity that reported it
	PushTime   time.Time    `json:"pushTime"`
	ExpireTime time.Time    `json:"expireTime"` // time from which the inventory is out of date
	Entries    int          `json:"entries"`
	Unknown    int          `json:"unknown,omitempty"` // number of entries without a digest
}

// Expired reports whether the inventory is out of date at time t.
func (p InventoryPlace) Expired(t time.Time) bool { return !t.Before(p.ExpireTime) }

// An InventoryEntry is an image that runs in a place.
type InventoryEntry struct {
	Namespace string `json:"namespace,omitempty"`
	Workload  string `json:"workload,omitempty"`
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`  // image reference in the workload
	Digest    string `json:"digest,omitempty"` // "" if the digest is unknown
	Platform  string `json:"platform,omitempty"`
	Copies    int    `json:"copies,omitempty"`

	StartTime time.Time `json:"startTime,omitzero"` // when the first of the copies was started; zero if unknown
}

// MayReplace reports whether an identity may replace or delete the inventory of a place. A workload, such as a cluster,
// may not if another workload has reported it, so that a cluster cannot report for another cluster. A person may.
func (p InventoryPlace) MayReplace(identity resource.UID) bool {
	isWorkload := func(uid resource.UID) bool { return uid != "" && !uid.IsRoot() }
	return p.Identity == identity || !isWorkload(p.Identity) || !isWorkload(identity)
}

// The limits of inventories.
const (
	MaxInventoryEntries = 10_000 // maximum number per place
	MaxInventoryPlaces  = 200    // maximum number per organization
	MaxPlacesOfIdentity = 100    // maximum number that one identity has reported last, so that others can report, too
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

// ValidateInventory returns an error that names every invalid field of an inventory for the place with a name. life is
// the time until the inventory is out of date.
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
		p.Add("place", "must not contain control characters, or begin or end with a space")
	}
}

// validate adds the problems of the entry to p. The name of every field starts with prefix.
func (e InventoryEntry) validate(prefix string, p *problems) {
	p.LongText(prefix+"namespace", e.Namespace, resource.MaxName)
	p.LongText(prefix+"workload", e.Workload, resource.MaxName)
	p.LongText(prefix+"container", e.Container, resource.MaxName)
	p.Text(prefix+"image", e.Image)
	p.LongText(prefix+"platform", e.Platform, maxPlatform)
	if e.Digest != "" && !resource.ValidDigest(e.Digest) {
		p.Add(prefix+"digest", "is not a digest")
	}
	if e.Digest == "" && e.Image == "" {
		p.Add(prefix+"digest", "is required unless image is set")
	}
	if year := e.StartTime.Year(); !e.StartTime.IsZero() && (year < 2000 || year > 9999) {
		p.Add(prefix+"start_time", "must be in the years 2000 to 9999")
	}
	if e.Copies < 0 || e.Copies > maxCopies {
		p.Add(prefix+"copies", "must be between 0 and 1000000")
	}
}
