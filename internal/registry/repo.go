package registry

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Repo is a repository of images and other artifacts in a group. Its address consists of the
// registry's host, the names of its groups, and its own name.
type Repo struct {
	UID         resource.UID `json:"uid"`
	Name        string       `json:"name"`
	Description string       `json:"description,omitempty"`
	Tier        CatalogTier  `json:"catalogTier,omitempty"`
	Bundles     []string     `json:"bundles,omitempty"`
	Aliases     []string     `json:"aliases,omitempty"`
	ActiveTags  []string     `json:"activeTags,omitempty"`
	Sync        *SyncConfig  `json:"syncConfig,omitempty"`
	CreateTime  time.Time    `json:"createTime"`
	UpdateTime  time.Time    `json:"updateTime"`
}

// A CatalogTier is the tier of a repo in a catalog. Its values are the numbers of the enum in the API.
type CatalogTier int32

const maxCatalogTier = 6

// A SyncConfig names the source from which a repo syncs.
type SyncConfig struct {
	Source         string    `json:"source"`
	UniqueTags     bool      `json:"uniqueTags,omitempty"`
	ExpirationTime time.Time `json:"expirationTime,omitzero"`
	Google         string    `json:"google,omitempty"`
	Amazon         string    `json:"amazon,omitempty"`
	Azure          string    `json:"azure,omitempty"`
	ApkoOverlay    string    `json:"apkoOverlay,omitempty"`
	GracePeriod    bool      `json:"gracePeriod,omitempty"`
}

// A RepoReadme is the readme of a repo, in Markdown.
type RepoReadme struct {
	UID     resource.UID `json:"uid"` // UID of the repo
	Content string       `json:"content"`
}

// Limits of a repo.
const (
	MaxReadme   = 256 << 10
	maxRepoName = 128
	maxRepoList = 100 // entries in each of Bundles, Aliases and ActiveTags
)

var (
	repoNamePattern = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
	aliasPattern    = regexp.MustCompile(`^[a-zA-Z0-9_.\-/]*[a-zA-Z0-9_.\-]:[a-zA-Z0-9_.\-]+$`)
)

// bundles are the names that are valid in the bundles of repos and tags.
var bundles = []string{"application", "base", "byol", "ai", "ai-gpu", "featured", "fips", "commercial", "emeritoss"}

// Validate reports every field a caller must fix.
func (r Repo) Validate() error {
	var p problems
	switch {
	case !repoNamePattern.MatchString(r.Name):
		p.Add("name", "name must match the pattern "+repoNamePattern.String())
	case len(r.Name) > maxRepoName:
		p.Add("name", "name must have at most 128 characters")
	}
	p.Description(r.Description)
	resource.Within(&p.Problems, "catalog_tier", r.Tier, 0, maxCatalogTier, "is not a tier")
	p.bundles(r.Bundles)
	p.AtMost("aliases", len(r.Aliases), maxRepoList, "entries")
	for _, a := range r.Aliases {
		p.Matches("aliases", a, aliasPattern)
	}
	p.AtMost("active_tags", len(r.ActiveTags), maxRepoList, "entries")
	for _, tag := range r.ActiveTags {
		p.Matches("active_tags", tag, tagPattern)
	}
	if s := r.Sync; s != nil {
		p.Required("sync_config.source", s.Source)
		p.Text("sync_config.source", s.Source)
		p.Text("sync_config.google", s.Google)
		p.Text("sync_config.amazon", s.Amazon)
		p.Text("sync_config.azure", s.Azure)
	}
	return p.Err()
}

// Validate reports every field a caller must fix. It does not check whether the Markdown is safe to show.
func (r RepoReadme) Validate() error {
	var p problems
	if !resource.Storable(r.Content) || len(r.Content) > MaxReadme {
		p.Add("content", "must be valid UTF-8 without NUL, of at most 256 KiB")
	}
	return p.Err()
}

func (p *problems) bundles(names []string) {
	p.AtMost("bundles", len(names), maxRepoList, "entries")
	for _, name := range names {
		if !slices.Contains(bundles, name) {
			p.Add("bundles", "must be of "+strings.Join(bundles, ", "))
		}
	}
}
