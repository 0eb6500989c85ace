package registry

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/token"
)

// ServiceConfig is what a Service can be told. The zero value works, but for
// tokens.
type ServiceConfig struct {
	Host string // of the registry, which its tokens are for
	Now  func() time.Time
}

// A Service manages what the registry holds: repos, tags, what became of them,
// and the rules of groups.
//
// Every method asks first whether the caller may, then whether the request is
// sound, and then has the store remember it. A place is authorized by its UID
// alone, so a caller without the capability learns nothing of what exists.
type Service struct {
	store  *store.Store
	authz  *authz.Checker
	pages  *page.Tokens
	issuer *token.Issuer
	images *Registry
	cfg    ServiceConfig
}

// NewService returns a Service over s. What images are made of, images tells.
func NewService(s *store.Store, a *authz.Checker, p *page.Tokens, i *token.Issuer, images *Registry, cfg ServiceConfig) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: s, authz: a, pages: p, issuer: i, images: images, cfg: cfg}
}

// now is the time of a change, as precise as it is kept.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// The lists there are, with the orders they can have.
var (
	byUID       = page.Order{Field: "uid"}
	repoList    = page.List{Kind: "repos", Fields: []string{"uid", "name", "create_time", "update_time"}, Default: byUID}
	tagList     = page.List{Kind: "tags", Fields: []string{"uid", "name", "update_time"}, Default: byUID}
	pullList    = page.List{Kind: "pulls", Fields: []string{"create_time", "uid"}, Default: page.Order{Field: "create_time", Desc: true}}
	historyList = page.List{Kind: "tag_history", Fields: []string{"time"}, Default: page.Order{Field: "time", Desc: true}}
)

// requireAll is authz.Checker.RequireAll on a repo, which must be there: what is
// in it is known by its last segment alone, and that may be of another's repo. It
// returns fault.NotFound if it is not.
func (s *Service) requireAll(ctx context.Context, repo resource.UID, want ...resource.Capability) error {
	var all resource.Capabilities
	for _, c := range want {
		all.Add(c)
	}
	if err := s.authz.RequireAll(ctx, all, repo); err != nil {
		return err
	}
	_, err := s.store.Repo(ctx, repo)
	return err
}

// overlap returns what two sets of groups have in common. In each, as in the
// result, no group is within another.
func overlap(a, b []resource.UID) []resource.UID {
	var both []resource.UID
	for _, x := range a {
		for _, y := range b {
			switch {
			case x.Covers(y):
				both = append(both, y)
			case y.Covers(x):
				both = append(both, x)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}
