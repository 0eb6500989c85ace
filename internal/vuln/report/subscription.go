package report

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A Subscription is a subscription of the caller to the weekly report of a group.
type Subscription struct {
	vuln.ReportSubscription
	Path string // names of the group and the groups above; "" if the caller may not see them
}

// Subscribe sends the report of a group to the caller by e-mail, now and then every week. The caller must be a person,
// and needs the same capabilities as for Get. The token must not be narrowed, because a mail contains everything that
// the person may see. It returns fault.FailedPrecondition if the server sends no mail.
func (s *Service) Subscribe(ctx context.Context, group resource.UID) (v Subscription, _ error) {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(
		resource.RepoList, resource.ReportsList, resource.AdvisoriesList), group); err != nil {
		return v, err
	}
	caller, err := requirePerson(ctx)
	if err != nil {
		return v, err
	}
	if !s.sendsMail {
		return v, fault.Unmet("NO_MAIL_SERVER", "this server sends no e-mail; see smtp_address in its settings")
	}
	v.ReportSubscription, err = s.packages.AddReportSubscription(ctx, vuln.ReportSubscription{
		Group: group, Identity: caller.Identity, Voucher: caller.Voucher})
	if err != nil {
		return v, err
	}
	named, err := s.withPaths(ctx, []vuln.ReportSubscription{v.ReportSubscription})
	if err != nil {
		return v, err
	}
	return named[0], nil
}

// requirePerson returns the caller if it is a person with a token that is not narrowed. Each token of a person has the
// credential of the sign-in. It must not have another one behind it, because then the token was assumed with a token of
// another identity.
func requirePerson(ctx context.Context) (authz.Caller, error) {
	caller, err := authz.RequireUnnarrowed(ctx)
	if err == nil && (!caller.Identity.IsRoot() || caller.Act != nil && caller.Act.Act != nil) {
		err = fault.New(fault.PermissionDenied, "Permission denied: only a person can subscribe to a report")
	}
	return caller, err
}

// Unsubscribe ends the subscription of the caller to a group. It returns fault.NotFound if there is none. The token
// must not be narrowed.
func (s *Service) Unsubscribe(ctx context.Context, group resource.UID) error {
	caller, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return err
	}
	return s.packages.DeleteReportSubscription(ctx, caller.Identity, group)
}

// Subscriptions returns the subscriptions of the caller. The token must not be narrowed.
func (s *Service) Subscriptions(ctx context.Context) ([]Subscription, error) {
	caller, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.packages.ReportSubscriptions(ctx, caller.Identity)
	if err != nil {
		return nil, err
	}
	return s.withPaths(ctx, found)
}

// withPaths adds the paths of groups that the caller may see.
func (s *Service) withPaths(ctx context.Context, found []vuln.ReportSubscription) ([]Subscription, error) {
	var groups []resource.UID
	for _, v := range found {
		groups = append(groups, v.Group)
	}
	if len(groups) == 0 {
		return nil, nil
	}
	names, err := s.iam.LookupNames(ctx, groups)
	if err != nil {
		return nil, err
	}
	paths := map[resource.UID]string{}
	for _, n := range names {
		paths[n.UID] = n.Path
	}
	subscriptions := make([]Subscription, len(found))
	for i, v := range found {
		subscriptions[i] = Subscription{v, paths[v.Group]}
	}
	return subscriptions, nil
}
