package iam

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// maxApproversMailed is the greatest number of people who get a message about a request.
const maxApproversMailed = 20

// mailRequest returns functions that queue messages about a new request to the people who may see and approve it, in
// the transaction that adds the request.
func (s *Service) mailRequest(ctx context.Context, r resource.AccessRequest) ([]func(*store.Tx) error, error) {
	if s.cfg.Mail == nil {
		return nil, nil
	}
	role, err := s.store.Role(ctx, r.Role)
	if err != nil {
		return nil, err
	}
	approvers, err := s.approversOf(ctx, r, role.Capabilities)
	if err != nil || len(approvers) == 0 {
		return nil, err
	}
	about, err := s.describeRequest(ctx, r, role)
	if err != nil {
		return nil, err
	}
	return []func(*store.Tx) error{func(t *store.Tx) error { return s.addRequestMails(ctx, t, r, approvers, about) }}, nil
}

// addRequestMails queues messages about a request. Concurrent transactions lock the addresses in the same order.
func (s *Service) addRequestMails(
	ctx context.Context, t *store.Tx, r resource.AccessRequest, approvers []resource.UID, about mail.AccessNames,
) error {
	var messages []mail.Message
	for _, uid := range approvers {
		to, err := EmailOf(ctx, t, uid)
		if err != nil {
			return err
		}
		if to == "" {
			continue
		}
		seen := about
		if !s.authz.Holds(uid, resource.IdentityList, placeOf(r)) {
			seen.Requester = "Somebody"
		}
		messages = append(messages, s.cfg.Mail.AccessRequest(r, to, seen))
	}
	slices.SortStableFunc(messages, func(a, b mail.Message) int { return strings.Compare(a.To, b.To) })
	for _, m := range messages {
		if err := s.cfg.Mail.Add(ctx, t, m); err != nil {
			return err
		}
	}
	return nil
}

// placeOf returns the resource on which somebody needs identity.list to see the name of the requester, as in a binding:
// the group for a person, and the identity for a workload.
func placeOf(r resource.AccessRequest) resource.UID {
	if r.Identity.IsRoot() {
		return r.Group()
	}
	return r.Identity
}

// approversOf returns the people, other than the requester, who may see a request and may approve it: they hold
// role_bindings.create and role_bindings.list on its group, and every capability of the role. It returns those with the
// oldest bindings. It leaves out people who have not joined the organization themselves, because anybody can give roles
// to strangers.
func (s *Service) approversOf(
	ctx context.Context, r resource.AccessRequest, role resource.Capabilities,
) (approvers []resource.UID, _ error) {
	h, _ := s.holderQuery(ctx, resource.RoleBindingsCreate, r.Group(), true)
	holders, err := s.store.Holders(ctx, h, page.Request{Size: page.MaxSize, Order: page.Order{Field: "create_time"}})
	if err != nil {
		return nil, err
	}
	var people []resource.UID
	for _, b := range holders.Items {
		if b.Identity.IsRoot() && b.Identity != r.Identity && !slices.Contains(people, b.Identity) {
			people = append(people, b.Identity)
		}
	}
	joined, err := s.store.Joined(ctx, people)
	if err != nil {
		return nil, err
	}
	decide := resource.NewCapabilities(resource.RoleBindingsCreate, resource.RoleBindingsList)
	for _, uid := range people {
		if len(approvers) < maxApproversMailed && slices.Contains(joined[uid], r.UID.Root()) &&
			s.authz.HoldsAll(uid, decide, r.Group()) && s.authz.HoldsAll(uid, role, r.Group()) {
			approvers = append(approvers, uid)
		}
	}
	return approvers, nil
}

// mailDecision returns functions that queue a message about the decision on a request to the requester, in the
// transaction of the decision.
func (s *Service) mailDecision(
	ctx context.Context, r resource.AccessRequest,
) ([]func(*store.Tx, resource.AccessRequest) error, error) {
	if s.cfg.Mail == nil {
		return nil, nil
	}
	role, err := s.store.Role(ctx, r.Role)
	if errors.Is(err, fault.NotFound) { // the role was deleted; the decision decides whether that matters
		role, err = resource.Role{Name: string(r.Role)}, nil
	}
	if err != nil {
		return nil, err
	}
	about, err := s.describeRequest(ctx, r, role)
	if err != nil {
		return nil, err
	}
	return []func(*store.Tx, resource.AccessRequest) error{func(t *store.Tx, r resource.AccessRequest) error {
		to, err := EmailOf(ctx, t, r.Identity)
		if err != nil || to == "" {
			return err
		}
		return s.cfg.Mail.Add(ctx, t, s.cfg.Mail.AccessDecision(r, to, about))
	}}, nil
}

// describeRequest returns the names in a request. The requester is "Somebody" if it is a person who has not joined the
// organization.
func (s *Service) describeRequest(
	ctx context.Context, r resource.AccessRequest, role resource.Role,
) (about mail.AccessNames, _ error) {
	group, err := s.store.Group(ctx, r.Group())
	if err != nil {
		return about, err
	}
	about = mail.AccessNames{Requester: "Somebody", Role: role.Name, Group: group.Label()}
	if org := group.UID.Root(); org != group.UID {
		g, err := s.store.Group(ctx, org)
		if err != nil {
			return about, err
		}
		about.Group += " in " + g.Label()
	}
	i, err := s.store.Identity(ctx, r.Identity)
	if err != nil {
		return about, err
	}
	joined, err := s.store.Joined(ctx, []resource.UID{r.Identity})
	if !r.Identity.IsRoot() || slices.Contains(joined[r.Identity], r.UID.Root()) {
		about.Requester = i.Title()
	}
	return about, err
}

// EmailOf returns the address for notices to a person: the address that the person's provider has verified, or the
// address of the person's account. It returns "" if there is neither, and for workloads.
func EmailOf(ctx context.Context, t *store.Tx, uid resource.UID) (string, error) {
	i, err := iamdb.In(t).Identity(ctx, uid)
	if errors.Is(err, fault.NotFound) {
		return "", nil
	}
	if err != nil || i.Email != "" {
		return i.Email, err
	}
	return signindb.In(t).EmailOf(ctx, uid)
}
