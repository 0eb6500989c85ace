package event

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// An AuditFilter selects changes. All the fields that are set must match.
type AuditFilter struct {
	Group    resource.UID `json:"group,omitempty"` // includes everything below the group
	Subject  resource.UID `json:"subject,omitempty"`
	Identity resource.UID `json:"identity,omitempty"` // identity that made the change
	Type     string       `json:"type,omitempty"`     // event type, or a prefix of it before a dot
	Since    time.Time    `json:"since,omitzero"`
	Until    time.Time    `json:"until,omitzero"` // exclusive end of the time range
}

// matches reports whether the filter selects an event. It ignores Group, because the store filters by group.
func (f AuditFilter) matches(e resource.Event) bool {
	kind := string(e.Type)
	return (f.Subject == "" || e.Subject == f.Subject) &&
		(f.Identity == "" || e.Actor.Subject == f.Identity) &&
		(f.Type == "" || kind == f.Type || strings.HasPrefix(kind, strings.TrimSuffix(f.Type, ".")+".")) &&
		(f.Until.IsZero() || e.Time.Before(f.Until)) && !e.Time.Before(f.Since)
}

const (
	auditScan  = 20_000          // maximum number of changes scanned for one page
	auditChunk = 1000            // changes read by one statement
	clockSkew  = 5 * time.Minute // maximum difference between the clocks of replicas
)

var auditList = page.List{Kind: "audit", Fields: []string{"time"}, Default: page.Order{Field: "time", Desc: true}}

// Audit returns a page of changes, newest first. The caller needs identity.list in the group of a change, because
// changes contain data about people, and the capability to list the changed kind of resource. Audit scans a bounded
// number of changes, so a page may be short although another page follows.
func (s *Service) Audit(ctx context.Context, f AuditFilter, p page.Params) (page.Page[resource.Event], error) {
	var out page.Page[resource.Event]
	under, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return out, err
	}
	f, req, err := page.Resume(s.pages, auditList, f, p)
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
		f.Group = under[0] // the only group in which the caller can see changes
	}
	before, first, err := s.window(ctx, f, req)
	if err != nil {
		return out, err
	}
	out.Items, before, err = s.scan(ctx, f, before, first, req.Skip, req.Size)
	if err != nil {
		return page.Page[resource.Event]{}, err
	}
	if before > first {
		out.Last = &page.Cursor{Number: before}
	}
	return page.Finish(s.pages, req, out), nil
}

// maxPerRequest is the number of changes with one request ID that AuditRequest reads per organization.
const maxPerRequest = 200

// AuditRequest returns up to n changes made by requests with an ID, newest first, if Audit would return them to the
// caller. It does not find changes that were recorded by releases before the outbox stored request IDs.
func (s *Service) AuditRequest(ctx context.Context, request string, n int) (events []resource.Event, _ error) {
	under, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return nil, err
	}
	var orgs []resource.UID
	for _, g := range under {
		orgs = append(orgs, g.Root())
	}
	for _, org := range slices.Compact(orgs) {
		found, err := outbox.OfRequest(ctx, s.store.DB, request, org, maxPerRequest)
		if err != nil {
			return nil, err
		}
		events = append(events, found...)
	}
	events = slices.DeleteFunc(events, func(e resource.Event) bool { return !s.mayAudit(ctx, e) })
	slices.SortFunc(events, func(a, b resource.Event) int { return cmp.Compare(b.Seq, a.Seq) })
	return events[:min(n, len(events))], nil
}

// window returns the range of sequence numbers to scan, backwards from before to first.
func (s *Service) window(ctx context.Context, f AuditFilter, req page.Request) (before, first int64, err error) {
	before = math.MaxInt64
	if !f.Until.IsZero() {
		if before, err = outbox.NumberAt(ctx, s.store.DB, f.Until.Add(clockSkew)); err != nil {
			return 0, 0, err
		}
	}
	if !f.Since.IsZero() {
		if first, err = outbox.NumberAt(ctx, s.store.DB, f.Since.Add(-clockSkew)); err != nil {
			return 0, 0, err
		}
	}
	if req.After != nil {
		before = min(before, req.After.Number)
	}
	return before, first, nil
}

// scan reads changes backwards from before to first. It stops when it has n matches, or when it has scanned auditScan
// changes. It does not return the first skip matches. It returns the sequence number at which it stopped, or 0 at the
// start of the outbox.
func (s *Service) scan(
	ctx context.Context, f AuditFilter, before, first int64, skip, n int,
) (matched []resource.Event, stopped int64, _ error) {
	for scanned := 0; scanned < auditScan && before > first; scanned += auditChunk {
		got, next, err := outbox.ReadBack(ctx, s.store.DB, f.Group, before, auditChunk, auditChunk)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range got {
			if !f.matches(e) || !s.mayAudit(ctx, e) {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			matched = append(matched, e)
			if len(matched) == n {
				return matched, e.Seq, nil
			}
		}
		before = next
	}
	return matched, before, nil
}

// MayAudit reports whether the caller may see an event in the audit log.
func (s *Service) MayAudit(ctx context.Context, e resource.Event) bool { return s.mayAudit(ctx, e) }

// mayAudit reports whether the caller may see an event.
func (s *Service) mayAudit(ctx context.Context, e resource.Event) bool {
	scope := e.Group
	if scope.Covers(e.Subject) {
		scope = e.Subject
	}
	want, ok := listCapability(e.Type)
	if !ok || scope == "/" {
		return false
	}
	needed := append([]resource.Capability{want, resource.IdentityList}, alsoNeeded[e.Type]...)
	return s.authz.RequireAll(ctx, resource.NewCapabilities(needed...), scope) == nil
}

// alsoNeeded lists the additional capabilities that a caller needs to see an event. For example, an event about a
// finding contains data about an image and about an advisory.
var alsoNeeded = map[resource.EventType][]resource.Capability{
	resource.FindingOpened: {resource.RepoList, resource.AdvisoriesList},
	resource.FindingClosed: {resource.RepoList, resource.AdvisoriesList},
}

// listCapabilities are the capabilities to list the subjects of events, by a prefix of the event type.
var listCapabilities = map[string]resource.Capability{
	"iam.group":                        resource.GroupsList,
	"iam.identity":                     resource.IdentityList,
	"iam.roles":                        resource.RolesList,
	"iam.rolebindings":                 resource.RoleBindingsList,
	"iam.access":                       resource.RoleBindingsList,
	"iam.access_rules":                 resource.GroupsList,
	"iam.access_requests":              resource.RoleBindingsList,
	"iam.identity_providers":           resource.IdentityProvidersList,
	"iam.teams":                        resource.IdentityProvidersList,
	"iam.external_group_role_mappings": resource.IdentityProvidersList,
	"iam.account_associations":         resource.AccountAssociationsList,
	"iam.group_invite":                 resource.GroupInvitesList,
	"iam.budgets":                      resource.GroupsList,
	"iam.organization":                 resource.GroupsList,
	"platform.registry.repo":           resource.RepoList,
	"platform.registry.tag":            resource.TagList,
	"platform.registry.trash":          resource.TagList,
	"platform.registry.image":          resource.TagList,
	"platform.registry.retention":      resource.TagList,
	"platform.registry.settings":       resource.RegistrySettingsList,
	"platform.registry.upstream":       resource.RegistrySettingsList,
	"platform.registry.replication":    resource.RegistrySettingsList,
	"platform.registry.signer":         resource.PolicyList,
	"platform.registry.deployment":     resource.DeploymentsList,
	"platform.registry.inventory":      resource.DeploymentsList,
	"push":                             resource.RepoList,
	"pull":                             resource.RepoList,
	"vulnerabilities.advisory":         resource.AdvisoriesList,
	"vulnerabilities.advisories":       resource.AdvisoriesList,
	"vulnerabilities.feed":             resource.AdvisoriesList,
	"vulnerabilities.exploit_list":     resource.AdvisoriesList,
	"events.subscription":              resource.SubscriptionsList,
	"findings.finding":                 resource.ReportsList,
	"findings.exception":               resource.OverrideList,
	"findings.rule":                    resource.PolicyList,
	"findings.sla":                     resource.PolicyList,
	"findings.report_subscription":     resource.ReportsList,
	"platform.registry.access":         resource.RepoList,
	"signin.account":                   resource.IdentityList,
	"signin.activity":                  resource.IdentityList,
	"signin.session":                   resource.IdentityList,
	"signin.rules":                     resource.IdentityProvidersList,
	"auth":                             resource.GroupInvitesList,
}

// listCapability returns the capability for the longest prefix of the event type in listCapabilities.
func listCapability(t resource.EventType) (resource.Capability, bool) {
	for kind := string(t); kind != ""; kind = kind[:max(0, strings.LastIndexByte(kind, '.'))] {
		if c, ok := listCapabilities[kind]; ok {
			return c, true
		}
	}
	return 0, false
}
