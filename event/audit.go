package event

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// An AuditFilter says which changes are wanted. Members that are set must all
// hold.
type AuditFilter struct {
	Group    resource.UID `json:"group,omitempty"` // and everything below it
	Subject  resource.UID `json:"subject,omitempty"`
	Identity resource.UID `json:"identity,omitempty"` // who made them
	Type     string       `json:"type,omitempty"`     // or the types that begin with it and a dot
	Since    time.Time    `json:"since,omitzero"`
	Until    time.Time    `json:"until,omitzero"` // before this
}

// keeps tells whether the filter lets an event pass, but for its place and the
// number it ends at.
func (f AuditFilter) keeps(e resource.Event) bool {
	kind := string(e.Type)
	return (f.Subject == "" || e.Subject == f.Subject) &&
		(f.Identity == "" || e.Actor.Subject == f.Identity) &&
		(f.Type == "" || kind == f.Type || strings.HasPrefix(kind, strings.TrimSuffix(f.Type, ".")+".")) &&
		(f.Until.IsZero() || e.Time.Before(f.Until)) && !e.Time.Before(f.Since)
}

const (
	auditReach = 20_000          // how many changes one page looks at
	auditChunk = 1000            // how many at a time
	clockSkew  = 5 * time.Minute // between replicas, at most
)

var auditList = page.List{Kind: "audit", Fields: []string{"time"}, Default: page.Order{Field: "time", Desc: true}}

// Audit returns a page of changes, newest first: those where the caller holds
// identity.list, for they tell about people, and what lists the kind of thing
// that was changed. It looks at a bounded number of changes, so a page may have
// fewer than it could and still have one after it.
func (s *Service) Audit(ctx context.Context, f AuditFilter, p page.Params) (page.Page[resource.Event], error) {
	var out page.Page[resource.Event]
	under, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return out, err
	}
	req, err := s.pages.Request(auditList, f, p)
	if err != nil {
		return out, err
	}
	if !req.Order.Desc {
		return out, fault.Field("order_by", `must be "time desc"`)
	}
	if len(under) == 0 {
		return page.Finish(s.pages, req, out), nil
	}
	if f.Group == "" && len(under) == 1 {
		f.Group = under[0] // there is nothing to see elsewhere
	}
	before, first, err := s.window(ctx, f, req)
	if err != nil {
		return out, err
	}
	out.Items, before, err = s.look(ctx, f, before, first, req.Skip, req.Size)
	if err != nil {
		return page.Page[resource.Event]{}, err
	}
	if before > first {
		out.Last = &page.Cursor{Number: before}
	}
	return page.Finish(s.pages, req, out), nil
}

// window is where to look: from before one number down to another.
func (s *Service) window(ctx context.Context, f AuditFilter, req page.Request) (before, first int64, err error) {
	before = math.MaxInt64
	if !f.Until.IsZero() {
		if before, err = s.store.EventNumber(ctx, f.Until.Add(clockSkew)); err != nil {
			return 0, 0, err
		}
	}
	if !f.Since.IsZero() {
		if first, err = s.store.EventNumber(ctx, f.Since.Add(-clockSkew)); err != nil {
			return 0, 0, err
		}
	}
	if req.After != nil {
		before = min(before, req.After.Number)
	}
	return before, first, nil
}

// look reads changes backwards until it has n that pass, or has looked at as many
// as it may. It returns where it stopped; 0 at the end.
func (s *Service) look(ctx context.Context, f AuditFilter, before, first int64, skip, n int) (kept []resource.Event, stopped int64, _ error) {
	for looked := 0; looked < auditReach && before > first; looked += auditChunk {
		got, next, err := s.store.EventsBefore(ctx, f.Group, before, auditChunk, auditChunk)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range got {
			if !f.keeps(e) || !s.mayAudit(ctx, e) {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			kept = append(kept, e)
			if len(kept) == n {
				return kept, e.Seq, nil
			}
		}
		before = next
	}
	return kept, before, nil
}

// mayAudit tells whether the caller may know of an event.
func (s *Service) mayAudit(ctx context.Context, e resource.Event) bool {
	place := e.Group
	if place.Covers(e.Subject) {
		place = e.Subject
	}
	want, ok := listing(e.Type)
	if !ok || place == "/" {
		return false
	}
	var both resource.Capabilities
	both.Add(want)
	both.Add(resource.IdentityList)
	return s.authz.RequireAll(ctx, both, place) == nil
}

// listed is the capability that lists the things an event is about, by how its
// type begins.
var listed = map[string]resource.Capability{
	"iam.group": resource.GroupsList, "iam.identity": resource.IdentityList,
	"iam.roles": resource.RolesList, "iam.rolebindings": resource.RoleBindingsList,
	"iam.identity_providers": resource.IdentityProvidersList, "iam.external_group_role_mappings": resource.IdentityProvidersList,
	"iam.account_associations": resource.AccountAssociationsList, "iam.group_invite": resource.GroupInvitesList,
	"platform.registry.repo": resource.RepoList, "platform.registry.tag": resource.TagList,
	"platform.registry.settings": resource.RegistrySettingsList, "platform.registry.deployment": resource.DeploymentsList,
	"push": resource.RepoList, "pull": resource.RepoList,
	"vulnerabilities.advisory": resource.AdvisoriesList, "vulnerabilities.advisories": resource.AdvisoriesList,
	"vulnerabilities.feed": resource.AdvisoriesList, "events.subscription": resource.SubscriptionsList,
	"signin.account": resource.IdentityList, "signin.session": resource.IdentityList, "signin.rules": resource.IdentityProvidersList,
	"auth": resource.GroupInvitesList,
}

func listing(t resource.EventType) (resource.Capability, bool) {
	for kind := string(t); kind != ""; kind = kind[:max(0, strings.LastIndexByte(kind, '.'))] {
		if c, ok := listed[kind]; ok {
			return c, true
		}
	}
	return 0, false
}
